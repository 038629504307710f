"""The contents of a replay as plain data and tensors, and the check that they fit before they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from unilab_core import nearest
from unilab_rl.state_parts import check_generator_state

__all__ = ["SLOT_PARTS", "STORED", "TERMINATED", "TRUNCATED", "check_state", "pack_state"]

STORED: Final = 1
"""Bit of a slot's code: it holds a transition."""
TERMINATED: Final = 2
"""Bit of a slot's code: the transition ended its episode for good."""
TRUNCATED: Final = 4
"""Bit of a slot's code: the episode was cut off after the transition."""

_VERSION = 1
_KNOWN = STORED | TERMINATED | TRUNCATED

SLOT_PARTS = ("rows", "codes", "order")
"""Parts with one entry for each slot, (N, S, ...); a state holds the leading slots that were ever written."""


def pack_state(parts: Mapping[str, torch.Tensor], described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contents of a replay, tensors as views.

    Args:
        parts: Its live tensors; those of `SLOT_PARTS` have the shape (N, S, ...).
        described: What is said beside them.
    """
    used = min(parts["rows"].shape[1], int(parts["position"].max()) + 1)
    held = {name: part[:, :used] if name in SLOT_PARTS else part for name, part in parts.items()}
    return {"version": _VERSION, **described, **held}


def check_state(
    state: Mapping[str, Any],
    parts: Mapping[str, torch.Tensor],
    described: Mapping[str, Any],
) -> int:
    """Checks that a state fits a replay.

    Args:
        state: What `pack_state` returned.
        parts: The live tensors of the replay.
        described: What it says of itself.

    Returns:
        How many leading slots the state holds.

    Raises:
        ValueError: Something is missing, unknown or of another shape, dtype or range.
    """
    _check_names(state, {"version", *parts, *described})
    if type(state["version"]) is not int or state["version"] != _VERSION:
        raise ValueError(f"replay state: has version {state['version']!r}, this version reads {_VERSION}")
    for name in ("groups", "num_actions", "num_envs", "capacity"):
        given, own = state[name], described[name]
        # The order of groups is the order of columns.
        if (
            not isinstance(given, type(own))
            or given != own
            or (isinstance(given, Mapping) and list(given) != list(own))
        ):
            raise ValueError(
                f"replay state: {name} is {given!r:.200}, expected {own!r}; it is of another run"
            )
    for name in ("num_adds", "reached"):
        if type(state[name]) is not int or state[name] < 0:
            raise ValueError(f"replay state: {name} is {state[name]!r:.40}, expected a count")
    used = _check_tensors(state, parts)
    _check_ranges(state, used)
    _check_codes(state, used)
    _check_counts(state)
    _check_generator(state["generator"], parts["rows"].device)
    return used


def _check_names(state: object, expected: set[str]) -> None:
    if not isinstance(state, Mapping):
        raise ValueError(f"replay state: is a {type(state).__name__}, expected a dict")
    for name in state:
        if name not in expected:
            raise ValueError(f"replay state: unknown entry {name!r}; {nearest(str(name), expected)}")
    if missing := sorted(expected - set(state)):
        raise ValueError(f"replay state: lacks {missing}")


def _check_tensors(state: Mapping[str, Any], parts: Mapping[str, torch.Tensor]) -> int:
    for name, part in parts.items():
        if not isinstance(state[name], torch.Tensor):
            raise ValueError(f"replay state: {name} is a {type(state[name]).__name__}, expected a tensor")
        if state[name].dtype != part.dtype:
            raise ValueError(f"replay state: {name} has dtype {state[name].dtype}, expected {part.dtype}")
    num_slots = parts["rows"].shape[1]
    used = int(state["rows"].shape[1]) if state["rows"].ndim == 3 else 0
    if not 1 <= used <= num_slots:
        raise ValueError(
            f"replay state: rows has shape {tuple(state['rows'].shape)}, expected (N, 1 to {num_slots}, columns)"
        )
    for name, part in parts.items():
        shape = tuple(part[:, :used].shape) if name in SLOT_PARTS else tuple(part.shape)
        if tuple(state[name].shape) != shape:
            raise ValueError(f"replay state: {name} has shape {tuple(state[name].shape)}, expected {shape}")
    return used


def _check_ranges(state: Mapping[str, Any], used: int) -> None:
    """Checks that every index which sampling takes from the state lies within the slots."""
    position, pushed, first = state["position"], state["pushed"], state["first"]
    capacity = state["capacity"]
    counts = pushed - first
    heads = (first >= 0) & (counts >= 0) & (counts <= capacity) & (pushed <= position)
    heads &= (counts > 0) | (pushed == 0)  # the newest is never dropped, so something is left to draw
    order = state["order"]
    inside = bool(heads.all()) and used == min(capacity + 1, int(position.max()) + 1)
    if not (inside and int(order.min()) >= 0 and int(order.max()) < used):
        raise ValueError("replay state: heads, counts or slots contradict each other; it is damaged")


def _check_codes(state: Mapping[str, Any], used: int) -> None:
    """Checks that each row's codes mark as stored exactly the slots that sampling draws from.

    A slot that is drawn but marked as empty is a window of no steps; one that is marked and never drawn would be
    counted as dropped when it is written over.
    """
    codes, order, first = state["codes"], state["order"], state["first"]
    if bool(((codes & ~_KNOWN) != 0).any()):
        raise ValueError(
            f"replay state: codes go up to {int(codes.max())}, expected {_KNOWN} at most; it is damaged"
        )
    counts = (state["pushed"] - first).unsqueeze(1)
    # The order is a ring of its own: of `capacity` + 1 places, from the oldest at `first` on.
    places = torch.arange(used, device=order.device) - first.unsqueeze(1)
    drawn = places.remainder_(state["capacity"] + 1) < counts
    slots = torch.zeros_like(order).scatter_add_(1, order.long(), drawn.to(order.dtype))
    wrong = (slots != (codes & STORED)) | ((codes != 0) & (slots == 0))
    if bool(wrong.any()):
        row, slot = (int(each) for each in wrong.nonzero()[0])
        raise ValueError(
            f"replay state: slot {slot} of row {row} has the code {int(codes[row, slot])} and is "
            f"{int(slots[row, slot])} times among the stored ones; it is damaged"
        )


def _check_counts(state: Mapping[str, Any]) -> None:
    """Checks that no more was ever held than was added: a batch is drawn once `reached` says that it can be."""
    pushed, added = state["pushed"], state["num_adds"]
    if int(pushed.max()) > added:
        raise ValueError(
            f"replay state: num_adds is {added}, but {int(pushed.max())} steps of a row are stored; it is damaged"
        )
    if state["reached"] > int(pushed.sum()):
        raise ValueError(
            f"replay state: reached is {state['reached']}, expected at most the {int(pushed.sum())} transitions that "
            "were stored; it is damaged"
        )


def _check_generator(given: object, device: torch.device) -> None:
    if not isinstance(given, Mapping) or set(given) != {"device", "state"}:
        raise ValueError(f"replay state: generator is {given!r:.60}, expected 'device' and 'state'")
    # The state of a generator of another kind of device is not used.
    own = device if given["device"] == device.type else None
    check_generator_state("replay state: the generator's state", own, given["state"])
