"""FakeBackend: scripted states and fault injection behind the real contract, without an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution, device_problem
from unisim.checked import CheckedBackend
from unisim.contract import Declared
from unisim.host_bridge import compile_plan
from unisim.model_layout import ModelLayout
from unisim.packets import HostBridgeSpec, ReadLayout
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
        return self._capabilities(
            accepted_devices=(self._device.type,) if self._resident else _DEVICES,
            randomizable_fields=tuple(self._layout.fields),
            rendering=False,
        )

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """A fake optimises nothing."""
        self._alive("get_runtime_diagnostics")
        return ()

    # ------------------------------------------------------------------ reads

    def _read_keys(self, keys: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
        return {key: self._view(key) for key in keys}

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
        if self._resident:
            return super().compile_host_bridge_io(spec)
        self._alive("compile_host_bridge_io")
        return compile_plan(
            self, self._layout, spec, declared=self._declared, accepted=_DEVICES, owner=self._owner
        )

    # ------------------------------------------------------------------ physics

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
