"""The payload of a reset or a row write, and its validation before anything is committed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import torch

from unisim.errors import ResetRejectedError
from unisim.model_layout import ModelLayout
from unisim.randomization import check_model_values

__all__ = [
    "QUATERNION_TOLERANCE",
    "ResetPayload",
    "Validation",
    "all_finite",
    "check_kinds",
    "ensure_valid",
    "validate_payload",
]

QUATERNION_TOLERANCE = 1e-3
"""How far the norm of a written quaternion may be from one."""

_Parts = tuple[tuple[str, torch.Tensor], ...]
"""Names and tensors of a payload, in packet order."""


def all_finite(values: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite: one operator and one read where all is well.

    A sum is finite only if every value is. One that overflowed says nothing of the values, so they are looked at.
    """
    return math.isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def _same_kind(new: torch.Tensor, old: torch.Tensor) -> bool:
    return new.shape == old.shape and new.dtype == old.dtype and new.device == old.device


@dataclass(frozen=True)
class Validation:
    """What was found valid, for which model and declaration: copies, so that a later change cannot pass for it.

    Comparing costs a fraction of checking. Version counters would be cheaper still, but the tensors of a reset in
    inference mode have none, and writes through NumPy do not count.
    """

    layout: ModelLayout
    num_envs: int
    declared: tuple[str, ...]
    parts: _Parts
    """Of the payload, row ids included."""

    def covers(
        self, payload: ResetPayload, layout: ModelLayout, num_envs: int, declared: tuple[str, ...]
    ) -> bool:
        """Whether a payload holds the same values for the same rows of the same model."""
        same = self.layout is layout and self.num_envs == num_envs and self.declared == declared
        return same and self.holds(payload)

    def holds(self, payload: ResetPayload) -> bool:
        """Whether a payload holds the values that were checked, on the device where they were."""
        given, pairs = payload.all_parts(), []
        if len(given) != len(self.parts):
            return False
        for (name, new), (known, old) in zip(given, self.parts, strict=True):
            if name != known or not _same_kind(new, old):
                return False
            if new is not old:
                pairs.append((new, old))
        if payload.env_ids.device.type == "cpu":
            return all(torch.equal(new, old) for new, old in pairs)
        # One answer for all: each would make the host wait for the device.
        differ = [(new != old).any() for new, old in pairs]
        return not differ or not bool(torch.stack(differ).any())

    def moved_to(self, host: ResetPayload) -> Validation:
        """Returns what holds for the values that `holds` found, now that a transfer has brought them to `host`.

        It is about those very tensors, for as long as nobody but who moved them can write them: copies on both sides
        would be the second transfer that a reset must not make.
        """
        return replace(self, parts=host.all_parts())


@dataclass
class ResetPayload:
    """What selected rows shall hold: k rows of state, control and model values.

    Attributes:
        env_ids: (k,) int64, ascending and unique.
        qpos: (k, Q) float32 generalised positions (m, rad, quaternions wxyz), or None for the defaults.
        qvel: (k, V) float32 generalised velocities, or None for the defaults.
        ctrl: (k, A) float32 controls, or None for the control that holds the reset pose.
        model: Model field name to (k, ...) float32 values.
        validation: What `validate_payload` remembers; the door of a backend checks again what differs from it. Written
            by nobody else, but for a transfer plan that moves the payload.
    """

    env_ids: torch.Tensor
    qpos: torch.Tensor | None = None
    qvel: torch.Tensor | None = None
    ctrl: torch.Tensor | None = None
    model: Mapping[str, torch.Tensor] = field(default_factory=dict)
    validation: Validation | None = field(default=None, init=False, repr=False, compare=False)

    def detached(self) -> ResetPayload:
        """Returns this payload, or where a part requires grad one of the same values that require none."""
        given = self.parts()
        if not any([values.requires_grad for _, values in given]):
            return self
        parts = {name: values.detach() for name, values in given}
        state = {name: parts.pop(name, None) for name in ("qpos", "qvel", "ctrl")}
        plain = ResetPayload(self.env_ids, **state, model=parts)
        plain.validation = self.validation
        return plain

    def all_parts(self) -> _Parts:
        """Returns the row ids and the tensors that are present, in packet order."""
        return (("env_ids", self.env_ids), *self.parts())

    def parts(self) -> _Parts:
        """Returns the tensors that are present, in packet order."""
        found: list[tuple[str, torch.Tensor]] = []
        if self.qpos is not None:
            found.append(("qpos", self.qpos))
        if self.qvel is not None:
            found.append(("qvel", self.qvel))
        if self.ctrl is not None:
            found.append(("ctrl", self.ctrl))
        return (*found, *self.model.items())


def check_kinds(owner: str, payload: object, **others: object) -> None:
    """Refuses what is not made of tensors, before anything else looks at it.

    Raises:
        ResetRejectedError: The payload is no `ResetPayload`, or one of its parts or of `others` is no tensor.
    """
    if not isinstance(payload, ResetPayload):
        _reject(owner, f"payload is {type(payload).__name__}, expected a ResetPayload")
    if not isinstance(payload.model, Mapping):
        _reject(
            owner, f"model is {type(payload.model).__name__}, expected a mapping of field names to tensors"
        )
    for name, value in (*others.items(), ("env_ids", payload.env_ids), *payload.parts()):
        if not isinstance(value, torch.Tensor):
            _reject(owner, f"{name} is {type(value).__name__}, expected a torch.Tensor")


def _reject(owner: str, message: str) -> NoReturn:
    raise ResetRejectedError(f"{owner}: {message}; nothing was written")


