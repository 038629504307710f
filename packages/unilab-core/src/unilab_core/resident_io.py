"""Reads and writes of a backend whose state lives on the device: live views, and nothing is transferred."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unilab_core.io import BackendIO, EnvTransferStats
from unisim.errors import CapabilityError
from unisim.reset import ResetPayload

__all__ = ["ResidentIO"]


class ResidentIO(BackendIO):
    """Live views on the backend's own device: nothing is transferred."""

    @property
    def serves_host(self) -> bool:
        """No: the state stays on its device."""
        return False

    @property
    def transfer_stats(self) -> EnvTransferStats:
        """Nothing, ever."""
        return EnvTransferStats()

    def _read_now(self, key: str) -> torch.Tensor:
        values = self._backend.get_state_views((key,))[key]
        if values.device != self._device:
            raise CapabilityError(
                f"the state lives on {values.device} and is never copied; the environment was asked for {self._device}"
            )
        return values

    def freeze(self, *, by_substep: bool) -> None:
        """The views are live already; the backend is told what a control step is made of."""
        self._backend.prepare_step(1 if by_substep else self._decimation)
        self.frozen = self.serves_step = True

    def step(self, ctrl: torch.Tensor) -> None:
        """Advances physics; the views follow."""
        self._backend.step_tensor(ctrl, self._decimation)

    def substep(self, ctrl: torch.Tensor) -> None:
        """Advances physics by one substep; the views follow."""
        self._backend.step_tensor(ctrl, 1)

    def read(self) -> None:
        """The views are current already."""
        self._changed()

    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits on the device."""
        self._backend.apply_reset(mask, payload)
        self._changed()

    def write_rows(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes on the device."""
        self._backend.write_rows(mask, payload)
        self._changed(payload)

    def count_verdict(self, num_bytes: int) -> None:
        """Nothing crosses a bridge."""

    def count_bad_rows(self) -> None:
        """Nothing crosses a bridge."""

    def host_columns(self, keys: Sequence[str], label: str) -> dict[str, torch.Tensor]:
        """Nothing is copied to the host."""
        raise CapabilityError(f"the state lives on {self._device} and is never copied to the host")

    def from_host(self, values: torch.Tensor, label: str) -> torch.Tensor:
        """Nothing comes from the host."""
        raise CapabilityError(f"the state lives on {self._device} and takes nothing from the host")
