"""State out and in: what another process needs to go on, to the bit; and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from core_support import ScriptedEnv, assert_same, steps
from twins import HoardingEnv, assert_same_steps, assert_twins, differences
from velocity import VelocityEnv, mujoco_backend, run

STEPS = 100


def test_a_new_process_goes_on_where_the_state_was_taken_bit_for_bit(tmp_path, program):
    path = tmp_path / "state.pt"
    with VelocityEnv(mujoco_backend(), seed=3) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        run(env, 40, generator)
        torch.save({"env": env.state_dict(), "actions": generator.get_state()}, path)
        expected = run(env, STEPS, generator)
    code = f"""
import torch
from velocity import resumed
if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.save(resumed({str(path)!r}, {STEPS}), {str(tmp_path / "out.pt")!r})
"""
    done = program(code)
    assert done.returncode == 0, done.stderr
    got = torch.load(tmp_path / "out.pt", weights_only=True)
    for one, two in zip(expected, got, strict=True):
        assert_same(one, two)


def test_saving_loading_and_saving_again_gives_the_same_content(tmp_path):
    with (
        HoardingEnv(3, terminate={4: [1]}, seed=3) as env,
        HoardingEnv(3, terminate={4: [1]}, seed=8) as other,
    ):
        for each in (env, other):
            each.reset()
        steps(env, 6)
        steps(other, 6)
        torch.save(env.state_dict(), tmp_path / "state.pt")
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert_twins(env, other)
        assert other.step_counter == 6
        assert_same_steps(env, other, 20)


def test_qa_084_counters_levels_and_plain_lists_are_restored(tmp_path):
    class Staged(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.stage, self.past, self.limits = 0, [], {"speed": 0.5}

        def _advance(self) -> None:
            if self.step_counter == 4:
                self.stage, self.past, self.limits["speed"] = 2, [1.0, 2.0, 3.0], 1.5

    with Staged() as env, Staged() as other:
        env.reset()
        steps(env, 5)
        torch.save(env.state_dict(), tmp_path / "state.pt")
        past = other.past
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert (other.step_counter, other.stage, other.past, other.limits) == (
            5,
            2,
            [1.0, 2.0, 3.0],
            {"speed": 1.5},
        )
        assert other.past is past
        assert differences(env.state_dict(), other.state_dict()) == []


def test_rows_that_wait_still_wait_after_loading():
    with ScriptedEnv(terminate={2: [1]}, autoreset=False) as env, ScriptedEnv(autoreset=False) as other:
        env.reset()
        steps(env, 2)
        other.reset()
        other.load_state_dict(env.state_dict())
        with pytest.raises(RuntimeError, match=r"rows \[1\] wait for a reset"):
            steps(other, 1)


def test_a_state_says_nothing_of_how_its_environment_was_made():
    with ScriptedEnv(autoreset=False) as env, ScriptedEnv() as other:
        env.reset()
        other.load_state_dict(env.state_dict())
        assert other.autoreset


def test_loading_forgets_the_outcome_of_the_step_before():
    with ScriptedEnv(terminate={1: [1]}) as env, ScriptedEnv() as other:
        env.reset()
        steps(env, 1)
        other.reset()
        env.load_state_dict(other.state_dict())
        assert env.state.final_observation is None
        assert set(env.state.info) == {"log", "timing"}


def test_a_state_shares_no_memory_with_its_environment():
    with ScriptedEnv() as env:
        env.reset()
        state = env.state_dict()
        kept = copy.deepcopy(state)
        steps(env, 5)
        assert differences(state, kept) == []


def wrong(state, path, value):
    part, _, key = path.partition("/")
    if not key:
        return {**state, part: value} if value is not None else {k: v for k, v in state.items() if k != part}
    values = (
        {**state[part], key: value}
        if value is not None
        else {k: v for k, v in state[part].items() if k != key}
    )
    return {**state, part: values}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "got version 2; expected version 1"),
        ("version", None, r"got keys \['backend', 'values'\]"),
        ("extra", 1, "got keys .*'extra'"),
        ("values/step_counter", None, r"missing \['step_counter'\]"),
        ("values/unknown", 1, r"unknown \['unknown'\]; not of this task"),
        ("values/_reward", torch.zeros(4), r"_reward is torch.float32 \(4,\), expected torch.float32 \(3,\)"),
        ("values/_reward", torch.zeros(3, dtype=torch.float64), "_reward is torch.float64"),
        ("values/_reward", 1.0, "_reward is float, expected torch.float32"),
        ("values/step_counter", "three", "step_counter is 'three', expected a int"),
        ("values/step_counter", torch.zeros(()), "step_counter is a Tensor, expected a int"),
        ("values/_pending", {"a": 1}, "_pending is a dict, expected a set"),
        ("values/rng.generator", torch.zeros(3, dtype=torch.uint8), r"rng.generator is torch.uint8 \(3,\)"),
        ("backend/value:qpos", None, "'value:qpos' is missing"),
        (
            "backend/value:qpos",
            torch.zeros(4, 2, dtype=torch.float64),
            r"'value:qpos' is torch.float64 \(4, 2\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_has_changed(path, value, message):
    with ScriptedEnv(seed=1) as env, ScriptedEnv(seed=1) as twin, ScriptedEnv(seed=5) as source:
        for each in (env, twin, source):
            each.reset()
            steps(each, 2)
        steps(source, 3)
        with pytest.raises(ValueError, match=message):
            env.load_state_dict(wrong(source.state_dict(), path, value))
        assert_twins(env, twin)
        assert_same_steps(env, twin, 5)


@pytest.mark.parametrize("num_envs", [2, 4])
def test_a_state_of_another_number_of_rows_is_refused(num_envs):
    with ScriptedEnv(3) as env, ScriptedEnv(num_envs) as other:
        other.reset()
        with pytest.raises(ValueError, match="expected"):
            env.load_state_dict(other.state_dict())


def test_the_baseline_of_randomisation_is_part_of_the_state():
    with VelocityEnv(mujoco_backend(), seed=3) as env, VelocityEnv(mujoco_backend(), seed=4) as other:
        env.reset()
        other.reset()
        other.load_state_dict(env.state_dict())
        assert_twins(env, other)
        env.reset()
        other.reset()
        assert_twins(env, other)
