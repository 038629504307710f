"""A small checkpoint, and when two are equal."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import torch
from rl_support import run_config

from unilab_rl import Checkpoint


def checkpoint(iteration: int = 3, **changes: Any) -> Checkpoint:
    """A checkpoint with tensors of several dtypes and every kind of plain data."""
    values = {
        "algorithm": "counting",
        "task": "scripted",
        "iteration": iteration,
        "env_steps": 96,
        "learner": {"weight": torch.tensor([1.5, -2.0])},
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0)}},
            "param_groups": [{"lr": 3e-4, "params": [0]}],
        },
        "normalizer": {"count": torch.tensor(7)},
        "env_training_state": {"version": 1, "step_counter": 24},
        "env_state": None,
        "rng": {"cpu": torch.Generator().manual_seed(5).get_state()},
        "config": run_config().to_data(),
        "versions": {"python": "3.11"},
    }
    return Checkpoint(**(values | changes))


def envelope(**changes: Any) -> dict[str, Any]:
    """What the file of `checkpoint()` holds."""
    held = checkpoint()
    return {
        "format": "unilab-rl/1",
        **{field.name: getattr(held, field.name) for field in fields(held)},
        **changes,
    }


def torch_bytes(value: object) -> bytes:
    """What `torch.save` makes of a value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def equal(one: Any, two: Any) -> bool:
    """Whether plain data with tensors is equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two) and one.dtype == two.dtype
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))
    return bool(one == two)


def same(one: Checkpoint, two: Checkpoint) -> bool:
    """Whether two checkpoints are equal, bit for bit."""
    return all(equal(getattr(one, field.name), getattr(two, field.name)) for field in fields(Checkpoint))
