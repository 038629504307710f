"""The staging area: what rows will hold, before anything is committed. Reset and step writes share it."""

from __future__ import annotations

from typing import Literal

import torch

from unilab_core.reset_selectors import ResetMaskBuffer
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload

__all__ = ["Staging"]


class Staging:
    """Full-width copies of generalised state, and of the model fields that were declared.

    While a reset is staged, the selected rows start from the default state. In a step, events and commands may write
    any rows; the first write opens the area with the present state.

    Attributes:
        qpos: (N, Q) float32; meaningful while open.
        qvel: (N, V) float32; likewise.
        mask: (N,) bool, the rows being reset or written.
    """

    def __init__(
        self, layout: ModelLayout, num_envs: int, device: torch.device, model_fields: tuple[str, ...] = ()
    ) -> None:
        """Allocates the buffers."""
        self._n = num_envs
        self._device = device
        self._default_qpos = torch.tensor(layout.default_qpos, dtype=torch.float32, device=device)
        self._default_qvel = torch.tensor(layout.default_qvel, dtype=torch.float32, device=device)
        self.qpos = self._default_qpos.expand(num_envs, -1).clone()
        self.qvel = self._default_qvel.expand(num_envs, -1).clone()
        self._mask_buffer = ResetMaskBuffer(num_envs, device)
        self.mask = self._mask_buffer.from_ids(torch.zeros(0, dtype=torch.int64, device=device))
        self._outside = torch.zeros((), dtype=torch.bool, device=device)
        self._ids: torch.Tensor | None = None
        self._written: list[torch.Tensor] = []
        self._phase: Literal["closed", "reset", "startup", "step"] = "closed"
        self._present: tuple[torch.Tensor, torch.Tensor] | None = None
        # What randomisation starts from, (N, ...) per field: the model's own values, or those of startup events.
        self._baseline = {
            name: layout.fields[name]
            .nominal_tensor()
            .to(device)
            .expand(num_envs, *layout.fields[name].shape)
            .clone()
            for name in model_fields
        }
        self._model: dict[str, torch.Tensor] = {}

    @property
    def is_reset(self) -> bool:
        """Whether a reset (or startup) is being staged, so that only joint, root and model values are defined."""
        return self._phase in ("reset", "startup")

    @property
    def shows_state(self) -> bool:
        """Whether `qpos` and `qvel` here are what terms must see."""
        return self.is_reset or bool(self._written)

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
        self._outside.zero_()
        self._ids = ids
        self._model.clear()
        self._phase = "startup" if startup else "reset"

    def open_step(self, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Lets events and commands of a step write; copies the present state at the first write only."""
        self._present = (qpos, qvel)
        self._written.clear()
        self._phase = "step"

    def close(self) -> None:
        """Ends any phase and drops what was not committed; idempotent."""
        self._ids = None
        self._present = None
        self._written.clear()
        self._model.clear()
        self._phase = "closed"

    # ------------------------------------------------------------------ writing

    def check_rows(self, env_ids: torch.Tensor, owner: str) -> None:
        """Admits a write of rows; leaving the rows being reset is noted here and raised by `reset_payload`.

        Raises:
            RuntimeError: Neither a reset is being staged nor may events of a step write now.
        """
        if self._phase == "closed":
            raise RuntimeError(f"{owner}: state is written by events and commands only, in a reset or a step")
        if self._phase == "step":
            if not self._written:
                assert self._present is not None
                self.qpos.copy_(self._present[0])
                self.qvel.copy_(self._present[1])
            self._written.append(env_ids)
        elif env_ids is not self._ids:
            # No term waits for the device: the note is read once, with the payload.
            self._outside |= ~self.mask[env_ids].all()

    def model_values(self, field: str, owner: str) -> torch.Tensor:
        """Returns (N, ...) values of a model field: its baseline, or what was staged since the phase began.

        Raises:
            RuntimeError: The field was not declared, or no reset is being staged.
        """
        if field not in self._baseline:
            raise RuntimeError(
                f"{owner}: model field {field!r} was not declared before the backend was made; "
                f"put @writes({field!r}) on the term"
            )
        if not self.is_reset:
            raise RuntimeError(f"{owner}: model fields are written by reset and startup events only")
        if field not in self._model:
            self._model[field] = self._baseline[field].clone()  # once per reset that randomises it
        return self._model[field]

    # ------------------------------------------------------------------ payloads

    def reset_payload(self) -> ResetPayload:
        """Returns the rows being reset.

        Raises:
            ValueError: Something was written outside them.
        """
        ids = self._ids
        assert ids is not None
        if bool(self._outside):
            raise ValueError(
                "a reset event wrote rows that are not being reset; write only the env_ids it was given"
            )
        model = {name: values[ids] for name, values in self._model.items()}
        return ResetPayload(ids, self.qpos[ids], self.qvel[ids], model=model)

    def step_payload(self) -> ResetPayload | None:
        """Returns what events and commands of this step wrote, each row once; None if nothing was."""
        if not self._written:
            return None
        touched = torch.zeros(self._n, dtype=torch.bool, device=self._device)
        for ids in self._written:
            touched[ids] = True
        rows = touched.nonzero().flatten()
        self.mask = touched
        return ResetPayload(rows, self.qpos[rows], self.qvel[rows])

    def keep_startup_values(self) -> None:
        """Makes the staged model values the baseline of all later randomisation."""
        for name, values in self._model.items():
            self._baseline[name].copy_(values)