def _copied(values: torch.Tensor) -> torch.Tensor:
    return (values.detach() if values.requires_grad else values).clone()


def _place(indices: list[int]) -> str:
    return str(indices[0]) if len(indices) == 1 else str(tuple(indices))


def validate_payload(
    payload: ResetPayload,
    layout: ModelLayout,
    *,
    num_envs: int,
    owner: str,
    declared: tuple[str, ...] = (),
    rows_are_valid: bool = False,
) -> None:
    """Checks a whole payload before any of it is written, and remembers on it that and what it has checked.

    So it is checked once, on whatever device it is: a backend that gets it compares, and checks only what has changed.

    Args:
        payload: What shall be written.
        layout: The model it is written to.
        num_envs: Number of rows of the backend.
        owner: Who asks, for the error message.
        declared: The model fields that may be written.
        rows_are_valid: Whether the row ids need no check, for they were chosen or checked by the caller.

    Raises:
        ResetRejectedError: No tensors, wrong shape, dtype or row ids, a non-finite number, a quaternion that is not
            a unit quaternion, or a model field that was not declared or whose values are not physical.
    """
    check_kinds(owner, payload)
    if not rows_are_valid:
        _check_ids(payload.env_ids, num_envs, owner)
    _check_values(payload, layout, owner, declared)
    copies = tuple((name, _copied(values)) for name, values in payload.all_parts())
    payload.validation = Validation(layout, num_envs, declared, copies)


def ensure_valid(
    payload: ResetPayload,
    layout: ModelLayout,
    *,
    num_envs: int,
    owner: str,
    declared: tuple[str, ...] = (),
    selected: torch.Tensor | None = None,
) -> None:
    """Checks a payload unless it is to the value what `validate_payload` has checked.

    Arguments and errors are those of `validate_payload`, but for the rows that a mask selects.

    Args:
        selected: (k,) int64, the rows at which the mask of a commit is true, ascending; the payload's row ids must be
            these. None where there is no mask.

    Raises:
        ResetRejectedError: As `validate_payload`, or the mask selects other rows.
        AttributeError: Not made of tensors; `check_kinds` comes before.
    """
    ids = payload.env_ids
    # What a mask selects is ascending, unique and in range: to be equal to it says all that is to be said of row ids.
    if selected is None or ids.dtype != torch.int64 or not torch.equal(ids, selected):
        _check_ids(ids, num_envs, owner)
        if selected is not None:
            _reject(owner, "the mask is not true exactly at the payload's env_ids")
    known = payload.validation
    if known is None or not known.covers(payload, layout, num_envs, declared):
        _check_values(payload, layout, owner, declared)


def _check_ids(ids: torch.Tensor, num_envs: int, owner: str) -> None:
    if ids.dtype != torch.int64 or ids.ndim != 1:
        _reject(owner, f"env_ids is {ids.dtype} of shape {tuple(ids.shape)}, expected 1-D int64")
    if ids.numel():
        if int(ids[0]) < 0 or int(ids[-1]) >= num_envs:
            _reject(owner, f"env_ids {ids.tolist()[:8]} out of range, expected 0 <= id < {num_envs}")
        if ids.numel() > 1 and bool((ids[1:] <= ids[:-1]).any()):
            _reject(owner, f"env_ids {ids.tolist()[:8]} are not ascending and unique")


def _check_values(payload: ResetPayload, layout: ModelLayout, owner: str, declared: tuple[str, ...]) -> None:
    """Checks everything but the row ids, which are valid."""
    ids = payload.env_ids
    state = {"qpos": layout.nq, "qvel": layout.nv, "ctrl": layout.nu}
    for name in payload.model:
        if name not in declared:
            _reject(owner, f"model field {name!r} was not declared when the backend was made")
    for name, values in payload.parts():
        is_field = name in payload.model
        expected = (ids.numel(), *(layout.fields[name].shape if is_field else (state[name],)))
        if values.dtype != torch.float32 or values.shape != expected:
            _reject(
                owner, f"{name} is {values.dtype} {tuple(values.shape)}, expected torch.float32 {expected}"
            )
        if not all_finite(values):
            row, *place = torch.nonzero(~torch.isfinite(values))[0].tolist()
            value = float(values[(row, *place)])
            _reject(owner, f"{name} of row {int(ids[row])}, column {_place(place)} is {value}")
        if is_field and (found := check_model_values(name, values, layout.fields[name])):
            _reject(owner, f"model field {name!r} of row {int(ids[found[0]])}: {found[1]}")
    if payload.qpos is not None:
        _check_quaternions(payload.qpos, ids, layout, owner)


def _check_quaternions(qpos: torch.Tensor, ids: torch.Tensor, layout: ModelLayout, owner: str) -> None:
    if not ids.numel():
        return
    for joint in layout.joints:
        if joint.kind not in ("free", "ball"):
            continue
        stop = joint.qpos_start + joint.qpos_dim
        norm = torch.linalg.vector_norm(qpos[:, stop - 4 : stop], dim=-1)
        # Of numbers that are finite, which was checked before, this is the largest distance from one.
        if torch.linalg.vector_norm(norm - 1.0, torch.inf).item() > QUATERNION_TOLERANCE:
            row = int(((norm - 1.0).abs() > QUATERNION_TOLERANCE).nonzero()[0])
            _reject(
                owner,
                f"quaternion of joint {joint.name!r}, row {int(ids[row])} has norm {float(norm[row]):.4g}",
            )
