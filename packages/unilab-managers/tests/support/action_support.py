"""Environments for tests of actions, metrics and recorders: joints whose actuators have no limits unless told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from manager_support import layout_of, with_default
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_managers import ManagerBasedRlEnv
from unisim import ModelLayout

UNLIMITED = (float("-inf"), float("inf"))
Range = tuple[float, float]


def driven_layout(
    *joints: str, default: Sequence[float] = (), ranges: Mapping[str, Range] | None = None, **options: Any
) -> ModelLayout:
    """Returns a layout of actuated joints with a default position each, and control ranges by actuator."""
    layout = layout_of(*joints, **options)
    limits = {f"robot/{name}": pair for name, pair in (ranges or {}).items()}
    actuators = tuple(replace(a, ctrl_range=limits.get(a.name, UNLIMITED)) for a in layout.actuators)
    layout = replace(layout, actuators=actuators)
    return with_default(layout, *default) if default else layout


def rename_actuators(layout: ModelLayout, *names: str) -> ModelLayout:
    """Returns the layout with other names of its actuators; what they drive stays."""
    return replace(
        layout,
        actuators=tuple(replace(a, name=f"robot/{n}") for a, n in zip(layout.actuators, names, strict=True)),
    )


def control(env: ManagerBasedRlEnv) -> list[list[float]]:
    """Returns the control that the backend holds, by row."""
    rows: list[list[float]] = env.state_column("ctrl").tolist()
    return rows


def step(env: ManagerBasedRlEnv, *rows: Sequence[float]) -> list[list[float]]:
    """Steps with these raw actions and returns the control of it, by row."""
    env.step(torch.tensor(rows))
    return control(env)


class Operators(TorchDispatchMode):
    """Notes the operators that run inside, in order, without their overloads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name().removeprefix("aten::").split(".")[0])
        return func(*args, **(kwargs or {}))


def same(a: Any, b: Any) -> bool:
    """Whether two nested states are equal, bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)
