"""What host-bridge backends share: views are copies, and the packed plan."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch

from unisim.capabilities import TensorExecution, device_problem
from unisim.checked import CheckedBackend
from unisim.contract import Declared
from unisim.errors import CapabilityError
from unisim.model_layout import ModelLayout
from unisim.packets import HostBridgeSpec, ReadLayout, spec_of
from unisim.transfer import HostBridgeTransferPlan, HostPort

__all__ = ["HostBridgeBackend", "compile_plan", "packed_views"]


def packed_views(
    port: HostPort, layout: ModelLayout, keys: Sequence[str], decimation: int
) -> dict[str, torch.Tensor]:
    """Returns copies by key, (N, width) float32; keys are those of a read packet.

    Raises:
        KeyError: An unknown key or name; the message lists the nearest.
    """
    columns = ReadLayout(spec_of(keys, decimation=decimation), layout)
    packet = torch.empty(port.num_envs, columns.width)
    port.pack_rows(columns, packet, None)
    return {key: packet[:, columns.columns(key)].clone() for key in keys}


def compile_plan(
    port: HostPort,
    layout: ModelLayout,
    spec: HostBridgeSpec,
    *,
    declared: Declared,
    accepted: Sequence[str],
    owner: str,
    staged: bool | None = None,
) -> HostBridgeTransferPlan:
    """Returns the plan of a host-bridge backend.

    Args:
        port: The backend.
        layout: Its model.
        spec: What is read, and the device of the packets.
        declared: What the backend was told it would write or record.
        accepted: The device types it can bridge to.
        owner: Name of the backend in error messages.
        staged: Whether host and device storage are apart; None: unless the device is the CPU.

    Raises:
        CapabilityError: The device is not accepted or not there, or a substep history was not declared.
        KeyError: `spec` names what the model does not have.
    """
    if problem := device_problem(spec.device, accepted):
        raise CapabilityError(f"{owner}: {problem}")
    columns = ReadLayout(spec, layout)
    if undeclared := [n for n in spec.substep_sensors if n not in declared.substep_sensors]:
        raise CapabilityError(
            f"{owner}: substep history of {undeclared} was not declared when the backend was made"
        )
    fields = sum(math.prod(layout.fields[name].shape) for name in declared.model_fields)
    return HostBridgeTransferPlan(
        port,
        spec,
        columns,
        ctrl_width=layout.nu + 6 * len(declared.wrench_bodies),
        row_width=layout.nq + layout.nv + layout.nu + fields,
        staged=staged,
    )


class HostBridgeBackend(CheckedBackend):
    """A backend whose state lives in host memory; subclasses also provide `pack_rows`."""

    def tensor_execution(self) -> TensorExecution:
        """HOST_BRIDGE."""
        self._alive("tensor_execution")
        return TensorExecution.HOST_BRIDGE

    def _read_keys(self, keys: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
        return packed_views(self, self._layout, keys, self._history_steps())

    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan; see `SimBackend`."""
        self._alive("compile_host_bridge_io")
        return compile_plan(
            self,
            self._layout,
            spec,
            declared=self._declared,
            accepted=self.get_tensor_capabilities().accepted_devices,
            owner=self._owner,
        )

    def _history_steps(self) -> int:
        """Returns how many substeps the recorded history holds."""
        return self._declared.decimation

    @abstractmethod
    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns of all rows, or of `env_ids`, into `out` (N or k, W) float32."""
