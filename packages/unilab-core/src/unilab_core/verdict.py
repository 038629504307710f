"""Checks of actions and of a transition: few reads of the device, and messages that say where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

__all__ = [
    "Verdicts",
    "check_actions",
    "check_control",
    "check_flags",
    "check_rows",
    "check_timers",
    "describe_non_finite",
    "non_finite_rows",
]


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


def check_control(
    ctrl: object, num_envs: int, width: int, device: torch.device, owner: str, hook: str = "_control"
) -> torch.Tensor:
    """Returns what the hook returned, contiguous as every backend wants it, checked before anything changes.

    Raises:
        TypeError: Not a float32 tensor.
        ValueError: Not (N, C), one column per actuator, or on another device.
    """
    if not isinstance(ctrl, torch.Tensor) or ctrl.dtype != torch.float32:
        got = ctrl.dtype if isinstance(ctrl, torch.Tensor) else type(ctrl).__name__
        raise TypeError(f"{owner}: {hook} returned {got}, expected a float32 tensor")
    if tuple(ctrl.shape) != (num_envs, width) or ctrl.device != device:
        raise ValueError(
            f"{owner}: {hook} returned {tuple(ctrl.shape)} on {ctrl.device}, expected {(num_envs, width)} on {device}"
        )
    return ctrl.contiguous()


def check_rows(rows: object, dtype: torch.dtype, num_envs: int, owner: str) -> torch.Tensor:
    """Returns `rows` if it is (N,) of `dtype`: anything else would be broadcast or cast in silence.

    Raises:
        TypeError: Not a tensor of that dtype.
        ValueError: Another shape.
    """
    if not isinstance(rows, torch.Tensor) or rows.dtype != dtype:
        got = rows.dtype if isinstance(rows, torch.Tensor) else type(rows).__name__
        raise TypeError(f"{owner} returned {got}, expected {dtype}")
    if tuple(rows.shape) != (num_envs,):
        raise ValueError(f"{owner} returned shape {tuple(rows.shape)}, expected ({num_envs},)")
    return rows


def check_flags(flags: object, num_envs: int, owner: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns `flags` if they are two (N,) bool tensors, terminated and truncated.

    Raises:
        TypeError: Not a pair of bool tensors.
        ValueError: Another shape.
    """
    if not isinstance(flags, tuple | list) or len(flags) != 2:
        raise TypeError(f"{owner} returned {type(flags).__name__}, expected (terminated, truncated)")
    first, second = (check_rows(rows, torch.bool, num_envs, owner) for rows in flags)
    return first, second


def check_timers(timers: object, num_envs: int, device: torch.device, owner: str) -> dict[str, torch.Tensor]:
    """Returns `timers` if each is a bool tensor, one per row or one for all rows; never reads the device.

    Raises:
        TypeError: Not a dict of bool tensors.
        ValueError: A timer is neither (N,) nor 0-d, or on another device.
    """
    if not isinstance(timers, dict):
        raise TypeError(f"{owner} returned {type(timers).__name__}, expected a dict of bool tensors")
    for name, fires in timers.items():
        if not isinstance(fires, torch.Tensor) or fires.dtype != torch.bool:
            got = fires.dtype if isinstance(fires, torch.Tensor) else type(fires).__name__
            raise TypeError(f"{owner}: timer {name!r} is {got}, expected torch.bool")
        if tuple(fires.shape) not in ((num_envs,), ()) or fires.device != device:
            raise ValueError(
                f"{owner}: timer {name!r} is {tuple(fires.shape)} on {fires.device}, expected ({num_envs},) or () on "
                f"{device}"
            )
    return timers


class _Storage(NamedTuple):
    """Where the facts of a verdict are written: made once for each number of them."""

    norms: tuple[torch.Tensor, ...]
    all_norms: torch.Tensor
    facts: torch.Tensor
    finite: torch.Tensor
    by_rows: torch.Tensor
    by_all: torch.Tensor


class Verdicts:
    """Small vectors of facts about what is on the device: one read each."""

    def __init__(self, device: torch.device) -> None:
        """Starts without storage; `prepare` makes it, else the first verdict of its kind."""
        self._device = device
        self._kept: dict[tuple[int, int, int], _Storage] = {}

    def take(
        self, tensors: Mapping[str, torch.Tensor], flags: Sequence[torch.Tensor] = ()
    ) -> tuple[dict[str, bool], list[bool]]:
        """Reads one small vector.

        Args:
            tensors: Name to float32 values that should be finite.
            flags: (N,) or 0-d bool each.

        Returns:
            Whether all values of each tensor are finite, by name; and whether any element of each flag is set.
        """
        full = {name: values for name, values in tensors.items() if values.numel()}
        rows, single = [flag for flag in flags if flag.ndim], [flag for flag in flags if not flag.ndim]
        storage = self.prepare(len(full), len(rows), len(single))
        # Few operators, for this runs twice a step, and the norm that Torch computes fastest: it is NaN or infinite
        # where any value is, and nowhere else, for in float64 squares of float32 can be added up.
        for values, norm in zip(full.values(), storage.norms, strict=True):
            torch.linalg.vector_norm(values, 2, dtype=torch.float64, out=norm)
        if full:
            torch.lt(storage.all_norms, torch.inf, out=storage.finite)
        if rows:
            torch.any(torch.stack(rows), dim=1, out=storage.by_rows)
        if single:
            torch.stack(single, out=storage.by_all)
        read: list[bool] = storage.facts.tolist() if full or flags else []
        finite = dict.fromkeys(tensors, True) | dict(zip(full, read, strict=False))
        by_rows, by_all = iter(read[len(full) :]), iter(read[len(full) + len(rows) :])
        return finite, [next(by_rows if flag.ndim else by_all) for flag in flags]

    def prepare(self, tensors: int, rows: int = 0, single: int = 0) -> _Storage:
        """Makes the storage of verdicts on so many tensors and flags, (N,) and 0-d ones; once."""
        key = tensors, rows, single
        if key not in self._kept:
            # A buffer born in inference mode could never be written in place outside it.
            with torch.inference_mode(False):
                norms = torch.zeros(tensors, dtype=torch.float64, device=self._device)
                facts = torch.zeros(tensors + rows + single, dtype=torch.bool, device=self._device)
                self._kept[key] = _Storage(norms.unbind(), norms, facts, *facts.split_with_sizes(key))
        return self._kept[key]


def non_finite_rows(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns (N,) bool: rows in which any element of any tensor, (N,) or (N, dim), is not finite."""
    wrong = [~torch.isfinite(values.reshape(values.shape[0], -1)).all(dim=1) for values in tensors.values()]
    return torch.stack(wrong).any(dim=0)


def describe_non_finite(
    owner: str, tensors: Mapping[str, torch.Tensor], labels: Mapping[str, Sequence[str]]
) -> str:
    """Returns a message that names what is not finite: tensor, columns (by label where known) and rows."""
    parts = []
    for name, values in tensors.items():
        wrong = ~torch.isfinite(values.reshape(values.shape[0], -1))
        rows = wrong.any(dim=1).nonzero().flatten().tolist()
        if not rows:
            continue
        columns = wrong.any(dim=0).nonzero().flatten().tolist()
        names = [labels[name][c] for c in columns] if name in labels else columns
        where = "" if values.ndim == 1 else f", columns {names[:8]}"
        parts.append(f"{name} is not finite at rows {rows[:8]}{where}")
    return f"{owner}: " + "; ".join(parts)
