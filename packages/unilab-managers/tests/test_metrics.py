"""Metrics: one number per episode, of what is seen before any row is reset."""

from typing import Any

import pytest
import torch
from action_support import Operators, driven_layout, same, step
from manager_support import Feed, MakeEnv, base_cfg, calls, column, flag, ids, layout_of, returns, zeros

from unilab_core import ConfigError, NanGuardCfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, MetricsTermCfg, TerminationTermCfg, mdp
from unisim import Declared, SimCfg
from unisim.testing import FakeBackend

FIVE_STEPS = {"cut": TerminationTermCfg(func=mdp.time_out)}
REDUCE = ("mean", "sum", "last", "max", "min")


def metric(reduce: Any = "mean", index: int = 0) -> MetricsTermCfg:
    return MetricsTermCfg(func=column, params={"index": index}, reduce=reduce)


def entries(log: dict[str, torch.Tensor], name: str) -> list[float]:
    """Returns sum and count."""
    return [float(log[f"Metrics/{name}/sum"]), float(log[f"Metrics/{name}/count"])]


def show(env: ManagerBasedRlEnv, feed: Feed, rows: list[list[float]]) -> dict[str, Any]:
    feed.probe(rows)
    return env.step(zeros(env)).info


def test_each_way_to_reduce_gives_its_own_number(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, metrics={kind: metric(kind) for kind in REDUCE})
    for first, second in ((1.0, -1.0), (4.0, -2.0), (2.5, -4.0), (0.5, -3.0)):
        show(env, feed, [[first, 0.0, 0.0], [second, 0.0, 0.0]])
    log = env.reset(ids(0))[1]["episode"]
    assert {kind: entries(log, kind) for kind in REDUCE} == {
        "mean": [2.0, 1], "sum": [8.0, 1], "last": [0.5, 1], "max": [4.0, 1], "min": [0.5, 1],
    }  # fmt: skip
    log = env.reset(ids(1))[1]["episode"]
    assert {kind: entries(log, kind) for kind in REDUCE} == {
        "mean": [-2.5, 1], "sum": [-10.0, 1], "last": [-3.0, 1], "max": [-1.0, 1], "min": [-4.0, 1],
    }  # fmt: skip


@pytest.mark.parametrize("num_envs", [1, 2, 7])
def test_qa_114_success_in_the_last_of_five_steps(make_env: MakeEnv, num_envs: int) -> None:
    feed = Feed()
    env = make_env(
        num_envs,
        feed=feed,
        episode_length_s=0.1,
        terminations=FIVE_STEPS,
        metrics={k: metric(k) for k in REDUCE},
    )
    for _ in range(4):
        assert "episode" not in show(env, feed, [[0.0, 0.0, 0.0]] * num_envs)
    log = show(env, feed, [[1.0, 0.0, 0.0]] * num_envs)["episode"]
    for kind, value in (("last", 1.0), ("mean", 0.2), ("sum", 1.0), ("max", 1.0), ("min", 0.0)):
        total, count = entries(log, kind)
        assert count == num_envs
        assert total / count == pytest.approx(value)


