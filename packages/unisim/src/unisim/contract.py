"""SimBackend: the only door to physics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution
from unisim.model_layout import ModelLayout
from unisim.packets import HostBridgeSpec
from unisim.reset import ResetPayload

if TYPE_CHECKING:
    from unisim.transfer import HostBridgeTransferPlan

__all__ = ["Declared", "SimBackend"]


@dataclass(frozen=True)
class Declared:
    """What will be written or recorded beyond state, told before the model is compiled."""

    model_fields: tuple[str, ...] = ()
    wrench_bodies: tuple[str, ...] = ()
    substep_sensors: tuple[str, ...] = ()


class SimBackend(ABC):
    """N rows of one model behind tensors.

    Quaternions are wxyz. Velocities say their frame (`_w` world, `_b` body) and belong to the body frame, not the
    centre of mass. After `close`, every method raises RuntimeError.
    """

    num_envs: int
    """N, the number of rows."""

    @property
    @abstractmethod
    def model_layout(self) -> ModelLayout:
        """Names, indices, ranges and defaults of the model; stable, no live engine objects."""

    @abstractmethod
    def tensor_execution(self) -> TensorExecution:
        """Where the authoritative state lives."""

    @abstractmethod
    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What this backend can do."""

    @abstractmethod
    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Each optimisation: requested, enabled, else why not."""

    @abstractmethod
    def get_state_views(self, fields: Sequence[str] | None = None) -> Mapping[str, torch.Tensor]:
        """Returns state by field name, (N, ...) float32, read-only.

        HOST_BRIDGE: copies that a later step does not rewrite. DEVICE_RESIDENT: stable live tensors.

        Raises:
            KeyError: An unknown field.
        """

    @abstractmethod
    def get_sensor_view(self, name: str) -> torch.Tensor:
        """Returns the values of one sensor, (N, dim) float32, read-only; a copy on HOST_BRIDGE.

        Raises:
            KeyError: An unknown sensor; the message lists the nearest names.
        """

    @abstractmethod
    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """Advances every row by `nsteps` substeps under one control.

        Afterwards position- and velocity-stage reads are fresh at the new state; acceleration-stage reads describe
        the last integrated substep of their own row.

        Args:
            ctrl: (N, A) contiguous float32 on an accepted device.
            nsteps: Number of substeps, at least one.

        Raises:
            TypeError: `ctrl` is not a float32 tensor.
            ValueError: Wrong shape, device or layout, or `nsteps` < 1.
            NonFiniteError: A control is NaN or infinite; physics has not moved.
        """

    @abstractmethod
    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits one reset: selected rows restart from the payload, the others stay bitwise unchanged.

        Time, actuator state, applied forces and warm start are cleared; afterwards every declared read of the
        selected rows is fresh, the acceleration stage included (a full forward with the reset control).

        Args:
            reset_mask: (N,) bool, true exactly at the payload's rows.
            payload: What the rows shall hold.

        Raises:
            ResetRejectedError: The payload is not valid; nothing was written.
        """

    @abstractmethod
    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state of selected rows mid-episode (a push, a teleport) and refreshes their reads.

        Time, control, actuator state and warm start are kept.

        Raises:
            ResetRejectedError: The payload is not valid; nothing was written.
        """

    @abstractmethod
    def set_state_tensor(self, env_ids: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Writes the full state of rows (k,); cold path. Shapes (k, Q) and (k, V) float32."""

    @abstractmethod
    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: rows with a non-finite state or an engine warning since their last reset."""

    @abstractmethod
    def snapshot(self) -> Any:  # noqa: ANN401 - opaque to everyone but the backend that made it
        """Returns everything needed to continue bit for bit, in engine precision; cold path."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:  # noqa: ANN401 - opaque
        """Puts back what `snapshot` returned; cold path."""

    @abstractmethod
    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan through which a HOST_BRIDGE backend is driven.

        Raises:
            CapabilityError: The backend is DEVICE_RESIDENT, or `spec` asks for what it cannot read.
        """

    @abstractmethod
    def render(self, row: int) -> torch.Tensor:
        """Returns an (H, W, 3) uint8 image of one row; cold path."""

    @abstractmethod
    def export_model(self, row: int) -> str:
        """Returns the model of one row, its randomised values included, as MJCF XML; cold path."""

    @abstractmethod
    def close(self) -> None:
        """Frees threads and memory; idempotent."""
