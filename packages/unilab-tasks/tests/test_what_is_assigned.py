"""Classes that say which of their attributes are assigned once an environment is built, and what they really assign."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from typing import Any

import pytest
import torch

import unilab_core
import unilab_managers
from unilab_core import make_env as make_task


def declaring() -> list[type]:
    """Returns every class of core and managers that says so of itself."""
    found: dict[type, None] = {}
    for package in (unilab_core, unilab_managers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if "row_assigned" in vars(kind):
                    found[kind] = None
    return list(found)


def test_there_are_such_classes():
    names = {kind.__name__ for kind in declaring()}
    assert {"BoundTerm", "ObservationPipeline", "ColumnNoise", "ObservationGroup"} <= names


@pytest.mark.parametrize("task", ["velocity-flat-quadruped", "cartpole-balance"])
def test_steps_and_resets_assign_what_the_classes_say_and_nothing_else(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: defaultdict[str, set[str]] = defaultdict(set)

    def watch(kind: type) -> None:
        allowed: tuple[str, ...] = vars(kind)["row_assigned"]

        def assign(self: Any, name: str, value: Any) -> None:
            is_other = hasattr(self, name) and getattr(self, name) is not value
            if type(self) is kind and name not in allowed and is_other:
                others[kind.__name__].add(name)
            object.__setattr__(self, name, value)

        monkeypatch.setattr(kind, "__setattr__", assign)

    env = make_task(task, num_envs=8, seed=0)
    with env:
        for kind in declaring():
            watch(kind)
        env.reset()
        for step in range(12):
            ages = env.episode_length.clone()
            ages[step % 8] = env.max_episode_length - 1
            env.episode_length = ages
            env.step(torch.zeros(8, env.num_actions))
        env.load_state_dict(env.state_dict())
        env.reset(torch.tensor([1, 4]))
    assert not others
