"""The tasks as a whole: registered, sound, and different where they should be."""

import tomllib
from pathlib import Path

import pytest
import torch
from unilab_core import get_task, import_object, make_env
from unilab_managers.testing import check_task

from my_robot.env_cfg import balance, balance_pushed

TASKS = ("my-robot-balance", "my-robot-balance-pushed")


@pytest.fixture(autouse=True)
def registered():
    """Registers the tasks as pyproject.toml says, also where this package is not installed."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for target in project["entry-points"]["unilab.tasks"].values():
        import_object(target)()


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_sound(task):
    assert get_task(task).summary
    check_task(task)  # what `unilab check` looks for


def test_a_robot_that_does_nothing_tips_over_within_2_seconds():
    with make_env("my-robot-balance", num_envs=16, seed=1) as env:
        env.reset()
        tipped = torch.zeros(16, dtype=torch.bool)
        for _ in range(100):
            tipped |= env.step(torch.zeros(16, 2)).terminated
    assert tipped.all()


def test_the_variant_differs_in_what_its_file_says():
    assert balance_pushed() == balance().with_(
        {
            "episode_length_s": 20.0,
            "events.push.interval_range_s": (1.0, 2.0),
            "events.push.params.velocity_range": {"x": (-0.6, 0.6), "yaw": (-1.0, 1.0)},
            "rewards.rolling.weight": -0.02,
        }
    )
