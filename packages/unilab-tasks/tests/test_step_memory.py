"""A step of `velocity-flat-quadruped` keeps no memory that it did not have before."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator, Mapping

import pytest
import torch

from unilab_core import make_env
from unilab_managers import ManagerBasedRlEnv

_OTHERS: dict[int, torch.Tensor] = {}
"""Tensors that a test has not made, by id."""


def _make(num_envs: int, overrides: Mapping[str, object] | None = None) -> ManagerBasedRlEnv:
    env = make_env("velocity-flat-quadruped", num_envs=num_envs, seed=0, overrides=overrides or {})
    assert isinstance(env, ManagerBasedRlEnv)
    env.reset()
    return env


def _tensors() -> list[torch.Tensor]:
    # By `type`: `isinstance` asks the object itself, and some of torch's own answer with a warning.
    return [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]


@pytest.fixture(autouse=True)
def _before() -> Iterator[None]:
    """Keeps what lived before a test: a tracer of whoever ran before in this process leaves tensors without memory."""
    _OTHERS.update({id(tensor): tensor for tensor in _tensors()})
    yield
    _OTHERS.clear()


def _storages() -> dict[int, int]:
    """Returns the bytes of every CPU storage that a test has made and that Python can reach, by address."""
    own = [tensor for tensor in _tensors() if id(tensor) not in _OTHERS]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in own}


def _collect() -> None:
    gc.collect()
    sys._clear_type_cache()  # it keeps names alive that attributes were last looked up by


def _live() -> tuple[int, int, int]:
    """Returns how much is alive: blocks of Python's allocator, and number and bytes of tensors' storages."""
    _collect()
    storages = _storages()
    return sys.getallocatedblocks(), len(storages), sum(storages.values())


def _peak(env: ManagerBasedRlEnv, steps: int) -> int:
    """Returns the most bytes that Python holds at any time within the steps, beyond what it held before them.

    Garbage is collected after every step: when it would be otherwise depends on what was allocated long before.
    """
    _collect()
    gc.freeze()  # what was there before need not be looked at again in every collection
    tracemalloc.start()
    try:
        for _ in range(steps):
            _run(env, 1)
            gc.collect()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def _run(env: ManagerBasedRlEnv, steps: int) -> None:
    actions = torch.zeros(env.num_envs, env.num_actions)
    for _ in range(steps):
        env.step(actions)


def test_after_1000_steps_memory_and_its_peak_are_what_they_were_after_100():
    # Timers that run out together every few steps, so that any 100 steps hold resets, pushes and new commands.
    often = {
        "episode_length_s": 0.5,
        "events.push.interval_range_s": (0.2, 0.2),
        "commands.twist.resampling_time_range": (0.2, 0.2),
    }
    with _make(2, often) as env:
        _run(env, 25)
        first_peak = _peak(env, 75)
        first = _live()
        _run(env, 800)
        last_peak = _peak(env, 100)
        last = _live()
    assert last[1:] == first[1:]
    assert abs(last[0] - first[0]) < 100  # a leak of one object per step would be 900
    # A leaked row of the smallest buffer would be 9 kB in 900 steps.
    assert last_peak <= first_peak + 8192


def test_a_leak_of_one_small_tensor_per_step_is_found():
    kept: list[torch.Tensor] = []
    with _make(2) as env:
        _run(env, 5)
        first = _live()
        for _ in range(100):
            _run(env, 1)
            kept.append(torch.zeros(2))
        last = _live()
    assert last[1] - first[1] == len(kept)
    assert last[0] - first[0] > 100
