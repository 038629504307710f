"""`unilab bench` from end to end, on the shipped tasks: the engine alone follows them to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Cli = Callable[..., Any]

SMALL = ("--num-envs", "8,16", "--pairs", "6", "--steps", "4", "--warmup", "4")
LEARNER = ("--set", "learner.num_steps_per_env=8")
PUSHED = ("--set", "events.push.interval_range_s=[0.04, 0.08]", "--set", "episode_length_s=0.4")


@pytest.mark.parametrize(
    ("task", "options"),
    [("velocity-flat-quadruped", PUSHED), ("cartpole-balance", ())],
)
def test_a_task_is_measured_whole(task: str, options: tuple[str, ...], cli: Cli):
    finished = cli("bench", task, *SMALL, *LEARNER, *options, "--json")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert found["exact"] is True
    assert found["notes"] == []
    for row, num_envs in zip(found["rows"], (8, 16), strict=True):
        assert row["num_envs"] == num_envs
        phases = row["breakdown"].keys()
        assert phases >= {
            "backend step",
            "read and pack",
            "actions",
            "rewards",
            "observations",
            "commands",
            "events",
        }
        assert row["step_over_physics"] > 0.0
        assert (row["learner"]["algorithm"], row["learner"]["steps_per_iteration"]) == ("ppo", 8)
        if options:  # episodes of 20 steps begin at all ages
            assert row["rows_reset_per_step"] > 0.0
            assert row["rows_written_per_step"] > 0.0


def test_an_unknown_learner_is_refused_with_the_nearest_name(cli: Cli):
    finished = cli("bench", "cartpole-balance", *SMALL, "--learner", "pppo")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "unknown algorithm 'pppo'; did you mean 'ppo'?" in finished.stderr
