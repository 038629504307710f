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
    from unisim.render import CameraCfg
    from unisim.transfer import HostBridgeTransferPlan

__all__ = ["Declared", "SimBackend"]


@dataclass(frozen=True)
class Declared:
    """What will be written or recorded beyond state, told before the model is compiled.

    Attributes:
        model_fields: Model fields that may differ per row; see `unisim.randomization.MODEL_FIELDS`.
        wrench_bodies: Bodies that a control pushes, by name or full-match regular expression of names in the composed
            model, for example `"robot/.*_calf"`; the world is none. A backend resolves them in the order of its model,
            each body once: six more control columns each, force (N) and torque (N m) in world axes at the body's
            centre of mass.
        substep_sensors: Sensors whose value after each substep of a control step is recorded, oldest first.
        decimation: Substeps of a control step, the length of that record. A plan says its own (`HostBridgeSpec`).
    """

    model_fields: tuple[str, ...] = ()
    wrench_bodies: tuple[str, ...] = ()
    substep_sensors: tuple[str, ...] = ()
    decimation: int = 1


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

    @property
    @abstractmethod
    def declared(self) -> Declared:
        """What was declared to be written or recorded beyond state; wrench bodies as resolved names, in model order."""

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
        """Returns state and derived reads by key, (N, width) float32, read-only.

        HOST_BRIDGE: copies that a later step does not rewrite. DEVICE_RESIDENT: stable live tensors on the declared
        device; the same tensor for the same key, rewritten in place by steps, resets, row writes and restores.

        Args:
            fields: Keys of a read packet; None: the state fields of the capabilities.
                `"qpos"`, `"qvel"`, `"ctrl"` (N, Q), (N, V), (N, A): the state, and the control in use without wrenches.
                `"qacc"`, `"actuator_force"` (N, V), (N, A): accelerations of the joints, in the units of `qvel` per s,
                and forces of the actuators (N or N m), of the row's last integrated substep; after a reset, of its
                full forward.
                `"body:<name>"`, `"site:<name>"` (N, 13): columns as in `packets.BODY_FIELDS`, world frame.
                `"substep:<sensor>"` (N, T * dim): a declared sensor after each of the last T substeps, oldest first,
                zeros after a reset. T is `Declared.decimation`; on HOST_BRIDGE the length of the last step.
                `"sensor:<name>"` (N, dim): as `get_sensor_view`.

        Raises:
            KeyError: An unknown key or name; the message lists the nearest.
            CapabilityError: The substep history of a sensor that was not declared, or a field that is not offered.
        """

    @abstractmethod
    def get_sensor_view(self, name: str) -> torch.Tensor:
        """Returns the values of one sensor, (N, dim) float32, read-only.

        A copy on HOST_BRIDGE, a stable live tensor on DEVICE_RESIDENT.

        Raises:
            KeyError: An unknown sensor; the message lists the nearest names.
        """

    @abstractmethod
    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """Advances every row by `nsteps` substeps under one control.

        Afterwards position- and velocity-stage reads are fresh at the new state; acceleration-stage reads describe
        the last integrated substep of their own row.

        Args:
            ctrl: (N, C) contiguous float32 on an accepted device, C = A + 6 per declared wrench body.
            nsteps: Number of substeps, at least one.

        Raises:
            TypeError: `ctrl` is not a float32 tensor, or `nsteps` not an int.
            ValueError: Wrong shape, device or layout, or `nsteps` < 1.
            NonFiniteError: A control is NaN or infinite; physics has not moved. DEVICE_RESIDENT does not wait for
                the device to know: it steps such a row under control 0, and `bad_rows` names it until its reset.
        """

    def prepare_step(self, nsteps: int) -> None:
        """Says that steps of `nsteps` substeps will come; nothing moves, and nothing that can be read changes.

        A backend that makes something for each number of substeps, as a captured graph, makes it here instead of in
        the first such step. By default there is nothing to make. Steps of `Declared.decimation` need not be announced.

        Raises:
            TypeError: `nsteps` is not an int.
            ValueError: `nsteps` < 1.
        """

    @abstractmethod
    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits one reset: selected rows restart from the payload, the others stay bitwise unchanged.

        Time, actuator state, applied forces and warm start are cleared; model fields of the payload are written and
        the constants that derive from them computed again, others keep their values. Afterwards every declared read of
        the selected rows is fresh, the acceleration stage included (a full forward with the reset control).

        Args:
            reset_mask: (N,) bool, true exactly at the payload's rows.
            payload: What the rows shall hold.

        Raises:
            ResetRejectedError: The payload is not valid; nothing was written.
        """

    @abstractmethod
    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state or model fields of selected rows mid-episode (a push, a teleport) and refreshes their reads.

        Time, control, actuator state and warm start are kept. Acceleration-stage reads and the substep history still
        describe the last integrated substeps.

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
        """Returns everything needed to continue bit for bit, in engine precision; cold path.

        It may be saved and loaded in another process.
        """

    @abstractmethod
    def restore(self, snapshot: Any) -> None:  # noqa: ANN401 - opaque
        """Puts back what `snapshot` returned; cold path.

        Raises:
            TypeError: It is no snapshot.
            ValueError: It belongs to another model, number of rows or declaration; nothing was written.
        """

    @abstractmethod
    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan through which a HOST_BRIDGE backend is driven.

        Raises:
            CapabilityError: The backend is DEVICE_RESIDENT, or `spec` asks for what it cannot read.
        """

    @abstractmethod
    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Returns a new (H, W, 3) uint8 image of one row, in host memory; cold path, changes nothing.

        Args:
            row: Which row.
            camera: Where from and how large; None: `CameraCfg()`.

        Raises:
            CapabilityError: The backend cannot render, or there is no OpenGL; the message names what to set.
            KeyError: The camera follows what does not exist; the message lists the nearest.
            IndexError: No such row.
        """

    @abstractmethod
    def export_model(self, row: int) -> bytes:
        """Returns the model of one row, its randomised values included, in the engine's own file format; cold path.

        It is exact: a program of the engine alone that loads it moves as the row does. The state is not in it.

        Raises:
            CapabilityError: The backend cannot export a model.
            IndexError: No such row.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees threads and memory; idempotent."""
