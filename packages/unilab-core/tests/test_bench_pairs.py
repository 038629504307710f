"""Environment and engine alone do the same work, window by window, or the measurement fails."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from bench_support import PushedCfg
from core_support import ScriptedEnv

from unilab_core.benching.intervals import Median
from unilab_core.benching.pairs import NotTheSameWorkError, Pairs, measure_pairs
from unisim.bare import BareEngine, make_bare


def engines_of(env, backend="mujoco"):
    made = {
        freshness: make_bare(
            backend,
            env.cfg.scene,
            env.cfg.sim,
            num_envs=env.num_envs,
            device="cpu",
            declared=env.declared,
            freshness=freshness,
        )
        for freshness in ("fresh", "plain")
    }
    return {freshness: engine for freshness, engine in made.items() if engine is not None}


def drawn(env, steps):
    generator = torch.Generator().manual_seed(1)
    return lambda: [torch.randn(env.num_envs, env.num_actions, generator=generator) for _ in range(steps)]


def test_every_window_is_repeated_by_both_engines_and_the_first_is_not_counted():
    told = []
    with PushedCfg().build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        env.reset()
        kinds = type(env), type(env._backend)
        found = measure_pairs(env, engines_of(env), drawn(env, 7), pairs=6, watch=told.append)
        assert (type(env), type(env._backend)) == kinds
        assert env.step_counter == 7 * 7
    assert told == list(range(7))
    assert found.steps == 7
    assert len(found.env_s) == len(found.engine_s["fresh"]) == len(found.engine_s["plain"]) == 6
    assert all(s > 0.0 for s in [*found.env_s, *found.engine_s["fresh"], *found.engine_s["plain"]])
    # Episodes of 10 steps end in steps 10, 20, 30 and 40, all 4 rows at once; one row is pushed in every step.
    assert (found.rows_reset, found.rows_written) == (16, 42)
    assert found.per_step(found.rows_written) == 1.0


def test_times_become_medians_of_pairs():
    pairs = Pairs(steps=10, env_s=[3e-3] * 5 + [9e-3], engine_s={"fresh": [2e-3] * 5 + [3e-3]})
    assert pairs.step_us == Median(pytest.approx(3000.0), pytest.approx(3000.0), pytest.approx(9000.0))
    assert pairs.engine_us("fresh").value == pytest.approx(2000.0)
    assert pairs.ratio("fresh") == Median(pytest.approx(1.5), pytest.approx(1.5), pytest.approx(3.0))
    assert pairs.above_us("fresh") == Median(
        pytest.approx(1000.0), pytest.approx(1000.0), pytest.approx(6000.0)
    )


def test_an_engine_that_comes_elsewhere_ends_the_measurement():
    cfg = PushedCfg(meddles=True)
    with cfg.build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        env.reset()
        with pytest.raises(
            NotTheSameWorkError, match=r"window 0: .* did not come .*: qpos of 1 rows; in row 2"
        ) as caught:
            measure_pairs(env, engines_of(env), drawn(env, 3), pairs=6)
    assert "mujoco.batch.Batch, stage=mjSTAGE_VEL" in str(caught.value)


def test_an_environment_of_another_model_than_its_config_says_is_refused():
    with PushedCfg(moved=True).build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        env.reset()
        with pytest.raises(NotTheSameWorkError, match="must be built of the scene and sim of its config"):
            measure_pairs(env, engines_of(env), drawn(env, 3), pairs=6)


def test_the_engines_take_turns_in_which_of_them_is_first():
    order = []

    class Noting(Wandering):
        def __init__(self, name) -> None:
            super().__init__()
            self.name = name

        def prepare(self, calls):
            return lambda: order.append(self.name)

    env = ScriptedEnv(2)
    env.reset()
    measure_pairs(env, {name: Noting(name) for name in ("fresh", "plain")}, drawn(env, 1), pairs=6)
    assert order == ["fresh", "plain", "plain", "fresh"] * 3 + ["fresh", "plain"]


class Wandering(BareEngine):
    """Notes what is asked of it, and never comes to where it should."""

    label, exact = "wandering", False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def load(self, snapshot) -> None:
        self.asked.append("load")

    def prepare(self, calls):
        return lambda: self.asked.append(f"run {len(calls)}")

    def difference(self, snapshot) -> str:
        raise AssertionError("it is not asked")

    def close(self) -> None:
        raise AssertionError("its owner closes it")


def test_an_engine_that_gives_other_bits_begins_every_window_anew():
    engine = Wandering()
    env = ScriptedEnv(2, truncate={2: [0]})
    env.reset()
    measure_pairs(env, {"fresh": engine}, drawn(env, 2), pairs=6)
    # The second step of the first window resets a row, which is one more call.
    assert engine.asked == ["load", "load", "run 3", *["load", "run 2"] * 6]


def test_a_second_backend_is_the_measure_of_one_without_an_engine_of_its_own(monkeypatch):
    from unisim.testing import FakeBackend

    env = ScriptedEnv(2, truncate={3: [0], 8: [1]}, spread=0.4)
    env.reset()
    layout = env.backend.model_layout
    monkeypatch.setattr(
        "unisim.bare.make_backend", lambda *names, num_envs, **options: FakeBackend(layout, num_envs)
    )
    engines = engines_of(env, "fake")
    assert list(engines) == ["fresh"]
    with closing(engines["fresh"]):
        found = measure_pairs(env, engines, drawn(env, 4), pairs=6)
    assert (found.rows_reset, list(found.engine_s)) == (
        1,
        ["fresh"],
    )  # the other one falls into the first window
