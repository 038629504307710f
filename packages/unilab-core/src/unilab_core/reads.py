"""Handles through which terms read bodies, sites and sensors; reading a field registers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from unilab_core.kept_reads import KeptReads, Source
from unisim.packets import ACCELERATION_FIELDS, BODY_FIELDS, STATE_FIELDS

__all__ = ["BodyHandle", "check_keys", "declared_reads", "reads"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__unilab_reads__"
_FIELDS: dict[str, tuple[slice, Source]] = {
    name: (slice(*place), "pose" if name in ("pos_w", "quat_w") else "columns")
    for name, place in BODY_FIELDS.items()
}
_PLAIN = (*STATE_FIELDS, *ACCELERATION_FIELDS)
_NAMED = ("sensor", "body", "site", "substep")


def reads(*keys: str) -> Callable[[F], F]:
    """Declares reads that a branch of a term would hide from recording.

    Args:
        keys: `"sensor:<name>"`, `"body:<name>"`, `"site:<name>"`, `"substep:<sensor>"`, names as in the composed model,
            `"qacc"` or `"actuator_force"`. The state (`"qpos"`, `"qvel"`, `"ctrl"`) is read anyway.

    Raises:
        ValueError: A key of another form.
    """
    check_keys(keys, "reads")

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, (*declared_reads(function), *keys))
        return function

    return mark


def check_keys(keys: Sequence[str], owner: str) -> None:
    """Checks that keys have the form of those of a read packet; whether the model has them shows when they are read.

    Raises:
        ValueError: A key of another form.
    """
    for key in keys:
        kind, _, name = key.partition(":")
        if key not in _PLAIN and not (kind in _NAMED and name):
            forms = ", ".join(repr(form) for form in (*_PLAIN, *(f"{named}:<name>" for named in _NAMED)))
            raise ValueError(f"{owner}: {key!r} is none of {forms}")


def declared_reads(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the keys declared on a term by `@reads`."""
    keys: tuple[str, ...] = getattr(function, _ATTRIBUTE, ())
    return keys


class BodyHandle:
    """World pose and velocity of K bodies or sites; making the handle reads nothing, reading a field does.

    What a field returned is rewritten with later values, at the latest when it is read again: clone what a later step
    needs.
    """

    def __init__(self, column: Callable[[str], torch.Tensor], keys: Sequence[str], kept: KeptReads) -> None:
        """Remembers where the columns come from.

        Args:
            column: Returns the columns of a key.
            keys: `"body:..."` or `"site:..."`, K of them.
            kept: Keeps what is derived from columns until they change.
        """
        self._column = column
        self._keys = tuple(keys)
        self._kept = kept

    def _field(self, name: str) -> torch.Tensor:
        return self._kept.side_by_side((name, self._keys), self._columns, *_FIELDS[name])

    def _columns(self) -> list[torch.Tensor]:
        if not self._keys:
            raise ValueError("a handle of no body and no site was read; name one that the entity has")
        return [self._column(key) for key in self._keys]

    @property
    def pos_w(self) -> torch.Tensor:
        """(N, K, 3) position of the frame in the world, m; to be read only."""
        return self._field("pos_w")

    @property
    def quat_w(self) -> torch.Tensor:
        """(N, K, 4) orientation in the world, wxyz; likewise."""
        return self._field("quat_w")

    @property
    def lin_vel_w(self) -> torch.Tensor:
        """(N, K, 3) velocity of the frame's origin in the world, m/s; likewise."""
        return self._field("lin_vel_w")

    @property
    def ang_vel_w(self) -> torch.Tensor:
        """(N, K, 3) angular velocity in the world, rad/s; likewise."""
        return self._field("ang_vel_w")
