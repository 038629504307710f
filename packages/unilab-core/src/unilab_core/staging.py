"""The staging area of a reset: what the selected rows will hold, before anything is committed."""

from __future__ import annotations

import torch

from unilab_core.reset_selectors import ResetMaskBuffer
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload

__all__ = ["Staging"]


class Staging:
    """Full-width copies of generalised state; open only while a reset is being staged.

    Attributes:
        qpos: (N, Q) float32; meaningful at the selected rows while open.
        qvel: (N, V) float32; likewise.
        mask: (N,) bool, the selected rows while open.
    """

    def __init__(self, layout: ModelLayout, num_envs: int, device: torch.device) -> None:
        """Allocates the buffers."""
        self._default_qpos = torch.tensor(layout.default_qpos, dtype=torch.float32, device=device)
        self._default_qvel = torch.tensor(layout.default_qvel, dtype=torch.float32, device=device)
        self.qpos = self._default_qpos.expand(num_envs, -1).clone()
        self.qvel = self._default_qvel.expand(num_envs, -1).clone()
        self._mask_buffer = ResetMaskBuffer(num_envs, device)
        self.mask = self._mask_buffer.from_ids(torch.zeros(0, dtype=torch.int64, device=device))
        self._outside = torch.zeros((), dtype=torch.bool, device=device)
        self._ids: torch.Tensor | None = None

    @property
    def is_open(self) -> bool:
        """Whether a reset is being staged."""
        return self._ids is not None

    def open(self, ids: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Starts staging the rows `ids` from the default state.

        Args:
            ids: (K,) int64, ascending.
            qpos: (N, Q) the present state, which the other rows keep showing.
            qvel: (N, V) likewise.

        Raises:
            RuntimeError: A reset is being staged already.
        """
        if self.is_open:
            raise RuntimeError("a reset inside a reset: reset hooks and events must not call reset()")
        self.qpos.copy_(qpos)
        self.qvel.copy_(qvel)
        self.qpos[ids] = self._default_qpos
        self.qvel[ids] = self._default_qvel
        self.mask = self._mask_buffer.from_ids(ids)
        self._outside.zero_()
        self._ids = ids

    def check_rows(self, env_ids: torch.Tensor, owner: str) -> None:
        """Notes whether `env_ids` leaves the selected rows; `payload` raises then, so that no term synchronises.

        Raises:
            RuntimeError: No reset is being staged.
        """
        if self._ids is None:
            raise RuntimeError(f"{owner}: state is written by reset events only, inside a reset")
        if env_ids is not self._ids:
            self._outside |= ~self.mask[env_ids].all()

    def payload(self) -> ResetPayload:
        """Returns the selected rows.

        Raises:
            ValueError: Something was written outside the selected rows.
        """
        assert self._ids is not None
        if bool(self._outside):
            raise ValueError(
                "a reset event wrote rows that are not being reset; write only the env_ids it was given"
            )
        return ResetPayload(self._ids, self.qpos[self._ids], self.qvel[self._ids])

    def close(self) -> None:
        """Ends staging; idempotent."""
        self._ids = None
