"""Checks of actions and of a transition: each one read of the device, and a message that says where."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unilab_core.errors import NonFiniteError

__all__ = ["check_actions", "check_transition"]


def check_actions(actions: object, num_envs: int, num_actions: int, device: torch.device, owner: str) -> None:
    """Checks kind, shape, device and layout of actions without reading the device.

    Raises:
        TypeError: Not a float32 tensor.
        ValueError: Wrong shape or device, or not contiguous.
    """
    if not isinstance(actions, torch.Tensor):
        raise TypeError(f"{owner}: actions is a {type(actions).__name__}, expected a float32 torch.Tensor")
    if actions.dtype != torch.float32:
        raise TypeError(
            f"{owner}: actions is {actions.dtype}, expected torch.float32; convert with actions.float()"
        )
    if tuple(actions.shape) != (num_envs, num_actions):
        raise ValueError(
            f"{owner}: actions has shape {tuple(actions.shape)}, expected {(num_envs, num_actions)}"
        )
    if actions.device != device:
        raise ValueError(f"{owner}: actions is on {actions.device}, expected {device}")
    if not actions.is_contiguous():
        raise ValueError(f"{owner}: actions is not contiguous; pass actions.contiguous()")


def check_transition(
    owner: str, tensors: Mapping[str, torch.Tensor], flag: torch.Tensor | None = None
) -> bool:
    """Reads one small vector from the device: whether every tensor is finite, and whether any flag is set.

    Args:
        owner: Who asks, for the error message.
        tensors: Name to (N,) or (N, dim) values that must be finite.
        flag: (N,) bool, or None.

    Returns:
        Whether any element of `flag` is set.

    Raises:
        NonFiniteError: A value is not finite; names tensor, rows and columns.
    """
    facts = [torch.isfinite(values).all() for values in tensors.values()]
    if flag is not None:
        facts.append(flag.any())
    verdict: list[bool] = torch.stack(facts).tolist()
    for (name, values), finite in zip(tensors.items(), verdict, strict=False):
        if not finite:
            _raise_non_finite(owner, name, values)
    return flag is not None and verdict[-1]


def _raise_non_finite(owner: str, name: str, values: torch.Tensor) -> None:
    wrong = ~torch.isfinite(values)
    if values.ndim == 1:
        rows, columns = wrong.nonzero().flatten().tolist(), None
    else:
        rows = wrong.any(dim=1).nonzero().flatten().tolist()
        columns = wrong.any(dim=0).nonzero().flatten().tolist()
    where = f"rows {rows[:8]}" + (f", columns {columns[:8]}" if columns is not None else "")
    raise NonFiniteError(f"{owner}: {name} is not finite at {where}")
