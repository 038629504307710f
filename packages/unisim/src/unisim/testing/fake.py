"""FakeBackend: scripted states and fault injection behind the real contract, without an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution, device_problem
from unisim.checked import CheckedBackend
from unisim.contract import Declared
from unisim.errors import CapabilityError
from unisim.host_bridge import compile_plan, reject_non_finite
from unisim.model_layout import ModelLayout, find
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS, HostBridgeSpec, ReadLayout, spec_of
from unisim.reset import ResetPayload
from unisim.testing.fake_state import FakeState, Reads, Script
from unisim.testing.faults import Fault
from unisim.transfer import HostBridgeTransferPlan

__all__ = ["FakeBackend"]

_DEVICES = ("cpu", "cuda")


class FakeBackend(CheckedBackend):
    """N rows of double integrators: a control accelerates its joint by its value; a script may overwrite anything.

    Both kinds of execution share `FakeState`, its dynamics, script and faults. HOST_BRIDGE holds float64 in host
    memory, as an engine does, so that reads are copies; DEVICE_RESIDENT holds float32 on the declared device and hands
    out that very storage.
    """

    def __init__(
        self,
        layout: ModelLayout,
        num_envs: int,
        *,
        execution: TensorExecution = TensorExecution.HOST_BRIDGE,
        device: str = "cpu",
        declared: Declared | None = None,
        script: Script | None = None,
        reads: Reads | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        """Starts every row in the layout's default state.

        Args:
            layout: The model; see `make_layout`.
            num_envs: N.
            execution: Which kind of backend this is.
            device: Where its users' tensors live; of DEVICE_RESIDENT, where its state lives.
            declared: What will be written or recorded beyond state; nothing by default.
            script: Called after every substep.
            reads: Computes sensors, bodies and sites from the state; without it, they hold what the script wrote.
            faults: What shall fail, and when.

        Raises:
            CapabilityError: `device` is not there, or something was declared that the layout does not have.
            KeyError: A wrench body that matches none; the message lists the nearest.
        """
        declared = declared or Declared()
        self._resident = execution is TensorExecution.DEVICE_RESIDENT
        problem = device_problem(device, _DEVICES)
        here = torch.device("cpu")
        if self._resident and not problem:
            here = torch.empty(0, device=device).device  # with its index, as tensors carry it
        super().__init__(
            layout,
            num_envs,
            declared=declared,
            owner="FakeBackend",
            device=here,
            problems=[problem] if problem else [],
        )
        self._execution = execution
        self._state = FakeState(
            layout,
            num_envs,
            declared=self._declared,
            dtype=torch.float32 if self._resident else torch.float64,
            device=here,
            script=script,
            reads=reads,
            faults=faults,
        )

    def tensor_execution(self) -> TensorExecution:
        """As it was made."""
        self._alive("tensor_execution")
        return self._execution

    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What a fake can do: all but rendering and graphs."""
        self._alive("get_tensor_capabilities")
        return TensorCapabilities(
            execution=self._execution,
            process_topology="learner_process" if self._resident else "any_process",
            data_plane="views" if self._resident else "packets",
            accepted_devices=(self._device.type,) if self._resident else _DEVICES,
            owns_stream=False,
            state_fields=STATE_FIELDS,
            sensors=tuple(sensor.name for sensor in self._layout.sensors),
            selected_reset=True,
            row_writes=True,
            randomizable_fields=tuple(self._layout.fields),
            body_reads=True,
            contact_reads=any(sensor.contact is not None for sensor in self._layout.sensors),
            wrenches=True,
            graph_capture=False,
            rendering=False,
            snapshots=True,
            acceleration_fields=ACCELERATION_FIELDS,
        )

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """A fake optimises nothing."""
        self._alive("get_runtime_diagnostics")
        return ()

    # ------------------------------------------------------------------ reads

    def get_state_views(self, fields: Sequence[str] | None = None) -> Mapping[str, torch.Tensor]:
        """Returns (N, width) float32 by key: copies, or the live storage of a resident one; see `SimBackend`."""
        self._alive("get_state_views")
        keys = tuple(dict.fromkeys(STATE_FIELDS if fields is None else fields))
        self._check_history(keys)
        ReadLayout(spec_of(keys), self._layout)  # raises for what is unknown
        return {key: self._view(key) for key in keys}

    def get_sensor_view(self, name: str) -> torch.Tensor:
        """Returns (N, dim) float32: a copy, or the live storage of a resident one; see `SimBackend`."""
        self._alive("get_sensor_view")
        find(self._layout.sensors, name, "sensor")
        return self._view(f"sensor:{name}")

    def _view(self, key: str) -> torch.Tensor:
        values = self._stored(key)
        return values if self._resident else values.to(torch.float32, copy=True)

    def _stored(self, key: str) -> torch.Tensor:
        kind, _, name = key.partition(":")
        return self._state.history[name].flatten(1) if kind == "substep" else self._state.values[key]

    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns into `out` as float32; see `HostBridgeBackend`."""
        self._alive("pack_rows")
        rows = slice(None) if env_ids is None else env_ids
        for block in layout.blocks:
            values, width = self._stored(block.key)[rows], block.stop - block.start
            if block.key.startswith("substep:") and not self._state.stepped:
                values = values.new_zeros(values.shape[0], width)  # of whatever length
            if values.shape[1] != width:
                raise ValueError(
                    f"{block.key!r} holds {values.shape[1]} columns, the plan reads {width}; "
                    "step by the plan's decimation"
                )
            out[:, block.start : block.stop] = values

    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan of a HOST_BRIDGE fake.

        Raises:
            CapabilityError: It is DEVICE_RESIDENT.
        """
        self._alive("compile_host_bridge_io")
        if self._resident:
            raise CapabilityError(
                "FakeBackend.compile_host_bridge_io: DEVICE_RESIDENT views are live, there is nothing to bridge; "
                "use get_state_views and get_sensor_view"
            )
        return compile_plan(
            self, self._layout, spec, declared=self._declared, accepted=_DEVICES, owner=self._owner
        )

    # ------------------------------------------------------------------ physics

    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """Advances every row; see `SimBackend`."""
        self._check_control(ctrl, nsteps)
        if not self._resident:
            reject_non_finite(ctrl, "FakeBackend.step_tensor")
        self._advance(ctrl.detach(), nsteps)

    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        if self._resident:
            ctrl = self._state.neutralise(ctrl)
        else:
            self._state.resize_history(nsteps)
        self._state.advance(ctrl, nsteps)

    def _commit_reset(self, payload: ResetPayload) -> None:
        self._state.reset(payload)

    def _commit_write(self, payload: ResetPayload) -> None:
        self._state.write(payload)

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: rows whose state is not finite, or whose control was not since their last reset."""
        self._alive("bad_rows")
        return self._state.bad_rows()

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Returns everything as plain tensors; see `SimBackend`."""
        self._alive("snapshot")
        return self._state.snapshot()

    def restore(self, snapshot: Any) -> None:  # noqa: ANN401 - checked here
        """Puts back what `snapshot` returned; see `SimBackend`."""
        self._alive("restore")
        self._check_snapshot(snapshot, self._state.snapshot())
        self._state.restore(snapshot)

    def _free(self) -> None:
        del self._state