def substeps(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene.sensor_history("probe")[:, :, 0]


@pytest.mark.parametrize(("reduce", "expected"), [("mean", 2.5), ("last", 2.5), ("sum", 12.5)])
def test_qa_114_a_value_per_substep_counts_by_its_mean(reduce: Any, expected: float) -> None:
    def script(number: int, state: Any) -> dict[str, torch.Tensor]:
        return {"sensor:probe": torch.full((2, 3), float((number - 1) % 4 + 1), dtype=torch.float64)}

    cfg = base_cfg(
        sim=SimCfg(timestep=0.005),
        decimation=4,
        metrics={"level": MetricsTermCfg(func=substeps, reduce=reduce)},
    )
    declared = Declared(substep_sensors=("probe",), decimation=4)
    backend = FakeBackend(layout_of(timestep=0.005), 2, script=script, declared=declared)
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        env.reset()
        for _ in range(5):
            env.step(zeros(env))
        assert substeps(env)[0].tolist() == [1.0, 2.0, 3.0, 4.0]
        _, info = env.reset()
    assert entries(info["episode"], "level") == [2 * expected, 2]


def test_qa_110_only_the_rows_that_were_reset_are_counted_and_only_once(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        4, feed=feed, autoreset=False, metrics={"success": metric("last"), "cut": metric("last", 1)}
    )
    show(env, feed, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    log = env.reset(ids(0))[1]["episode"]
    assert (entries(log, "success"), entries(log, "cut")) == ([1.0, 1], [0.0, 1])
    for _ in range(2):
        assert "episode" not in show(env, feed, [[0.0, 0.0, 0.0]] * 4)
    log = env.reset(ids(3, 1, 2))[1]["episode"]
    assert (entries(log, "success"), entries(log, "cut")) == ([0.0, 3], [0.0, 3])


def test_qa_112_ended_by_tells_of_this_step_only(make_env: MakeEnv) -> None:
    feed = Feed()
    terms = {"fall": TerminationTermCfg(func=flag)}
    env = make_env(
        3,
        feed=feed,
        terminations=terms,
        metrics={"fall": MetricsTermCfg(func=mdp.ended_by, params={"term": "fall"})},
    )
    for number in range(1, 5):
        info = show(env, feed, [[0.0, 0.0, float(number == 3 and row == 1)] for row in range(3)])
        fired = mdp.ended_by(env, "fall").tolist()
        assert fired == ([0.0, 1.0, 0.0] if number == 3 else [0.0] * 3)
        if number == 3:
            assert entries(info["episode"], "fall") == [pytest.approx(1 / 3), 1]


def noted(env: ManagerBasedRlEnv) -> torch.Tensor:
    calls.append(env.step_counter)
    return torch.zeros(env.num_envs)


def test_a_term_is_called_once_a_step_and_not_in_a_reset(make_env: MakeEnv) -> None:
    env = make_env(2, metrics={"noted": MetricsTermCfg(func=noted)})
    calls.clear()
    env.step(zeros(env))
    env.reset(ids(1))
    env.step(zeros(env))
    assert calls == [1, 2]


def height(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.root_pos_w[:, 2].clone()


def low(env: ManagerBasedRlEnv) -> torch.Tensor:
    return height(env) < 0.5


def test_qa_114_the_step_that_ends_an_episode_is_measured_before_its_reset(make_env: MakeEnv) -> None:
    feed = Feed()
    standing = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    env = make_env(
        2,
        feed=feed,
        layout=driven_layout("leg", default=standing, free_root=True, actuated=["robot/leg"]),
        terminations={"low": TerminationTermCfg(func=low)},
        metrics={"height": MetricsTermCfg(func=height, reduce="last")},
    )
    feed.now = {"qpos": torch.tensor([standing, standing])}
    feed.now["qpos"][1, 2] = 0.25
    info = env.step(zeros(env)).info
    assert entries(info["episode"], "height") == [0.25, 1]
    assert height(env).tolist() == [1.0, 1.0]


def test_the_number_of_steps_is_counted_and_not_taken_from_the_episode_length(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, metrics={"mean": metric(), "max": metric("max")})
    env.episode_length = torch.tensor([100, 3])
    log = env.reset(ids(1))[1]["episode"]
    assert (entries(log, "mean"), entries(log, "max")) == ([0.0, 0], [0.0, 0])  # no step was measured
    show(env, feed, [[3.0, 0.0, 0.0]] * 2)
    show(env, feed, [[5.0, 0.0, 0.0]] * 2)
    log = env.reset()[1]["episode"]
    assert (entries(log, "mean"), entries(log, "max")) == ([8.0, 2], [10.0, 2])


def test_an_episode_begins_without_the_one_before(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, metrics={kind: metric(kind) for kind in REDUCE})
    show(env, feed, [[9.0, 0.0, 0.0]] * 2)
    env.reset(ids(0))
    show(env, feed, [[-1.0, 0.0, 0.0]] * 2)
    log = env.reset(ids(0))[1]["episode"]
    assert {kind: entries(log, kind) for kind in REDUCE} == {kind: [-1.0, 1] for kind in REDUCE}
    log = env.reset(ids(1))[1]["episode"]
    assert entries(log, "sum") == [8.0, 1]


class Steps:
    """A class term that counts its own calls since a row's reset."""

    def __init__(self, cfg: MetricsTermCfg, env: ManagerBasedRlEnv) -> None:
        self.count = torch.zeros(env.num_envs)

    def __call__(self, env: ManagerBasedRlEnv, factor: float = 1.0) -> torch.Tensor:
        self.count += 1
        return self.count * factor

    def reset(self, env_ids: torch.Tensor) -> None:
        self.count[env_ids] = 0.0


def test_a_class_term_is_cleared_with_its_rows(make_env: MakeEnv) -> None:
    env = make_env(2, metrics={"age": MetricsTermCfg(func=Steps, params={"factor": 2.0}, reduce="last")})
    for _ in range(3):
        env.step(zeros(env))
    assert entries(env.reset(ids(1))[1]["episode"], "age") == [6.0, 1]
    env.step(zeros(env))
    assert entries(env.reset()[1]["episode"], "age") == [8.0 + 2.0, 2]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("column", None),
        ("bool_columns", r"returned torch.bool \(3, 2\)|returned \(3, 2\), expected \(3,\), or \(3, 1\)"),
        ("float", None),
        ("scalar", r"expected torch.float32 \(3,\)"),
        ("number", r"returned a int, expected a tensor \(3,\)"),
        ("double", r"returned torch.float64 \(3,\)"),
        ("int", r"returned torch.int64 \(3,\)"),
        ("wrong_n", r"returned \(2, 2\), expected \(3,\), or \(3, 1\): one column per substep"),
        ("no_columns", r"returned \(3, 0\), expected \(3,\), or \(3, 1\): one column per substep"),
        ("three_d", r"returned torch.float32 \(3, 1, 1\), expected torch.float32 \(3,\)"),
    ],
)
def test_what_no_metric_can_be_is_refused_at_construction(
    make_env: MakeEnv, kind: str, expected: str | None
) -> None:
    term = MetricsTermCfg(func=returns, params={"kind": kind})
    if expected is None:
        make_env(metrics={"odd": term}).step(torch.zeros(3, 2))
        return
    with pytest.raises(ConfigError, match=f"metrics term 'odd' ({expected})|metrics term 'odd' .*{expected}"):
        make_env(metrics={"odd": term})


def test_a_bad_step_spoils_no_mean(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        2,
        feed=feed,
        nan_guard=NanGuardCfg(policy="reset_row", max_dumps=0),
        metrics={"sum": metric("sum"), "mean": metric()},
    )
    show(env, feed, [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    log = show(env, feed, [[float("nan"), 0.0, 0.0], [2.0, 0.0, 0.0]])["episode"]
    assert (entries(log, "sum"), entries(log, "mean")) == ([0.0, 1], [0.0, 1])
    assert entries(env.reset(ids(1))[1]["episode"], "sum") == [4.0, 1]


def raising(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if "raise" in calls:
        raise ArithmeticError("no")


def test_a_rejected_reset_keeps_the_sums(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        2,
        feed=feed,
        metrics={kind: metric(kind) for kind in REDUCE},
        events={"raising": EventTermCfg(func=raising, mode="reset")},
    )
    show(env, feed, [[1.5, 0.0, 0.0]] * 2)
    before = env.state_dict()
    calls.append("raise")
    with pytest.raises(ValueError, match="nothing was committed"):
        env.reset(ids(0))
    calls.clear()
    assert same(env.state_dict(), before)
    assert entries(env.reset(ids(0))[1]["episode"], "sum") == [1.5, 1]


def test_the_built_in_metrics(make_env: MakeEnv) -> None:
    layout = driven_layout("a", "b")
    metrics = {
        "rate": MetricsTermCfg(func=mdp.action_rate, reduce="last"),
        "speed": MetricsTermCfg(func=mdp.joint_speed, reduce="last"),
    }
    env = make_env(1, layout=layout, metrics=metrics)
    step(env, [1.0, 1.0])
    step(env, [4.0, -3.0])  # 3 and -4 away: 5
    log = env.reset()[1]["episode"]
    assert entries(log, "rate") == [5.0, 1]
    # A fake is a double integrator of 1 kg: speeds are 0.02 x (1 + 4) and 0.02 x (1 - 3), of which 0.07 is the mean.
    assert entries(log, "speed") == [pytest.approx(0.07), 1]


def test_a_metric_costs_one_operator_beside_its_term(make_env: MakeEnv) -> None:
    def cost(number: int) -> int:
        env = make_env(metrics={f"m{i}": MetricsTermCfg(func=constant, reduce="sum") for i in range(number)})
        with Operators() as operators:
            env.metrics_manager.compute()
        return len(operators.names)

    assert cost(0) == 0
    assert cost(3) == cost(1) + 2


def constant(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.reward_manager._total


@pytest.mark.parametrize("reduce", ["median", "", None, 1])
def test_an_unknown_way_to_reduce_is_refused(reduce: Any) -> None:
    with pytest.raises(ConfigError, match="reduce"):
        MetricsTermCfg(func=column, params={"index": 0}, reduce=reduce)
