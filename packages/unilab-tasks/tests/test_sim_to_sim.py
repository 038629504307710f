"""The shipped tasks on both backends: the same physics step by step, and policies that keep what they have learnt.

MuJoCo-Warp runs on Warp's CPU device here, where a step takes 10 to 20 ms, so steps are few.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unilab_core import TorchEnv, make_env
from unilab_core.cli import main

Facts = Callable[..., tuple[int, dict[str, Any]]]
pytestmark = pytest.mark.timeout(600)  # the first run on a machine compiles kernels, for a minute or two


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Facts:
    """Runs a command in an empty folder and returns its exit code and the JSON that it prints, and nothing else."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, dict[str, Any]]:
        code = main([*args, "--json"])
        return code, json.loads(capfd.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("task", "steps", "columns"), [("cartpole-balance", 20, 10), ("velocity-flat-quadruped", 8, 123)]
)
def test_a_step_of_a_shipped_task_is_the_same_on_both_backends(
    facts: Facts, task: str, steps: int, columns: int
):
    code, found = facts(
        *("compare", task, "--backends", "mujoco,mujoco_warp", "--num-envs", "4", "--steps", str(steps))
    )
    assert (code, found["within_tolerance"], found["steps"]) == (0, True, steps)
    assert len(found["columns"]) == columns
    assert (found["ended_on_first"], found["ended_on_second"], found["unequal_draws"]) == (0, 0, [])
    # The robots do move: what is the same is not nothing.
    moved = {column["name"]: column["max_at"] for column in found["columns"] if column["max_abs"] > 0.0}
    assert any(abs(place["first"]) > 0.1 for place in moved.values())


def test_what_only_float32_explains_is_beyond_a_tolerance_that_leaves_no_room_for_it(facts: Facts):
    code, found = facts(
        *("compare", "cartpole-balance", "--backends", "mujoco,mujoco_warp", "--num-envs", "4"),
        *("--steps", "20", "--atol", "1e-12", "--rtol", "0"),
    )
    assert (code, found["within_tolerance"]) == (1, False)
    beyond = [column for column in found["columns"] if column["beyond"]]
    assert {column["kind"] for column in beyond} == {"observation", "reward"}
    assert all(0.0 < column["max_abs"] < 1e-5 for column in beyond)


@pytest.mark.parametrize("task", ["cartpole-balance", "velocity-flat-quadruped"])
def test_episodes_of_both_backends_begin_in_the_same_states_with_the_same_commands(task: str):
    with (
        make_env(task, backend="mujoco", num_envs=6, seed=3) as env,
        make_env(task, backend="mujoco_warp", num_envs=6, seed=3) as other,
    ):
        for seed in (5, 6):
            here, there = env.reset(seed=seed)[0], other.reset(seed=seed)[0]
            for name in ("qpos", "qvel"):
                assert torch.equal(env.state_column(name), other.state_column(name)), name
            assert env.state_column("qpos").unique(dim=0).shape[0] == 6
            commands = [_commands(one) for one in (env, other)]
            assert commands[0].keys() == commands[1].keys()
            for path, value in commands[0].items():
                assert torch.equal(commands[1][path], value), path
            torch.testing.assert_close(there["obs"], here["obs"], atol=1e-5, rtol=1e-5)


def _commands(env: TorchEnv) -> dict[str, torch.Tensor]:
    """Every tensor that a command remembers, by its path."""
    values = env.state_dict()["values"]
    return {
        path: value
        for path, value in values.items()
        if path.startswith("commands") and isinstance(value, torch.Tensor)
    }


def test_a_policy_trained_on_mujoco_keeps_its_return_on_mujoco_warp(
    facts: Facts, capfd: pytest.CaptureFixture[str]
):
    options = ("--num-envs", "64", "--iterations", "6", "--set", "episode_length_s=1.0")
    assert main(["train", "cartpole-balance", *options]) == 0
    capfd.readouterr()
    code, found = facts(
        "eval", "latest", "--backend", "mujoco_warp", "--episodes", "8", "--no-baseline", "--as-trained"
    )
    assert (code, found["backend"], found["reference"]["backend"]) == (0, "mujoco_warp", "mujoco")
    for one in (found["policy"], found["reference"]["policy"]):
        assert (one["episodes"], one["length_mean"]) == (8, 50.0)
    assert found["reference"]["policy"]["return_std"] > 0.01  # eight episodes, not eight times the same
    assert found["paired"]["first_observation_difference"] < 1e-5
    assert 0.95 < found["paired"]["return_ratio"] < 1.05
