"""The staging area: what rows will hold, before anything is committed. Reset and step writes share it."""

from __future__ import annotations

from typing import Literal

import torch

from unilab_core.entity_cfg import Index
from unilab_core.model_staging import FieldPart, ModelStaging
from unilab_core.reset_selectors import ResetMaskBuffer
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload

__all__ = ["Staging"]

Part = Literal["qpos", "qvel"]


class Staging:
    """Full-width copies of generalised state, and of the model fields that were declared.

    While a reset is staged, the selected rows start from the default state. In a step, events and commands may write
    any rows; the first write of positions or of velocities opens its part of the area with the present state.

    Attributes:
        qpos: (N, Q) float32; meaningful where `shows("qpos")`. The same tensor throughout.
        qvel: (N, V) float32; likewise.
        mask: (N,) bool, the rows being reset or written.
        model: The declared model fields.
        is_reset: Whether a reset (or startup) is being staged, so that only joint, root and model values are defined.
        changes: How often each part of the state that terms are shown has changed by what was staged, or dropped.
    """

    def __init__(
        self, layout: ModelLayout, num_envs: int, device: torch.device, model_fields: tuple[str, ...] = ()
    ) -> None:
        """Allocates the buffers."""
        self._n = num_envs
        self._default_qpos = torch.tensor(layout.default_qpos, dtype=torch.float32, device=device)
        self._default_qvel = torch.tensor(layout.default_qvel, dtype=torch.float32, device=device)
        self.qpos = self._default_qpos.expand(num_envs, -1).clone()
        self.qvel = self._default_qvel.expand(num_envs, -1).clone()
        self.model = ModelStaging(layout, num_envs, device, model_fields)
        self._mask_buffer = ResetMaskBuffer(num_envs, device)
        self._no_rows = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.mask = self._no_rows
        self._all_rows = torch.arange(num_envs, device=device)
        self._outside: torch.Tensor | None = None
        """Whether rows were written that may not be, where asking at once would make a term wait; None: none were."""
        self._buffers: dict[Part, torch.Tensor] = {"qpos": self.qpos, "qvel": self.qvel}
        self._views: dict[tuple[Part, int, int], torch.Tensor] = {}
        self._ids: torch.Tensor | None = None
        self._written = False
        """Whether a step has admitted a write."""
        self._parts: set[Part] = set()
        self.changes: dict[Part, int] = {"qpos": 0, "qvel": 0}
        self._phase: Literal["closed", "reset", "startup", "step"] = "closed"
        self.is_reset = False
        self._present: dict[Part, torch.Tensor] = {}

    @property
    def shows_state(self) -> bool:
        """Whether anything here is what terms must see, so that what follows from the columns may be outdated."""
        return self.is_reset or self._written

    def shows(self, part: Part) -> bool:
        """Whether it is the staged `qpos` or `qvel` that terms must see: in a step only what was written is here."""
        return self.is_reset or part in self._parts

    @property
    def written_parts(self) -> frozenset[Part]:
        """Which parts of the state events and commands of this step wrote."""
        return frozenset(self._parts)

    # ------------------------------------------------------------------ phases

    def open_reset(
        self, ids: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor, *, startup: bool = False
    ) -> None:
        """Starts staging the rows `ids`, (K,) int64 ascending, from the default state; others show the present one."""
        self.qpos.copy_(qpos)
        self.qvel.copy_(qvel)
        self.qpos[ids] = self._default_qpos
        self.qvel[ids] = self._default_qvel
        self.mask = self._mask_buffer.from_ids(ids)
        self._outside = None
        self._ids = ids
        self.model.begin()
        self._phase = "startup" if startup else "reset"
        self.is_reset = True

    def open_step(self, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Lets events and commands of a step write; of the present state, what they write is copied when they do."""
        self._present = {"qpos": qpos, "qvel": qvel}
        self._written = False
        self._parts.clear()
        self._outside = None
        self._phase = "step"

    def committed(self) -> None:
        """Ends a step whose writes the columns now show: nothing of what terms are shown changes."""
        self._parts.clear()
        self.close()

    def close(self) -> None:
        """Ends any phase and drops what was not committed; idempotent."""
        for part in self._parts:
            self.changes[part] += 1
        self._ids = None
        self._present = {}
        self._written = False
        self._parts.clear()
        self._phase = "closed"
        self.is_reset = False

    # ------------------------------------------------------------------ writing

    def check_rows(self, env_ids: torch.Tensor, owner: str, *parts: Part) -> None:
        """Admits a write of parts of the state of rows; leaving the rows being reset is raised by `reset_payload`.

        Raises:
            TypeError: `env_ids` is no 1-D int64 tensor.
            ValueError: `env_ids` is out of range or on another device.
            RuntimeError: Neither a reset is being staged nor may events of a step write now.
        """
        if self._phase == "step":
            self._mark_rows(env_ids, owner)
            for part in parts:
                if part not in self._parts:
                    self._buffers[part].copy_(self._present[part])
                    self._parts.add(part)
            return
        self._check_ids(env_ids, owner)
        if self._phase == "reset":
            self._note_rows(env_ids)
        elif self._phase == "startup":
            raise RuntimeError(f"{owner}: startup events write model fields; state is that of each reset")
        else:
            raise RuntimeError(f"{owner}: state is written by events and commands only, in a reset or a step")

    def _mark_rows(self, env_ids: torch.Tensor, owner: str) -> None:
        """Checks rows that a step writes, as `_check_ids` does, and adds them to the mask.

        The mask is a new one every time: what is refused halfway has marked no row of the one before.
        """
        marked = self.mask if self._written else self._no_rows
        _check_kind(env_ids, owner, marked.device)
        if marked.device.type != "cpu":
            self._check_ids(env_ids, owner)
            self.mask = marked.index_fill(0, env_ids, True)
        else:
            try:
                # In host memory this refuses itself what is out of range: checking first would take three operators.
                self.mask = marked.scatter(0, env_ids, True)
            except RuntimeError:
                self._check_ids(env_ids, owner)
                raise
        self._written = True

    def _check_ids(self, env_ids: object, owner: str) -> None:
        """Checks row ids of a write; where asking would make a term wait for the device, the range is noted instead.

        Raises:
            TypeError: Not a 1-D int64 tensor; a mask says how to convert it.
            ValueError: Out of range, or on another device.
        """
        env_ids = _check_kind(env_ids, owner, self.mask.device)
        if env_ids is self._ids or not env_ids.numel():
            return
        low, high = env_ids.aminmax()
        if env_ids.device.type != "cpu":
            self._note((low < 0) | (high >= self._n))
        elif int(low) < 0 or int(high) >= self._n:
            wrong = int(low) if int(low) < 0 else int(high)
            raise ValueError(f"{owner}: env_ids holds {wrong}; expected 0 <= id < num_envs = {self._n}")

    def _note(self, outside: torch.Tensor) -> None:
        """Adds to what is read once, with the payload, so that no term waits for the device: 0-d bool."""
        self._outside = outside if self._outside is None else self._outside | outside

    def check_wrench(self, env_ids: torch.Tensor, owner: str) -> None:
        """Admits a write of wrenches of rows: they act from the next step on, and a reset lets go of them.

        Raises:
            TypeError: `env_ids` is no 1-D int64 tensor.
            ValueError: `env_ids` is out of range or on another device.
            RuntimeError: Events and commands of a step may not write now.
        """
        if self._phase != "step":
            raise RuntimeError(
                f"{owner}: wrenches are written by events and commands of a step only; rows that are reset have none"
            )
        self._check_ids(env_ids, owner)

    def check_values(self, values: object, shape: tuple[int, ...], owner: str) -> None:
        """Checks what is to be written, which torch would broadcast or cast in silence.

        Raises:
            TypeError: Not a float32 tensor.
            ValueError: Another shape.
        """
        if not isinstance(values, torch.Tensor) or values.dtype != torch.float32:
            got = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise TypeError(f"{owner} got {got}, expected a float32 tensor of shape {shape}")
        if tuple(values.shape) != shape:
            raise ValueError(f"{owner} got shape {tuple(values.shape)}, expected {shape}")

    def _note_rows(self, env_ids: torch.Tensor) -> None:
        if env_ids is not self._ids:
            self._note(~self.mask[env_ids].all())

    def write(self, part: Part, env_ids: torch.Tensor, columns: Index, values: torch.Tensor) -> None:
        """Stages checked values, (K, C) float32, of rows that `check_rows` admitted, (K,), and of C columns."""
        self.changes[part] += 1
        if not isinstance(columns, slice):
            self._buffers[part][env_ids[:, None], columns] = values
            return
        key = part, columns.start, columns.stop
        view = self._views.get(key)
        if view is None:  # the buffers stay, and so do views of them
            view = self._views[key] = self._buffers[part][:, columns]
        view.index_copy_(0, env_ids, values)

    def model_values(self, field: str, env_ids: torch.Tensor, part: FieldPart, owner: str) -> torch.Tensor:
        """Returns (K, E, ...) values of a model field to randomise from; outside of a reset what the rows hold.

        Raises:
            KeyError: No such field can differ per row; the message lists the nearest.
            RuntimeError: The field was not declared.
            ValueError: It has no such column.
        """
        self.model.check_field(field, part, owner)
        return self.model.values(field, env_ids, part, staging=self.is_reset)

    def write_model(
        self, field: str, values: torch.Tensor, env_ids: torch.Tensor, part: FieldPart, owner: str
    ) -> None:
        """Stages (K, E, ...) values of a model field.

        Raises:
            KeyError: No such field can differ per row; the message lists the nearest.
            RuntimeError: The field was not declared, or no reset is being staged.
            TypeError: The values are no float32 tensor.
            ValueError: The values have another shape, the field has no such column, or a row is out of range or on
                another device.
        """
        self.model.check_field(field, part, owner)
        if not self.is_reset:
            raise RuntimeError(f"{owner}: model fields are written by reset and startup events only")
        self._check_ids(env_ids, owner)
        self._note_rows(env_ids)
        self.model.write(field, values, env_ids, part, owner)

    # ------------------------------------------------------------------ payloads

    def reset_payload(self) -> ResetPayload:
        """Returns the rows being reset.

        Raises:
            ValueError: Something was written outside them.
        """
        ids = self._ids
        assert ids is not None
        if self._outside is not None and bool(self._outside):
            raise ValueError(
                "a reset event wrote rows that are not being reset; write only the env_ids it was given"
            )
        qpos, qvel = (part.index_select(0, ids) for part in (self.qpos, self.qvel))
        return ResetPayload(ids, qpos, qvel, model=self.model.payload(ids))

    def step_payload(self) -> ResetPayload | None:
        """Returns what events and commands of this step wrote, each row once; None if nothing was.

        Positions travel only if one was written: a push must not round the positions of its rows to float32.
        """
        if not self._written:
            return None
        if self._outside is not None and bool(self._outside):
            raise ValueError("an event or command of the step wrote rows that do not exist")
        rows = torch.masked_select(self._all_rows, self.mask)
        if not rows.numel():
            return None
        return ResetPayload(
            rows,
            self.qpos.index_select(0, rows) if "qpos" in self._parts else None,
            self.qvel.index_select(0, rows) if "qvel" in self._parts else None,
        )


def _check_kind(env_ids: object, owner: str, device: torch.device) -> torch.Tensor:
    """Returns `env_ids` if they are a 1-D int64 tensor on `device`.

    Raises:
        TypeError: They are no such tensor; a mask says how to convert it.
        ValueError: They are on another device.
    """
    if isinstance(env_ids, torch.Tensor) and env_ids.dtype == torch.int64 and env_ids.ndim == 1:
        if env_ids.device != device:
            raise ValueError(
                f"{owner}: env_ids is on {env_ids.device}, expected {device}; pass the env_ids the term was given"
            )
        return env_ids
    is_mask = isinstance(env_ids, torch.Tensor) and env_ids.dtype == torch.bool
    remedy = (
        "convert the mask: mask.nonzero().flatten()" if is_mask else "pass the env_ids the term was given"
    )
    raise TypeError(f"{owner}: env_ids is no 1-D int64 tensor of rows; {remedy}")
