"""What all host-bridge backends share: validation at the door, and the plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch

from unisim.capabilities import TensorExecution
from unisim.contract import SimBackend
from unisim.errors import CapabilityError, NonFiniteError, ResetRejectedError, nearest
from unisim.model_layout import ModelLayout, find
from unisim.packets import STATE_FIELDS, HostBridgeSpec, ReadLayout
from unisim.reset import ResetPayload, validate_payload
from unisim.transfer import HostBridgeTransferPlan

__all__ = ["HostBridgeBackend"]


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


class HostBridgeBackend(SimBackend):
    """A backend whose state lives in host memory.

    Subclasses provide the engine part (`_advance`, `_commit_reset`, `_commit_write`, `pack_rows`, `_free`); the checks
    of the contract are made here, once, for all of them.
    """

    def __init__(self, layout: ModelLayout, num_envs: int, *, owner: str) -> None:
        """Remembers sizes; `owner` names the backend in error messages.

        Raises:
            ValueError: `num_envs` < 1.
        """
        if num_envs < 1:
            raise ValueError(f"{owner}: num_envs is {num_envs}, expected at least 1")
        self.num_envs = num_envs
        self._layout = layout
        self._owner = owner
        self._closed = False

    def _alive(self, call: str) -> None:
        if self._closed:
            raise RuntimeError(f"{self._owner}.{call}: the backend is closed")

    @property
    def model_layout(self) -> ModelLayout:
        """Names, indices, ranges and defaults of the model."""
        return self._layout

    def tensor_execution(self) -> TensorExecution:
        """HOST_BRIDGE."""
        self._alive("tensor_execution")
        return TensorExecution.HOST_BRIDGE

    def get_state_views(self, fields: Sequence[str] | None = None) -> Mapping[str, torch.Tensor]:
        """Returns copies of state fields, (N, ...) float32; see `SimBackend`."""
        self._alive("get_state_views")
        wanted = tuple(STATE_FIELDS if fields is None else fields)
        for name in wanted:
            if name not in STATE_FIELDS:
                raise KeyError(
                    f"{self._owner}.get_state_views: unknown {name!r}; {nearest(name, STATE_FIELDS)}"
                )
        layout = ReadLayout(HostBridgeSpec(state=wanted), self._layout)
        packet = torch.empty(self.num_envs, layout.width)
        self.pack_rows(layout, packet, None)
        return {name: packet[:, layout.columns(name)].clone() for name in wanted}

    def get_sensor_view(self, name: str) -> torch.Tensor:
        """Returns a copy of one sensor's values, (N, dim) float32; see `SimBackend`."""
        self._alive("get_sensor_view")
        find(self._layout.sensors, name, "sensor")
        layout = ReadLayout(HostBridgeSpec(state=(), sensors=(name,)), self._layout)
        packet = torch.empty(self.num_envs, layout.width)
        self.pack_rows(layout, packet, None)
        return packet

    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """Advances every row; see `SimBackend`."""
        self._alive("step_tensor")
        owner = f"{self._owner}.step_tensor"
        if (got := _kind(ctrl)) != "torch.float32":
            raise TypeError(f"{owner}: ctrl is {got}, expected a float32 tensor")
        if ctrl.device.type != "cpu":
            raise ValueError(
                f"{owner}: ctrl is on {ctrl.device}; drive other devices through the compiled plan"
            )
        if tuple(ctrl.shape) != (self.num_envs, self._layout.nu) or not ctrl.is_contiguous():
            raise ValueError(
                f"{owner}: ctrl has shape {tuple(ctrl.shape)}{'' if ctrl.is_contiguous() else ', not contiguous'}; "
                f"expected contiguous {(self.num_envs, self._layout.nu)}"
            )
        if nsteps < 1:
            raise ValueError(f"{owner}: nsteps is {nsteps}, expected at least 1")
        finite = torch.isfinite(ctrl)
        if not bool(finite.all()):
            rows = torch.nonzero(~finite.all(dim=1)).flatten().tolist()
            raise NonFiniteError(f"{owner}: control of rows {rows[:8]} is not finite; physics has not moved")
        self._advance(ctrl.detach(), nsteps)

    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits one reset; see `SimBackend`."""
        self._check_rows("apply_reset", reset_mask, payload)
        if payload.env_ids.numel():
            self._commit_reset(payload)

    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state of selected rows; see `SimBackend`."""
        self._check_rows("write_rows", row_mask, payload)
        if payload.env_ids.numel():
            self._commit_write(payload)

    def set_state_tensor(self, env_ids: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Writes the full state of rows; see `SimBackend`."""
        self._alive("set_state_tensor")
        payload = ResetPayload(env_ids, qpos, qvel)
        validate_payload(
            payload, self._layout, num_envs=self.num_envs, owner=f"{self._owner}.set_state_tensor"
        )
        if env_ids.numel():
            self._commit_write(payload)

    def _check_rows(self, call: str, mask: torch.Tensor, payload: ResetPayload) -> None:
        self._alive(call)
        owner = f"{self._owner}.{call}"
        if mask.dtype != torch.bool or tuple(mask.shape) != (self.num_envs,):
            raise ResetRejectedError(
                f"{owner}: mask is {mask.dtype} {tuple(mask.shape)}, expected torch.bool ({self.num_envs},)"
            )
        validate_payload(payload, self._layout, num_envs=self.num_envs, owner=owner)
        if not torch.equal(mask.nonzero().flatten(), payload.env_ids):
            raise ResetRejectedError(f"{owner}: the mask is not true exactly at the payload's env_ids")

    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan; see `SimBackend`."""
        self._alive("compile_host_bridge_io")
        accepted = self.get_tensor_capabilities().accepted_devices
        if torch.device(spec.device).type not in accepted:
            raise CapabilityError(f"{self._owner}: device {spec.device!r} is not one of {accepted}")
        model = self._layout
        return HostBridgeTransferPlan(
            self,
            spec,
            ReadLayout(spec, model),
            ctrl_width=model.nu,
            row_width=model.nq + model.nv + model.nu,
        )

    def _refuse(self, call: str) -> NoReturn:
        self._alive(call)
        raise CapabilityError(
            f"{self._owner}.{call} is not available in this version; get_tensor_capabilities() says what is"
        )

    def snapshot(self) -> Any:  # noqa: ANN401 - opaque
        """Not available unless a subclass provides it.

        Raises:
            CapabilityError: The backend declares no snapshots.
        """
        self._refuse("snapshot")

    def restore(self, snapshot: Any) -> None:  # noqa: ANN401 - opaque
        """Not available unless a subclass provides it.

        Raises:
            CapabilityError: The backend declares no snapshots.
        """
        self._refuse("restore")

    def render(self, row: int) -> torch.Tensor:
        """Not available unless a subclass provides it.

        Raises:
            CapabilityError: The backend declares no rendering.
        """
        self._refuse("render")

    def export_model(self, row: int) -> str:
        """Not available unless a subclass provides it.

        Raises:
            CapabilityError: The backend cannot export a model.
        """
        self._refuse("export_model")

    def close(self) -> None:
        """Frees what the engine holds; idempotent."""
        if not self._closed:
            self._closed = True
            self._free()

    @abstractmethod
    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns of all rows, or of `env_ids`, into `out` (N or k, W) float32."""

    @abstractmethod
    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        """Steps all rows under a checked control and leaves reads fresh."""

    @abstractmethod
    def _commit_reset(self, payload: ResetPayload) -> None:
        """Resets the payload's rows and leaves their reads fresh."""

    @abstractmethod
    def _commit_write(self, payload: ResetPayload) -> None:
        """Writes the payload's rows and leaves their reads fresh."""

    @abstractmethod
    def _free(self) -> None:
        """Frees threads and memory."""
