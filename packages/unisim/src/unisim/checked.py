"""What all backends of this package share: the contract's checks at the door, made once, before anything moves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from unisim.capabilities import TensorCapabilities, TensorExecution
from unisim.contract import Declared, SimBackend
from unisim.declarations import pushed_bodies, unmet
from unisim.errors import CapabilityError, NonFiniteError, ResetRejectedError
from unisim.model_layout import ModelLayout, find
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS, HostBridgeSpec, ReadLayout, spec_of
from unisim.reset import ResetPayload, all_finite, check_kinds, ensure_valid

if TYPE_CHECKING:
    from unisim.render import CameraCfg
    from unisim.transfer import HostBridgeTransferPlan

__all__ = ["CheckedBackend"]

_CPU = torch.device("cpu")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _check_count(owner: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{owner}: {name} is {value!r}, expected an int")


def _check_substeps(owner: str, nsteps: int) -> None:
    _check_count(owner, "nsteps", nsteps)
    if nsteps < 1:
        raise ValueError(f"{owner}: nsteps is {nsteps}, expected at least 1")


def _reject_non_finite(ctrl: torch.Tensor, owner: str) -> None:
    """Refuses a control with a NaN or an infinity, before physics moves."""
    if not all_finite(ctrl):
        rows = torch.nonzero(~torch.isfinite(ctrl).all(dim=1)).flatten().tolist()
        raise NonFiniteError(f"{owner}: control of rows {rows[:8]} is not finite; physics has not moved")


def _fixed_shape(key: str, value: torch.Tensor) -> tuple[int, ...]:
    """Returns the shape of a part of a snapshot, with -1 for the length of a substep history (N, steps, dim)."""
    shape = tuple(value.shape)
    return (shape[0], -1, shape[2]) if key.startswith("history:") and len(shape) == 3 else shape


class CheckedBackend(SimBackend):
    """A backend whose subclass provides the engine part only.

    Subclasses implement `_read_keys`, `_advance`, `_commit_reset`, `_commit_write` and `_free`, which get checked
    arguments.
    """

    def __init__(
        self,
        layout: ModelLayout,
        num_envs: int,
        *,
        declared: Declared,
        owner: str,
        device: torch.device = _CPU,
        problems: Sequence[str] = (),
    ) -> None:
        """Remembers sizes and checks what was declared, so that one error lists everything that cannot be done.

        Args:
            layout: The model.
            num_envs: N.
            declared: What will be written or recorded beyond state.
            owner: Name of the backend in error messages.
            device: Where controls and payloads must live.
            problems: What the subclass already found that it cannot do.

        Raises:
            TypeError: `num_envs` is not an int.
            ValueError: `num_envs` < 1.
            CapabilityError: There are problems, or something was declared that the model does not have.
            KeyError: A wrench body that matches none; the message lists the nearest.
        """
        _check_count(owner, "num_envs", num_envs)
        if num_envs < 1:
            raise ValueError(f"{owner}: num_envs is {num_envs}, expected at least 1")
        self.num_envs = num_envs
        if found := [*problems, *unmet(declared, layout)]:
            raise CapabilityError(f"{owner} cannot do what is asked: " + "; ".join(found))
        self._layout = layout
        pushed = pushed_bodies(owner, declared.wrench_bodies, layout)
        self._declared = replace(declared, wrench_bodies=pushed)
        self._control_width = layout.nu + 6 * len(pushed)
        self._owner = owner
        self._device = device
        self._all_rows = torch.arange(num_envs, device=device)
        self._closed = False

    def _alive(self, call: str) -> None:
        if self._closed:
            raise RuntimeError(f"{self._owner}.{call}: the backend is closed")

    @property
    def declared(self) -> Declared:
        """What was declared when the backend was made; wrench bodies as resolved names, in model order."""
        return self._declared

    @property
    def model_layout(self) -> ModelLayout:
        """Names, indices, ranges and defaults of the model."""
        return self._layout

    def _capabilities(
        self,
        *,
        accepted_devices: tuple[str, ...],
        randomizable_fields: tuple[str, ...],
        rendering: bool,
        owns_stream: bool = False,
        graph_capture: bool = False,
    ) -> TensorCapabilities:
        """Returns what every backend of this package can do with its model, and what the subclass says of itself."""
        self._alive("get_tensor_capabilities")
        execution, sensors = self.tensor_execution(), self._layout.sensors
        host = execution is TensorExecution.HOST_BRIDGE
        return TensorCapabilities(
            execution=execution,
            process_topology="any_process" if host else "learner_process",
            data_plane="packets" if host else "views",
            accepted_devices=accepted_devices,
            owns_stream=owns_stream,
            state_fields=STATE_FIELDS,
            sensors=tuple(sensor.name for sensor in sensors),
            selected_reset=True,
            row_writes=True,
            randomizable_fields=randomizable_fields,
            body_reads=True,
            contact_reads=any(sensor.contact is not None for sensor in sensors),
            wrenches=True,
            graph_capture=graph_capture,
            rendering=rendering,
            snapshots=True,
            acceleration_fields=ACCELERATION_FIELDS,
        )

    def get_state_views(self, fields: Sequence[str] | None = None) -> Mapping[str, torch.Tensor]:
        """Returns (N, width) float32 by key; see `SimBackend`."""
        self._alive("get_state_views")
        keys = tuple(dict.fromkeys(STATE_FIELDS if fields is None else fields))
        self._check_history(keys)
        ReadLayout(spec_of(keys), self._layout)  # raises for what is unknown
        return self._read_keys(keys)

    def get_sensor_view(self, name: str) -> torch.Tensor:
        """Returns the values of one sensor, (N, dim) float32; see `SimBackend`."""
        self._alive("get_sensor_view")
        find(self._layout.sensors, name, "sensor")
        key = f"sensor:{name}"
        return self._read_keys((key,))[key]

    def _check_history(self, keys: Sequence[str]) -> None:
        """Refuses the substep history of a sensor that exists and was not declared."""
        known = {sensor.name for sensor in self._layout.sensors} - set(self._declared.substep_sensors)
        names = [key.removeprefix("substep:") for key in keys if key.startswith("substep:")]
        if undeclared := [name for name in names if name in known]:
            raise CapabilityError(
                f"{self._owner}: substep history of {undeclared} was not declared when the backend was made"
            )

    def _check_control(self, ctrl: torch.Tensor, nsteps: int) -> None:
        """Checks everything about a control that can be known without reading its values."""
        self._alive("step_tensor")
        owner = f"{self._owner}.step_tensor"
        if getattr(ctrl, "dtype", None) is not torch.float32:
            raise TypeError(f"{owner}: ctrl is {_kind(ctrl)}, expected a float32 tensor")
        if ctrl.device != self._device:
            host = self.tensor_execution() is TensorExecution.HOST_BRIDGE
            hint = "; drive other devices through the compiled plan" if host else ""
            raise ValueError(f"{owner}: ctrl is on {ctrl.device}, expected {self._device}{hint}")
        if ctrl.shape != (self.num_envs, self._control_width) or not ctrl.is_contiguous():
            raise ValueError(
                f"{owner}: ctrl has shape {tuple(ctrl.shape)}{'' if ctrl.is_contiguous() else ', not contiguous'}; "
                f"expected contiguous {(self.num_envs, self._control_width)}"
            )
        _check_substeps(owner, nsteps)

    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """Advances every row; see `SimBackend`."""
        self._check_control(ctrl, nsteps)
        if self.tensor_execution() is TensorExecution.HOST_BRIDGE:
            _reject_non_finite(ctrl, f"{self._owner}.step_tensor")
        self._advance(ctrl.detach() if ctrl.requires_grad else ctrl, nsteps)

    def prepare_step(self, nsteps: int) -> None:
        """Checks the number of substeps; a subclass that captures its steps overrides it. See `SimBackend`."""
        self._alive("prepare_step")
        _check_substeps(f"{self._owner}.prepare_step", nsteps)

    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits one reset; see `SimBackend`."""
        self._check_rows("apply_reset", reset_mask, payload)
        if payload.env_ids.numel():
            self._commit_reset(payload.detached())

    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state of selected rows; see `SimBackend`."""
        self._check_rows("write_rows", row_mask, payload)
        if payload.env_ids.numel():
            self._commit_write(payload.detached())

    def set_state_tensor(self, env_ids: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor) -> None:
        """Writes the full state of rows; see `SimBackend`."""
        self._alive("set_state_tensor")
        payload, owner = ResetPayload(env_ids, qpos, qvel), f"{self._owner}.set_state_tensor"
        check_kinds(owner, payload)
        ensure_valid(payload, self._layout, num_envs=self.num_envs, owner=owner)
        if env_ids.numel():
            self._commit_write(payload.detached())

    def _check_rows(self, call: str, mask: torch.Tensor, payload: ResetPayload) -> None:
        self._alive(call)
        owner = f"{self._owner}.{call}"
        check_kinds(owner, payload, mask=mask)
        if mask.dtype != torch.bool or mask.shape != (self.num_envs,):
            raise ResetRejectedError(
                f"{owner}: mask is {mask.dtype} {tuple(mask.shape)}, expected torch.bool ({self.num_envs},); "
                "nothing was written"
            )
        for name, values in (("mask", mask), *payload.all_parts()):
            if values.device != self._device:
                raise ResetRejectedError(
                    f"{owner}: {name} is on {values.device}, expected {self._device}; nothing was written"
                )
        ensure_valid(
            payload,
            self._layout,
            num_envs=self.num_envs,
            owner=owner,
            declared=self._declared.model_fields,
            selected=torch.masked_select(self._all_rows, mask),
        )

    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Not for a device-resident backend; those of the host bridge override it.

        Raises:
            CapabilityError: Always.
        """
        self._alive("compile_host_bridge_io")
        raise CapabilityError(
            f"{self._owner}.compile_host_bridge_io: DEVICE_RESIDENT views are live, there is nothing to bridge; "
            "use get_state_views and get_sensor_view"
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

    def _check_snapshot(self, given: object, own: dict[str, torch.Tensor]) -> None:
        """Refuses a snapshot that does not fit, before anything is written.

        Args:
            given: What `restore` got.
            own: A snapshot of this backend as it is; `"model"` holds the digest of its layout.

        Raises:
            TypeError: `given` is not a dict of tensors.
            ValueError: It belongs to another model, number of rows, precision or set of declared fields.
        """
        owner = f"{self._owner}.restore"
        if not isinstance(given, dict) or not all(isinstance(v, torch.Tensor) for v in given.values()):
            raise TypeError(
                f"{owner}: the snapshot is {_kind(given)}, expected the dict that snapshot() returned"
            )
        if odd := sorted(own.keys() ^ given.keys()):
            kind = "is missing" if odd[0] in own else "is unknown"
            raise ValueError(f"{owner}: {odd[0]!r} {kind}; nothing was written")
        for key, value in own.items():
            if (_fixed_shape(key, given[key]), given[key].dtype) != (_fixed_shape(key, value), value.dtype):
                raise ValueError(
                    f"{owner}: {key!r} is {given[key].dtype} {tuple(given[key].shape)}, expected {value.dtype} "
                    f"{tuple(value.shape)}; nothing was written"
                )
        steps = {value.shape[1] for key, value in given.items() if key.startswith("history:")}
        if len(steps) > 1:
            raise ValueError(f"{owner}: the histories hold {sorted(steps)} substeps; nothing was written")
        if not torch.equal(given["model"].cpu(), own["model"].cpu()):
            raise ValueError(f"{owner}: the snapshot belongs to another model; nothing was written")

    def _check_row(self, call: str, row: int) -> None:
        """Refuses a row that is none, for calls that concern one row."""
        self._alive(call)
        _check_count(f"{self._owner}.{call}", "row", row)
        if not 0 <= row < self.num_envs:
            raise IndexError(f"{self._owner}.{call}: row is {row}, expected 0 <= row < {self.num_envs}")

    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Not available unless a subclass provides it.

        Raises:
            CapabilityError: The backend declares no rendering.
        """
        self._refuse("render")

    def export_model(self, row: int) -> bytes:
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
    def _read_keys(self, keys: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
        """Returns (N, width) float32 by key, of known keys: copies, or the live tensors of a resident backend."""

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
