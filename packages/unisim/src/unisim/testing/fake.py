"""FakeBackend: scripted states and fault injection behind the real contract, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution
from unisim.errors import CapabilityError, ResetRejectedError
from unisim.host_bridge import HostBridgeBackend
from unisim.model_layout import (
    ActuatorLayout,
    EntityLayout,
    JointLayout,
    ModelLayout,
    SensorLayout,
    SensorStage,
    find,
)
from unisim.packets import STATE_FIELDS, ReadLayout
from unisim.reset import ResetPayload

__all__ = ["FakeBackend", "Fault", "Script", "make_layout"]

Script = Callable[[int, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor] | None]
"""Called after every substep with the substep's number (1, 2, ...) and the state; returns what to overwrite.

Keys are those of a read packet: `"qpos"`, `"qvel"`, `"sensor:<name>"`, `"body:<name>"`, `"site:<name>"`.
"""


@dataclass(frozen=True)
class Fault:
    """One injected failure.

    Attributes:
        kind: `"before_commit"` rejects a reset before anything is written, `"after_first_write"` fails in the middle
            of one, `"step"` fails before physics moves, `"nan"` makes the state of `row` non-finite after a step.
        at: Which call fails, counted from 0: the reset for the first two kinds, the substep otherwise.
        row: The row, for `"nan"`.
    """

    kind: Literal["before_commit", "after_first_write", "step", "nan"]
    at: int = 0
    row: int | None = None


def make_layout(
    *,
    joints: Sequence[str] = ("robot/slider", "robot/hinge"),
    actuated: Sequence[str] = ("robot/slider",),
    sensors: Mapping[str, tuple[int, SensorStage]] | None = None,
    sites: Sequence[str] = (),
    free_root: bool = False,
    limits: Mapping[str, tuple[float, float]] | None = None,
    timestep: float = 0.01,
) -> ModelLayout:
    """Returns the layout of one entity per prefix of `joints`, hinge joints only, for a fake.

    Args:
        joints: Scalar joints, named `"<entity>/<joint>"`.
        actuated: The joints that have an actuator, of the same name and control range (-1, 1).
        sensors: Sensor name to (dim, stage).
        sites: Site names.
        free_root: Whether the first entity's root body has a free joint, named `"<entity>/root"`.
        limits: Joint name to (low, high).
        timestep: Physics timestep, s.
    """
    entities = list(dict.fromkeys(name.split("/")[0] for name in joints))
    layouts: list[JointLayout] = []
    q = v = 0
    if free_root:
        layouts.append(
            JointLayout(f"{entities[0]}/root", "free", f"{entities[0]}/base", 0, 7, 0, 6, _UNLIMITED)
        )
        q, v = 7, 6
    for name in joints:
        low_high = (limits or {}).get(name, _UNLIMITED)
        layouts.append(JointLayout(name, "hinge", f"{name.split('/')[0]}/base", q, 1, v, 1, low_high))
        q, v = q + 1, v + 1
    placed, start = [], 0
    for name, (dim, stage) in (sensors or {}).items():
        placed.append(SensorLayout(name, start, dim, stage))
        start += dim
    root = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0) if free_root else ()
    return ModelLayout(
        timestep=timestep,
        joints=tuple(layouts),
        actuators=tuple(ActuatorLayout(name, name, (-1.0, 1.0)) for name in actuated),
        bodies=("world", *(f"{e}/base" for e in entities)),
        sites=tuple(sites),
        sensors=tuple(placed),
        entities=tuple(
            EntityLayout(e, f"{e}/base", f"{e}/root" if free_root and e == entities[0] else None)
            for e in entities
        ),
        default_qpos=(*root, *(0.0 for _ in joints)),
        default_qvel=tuple(0.0 for _ in range(v)),
    )


_UNLIMITED = (float("-inf"), float("inf"))


class FakeBackend(HostBridgeBackend):
    """N rows of double integrators: a control accelerates its joint by its value; a script may overwrite anything.

    State is float64 in host memory, as in an engine, so packets are copies.
    """

    def __init__(
        self,
        layout: ModelLayout,
        num_envs: int,
        *,
        execution: TensorExecution = TensorExecution.HOST_BRIDGE,
        device: str = "cpu",
        script: Script | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        """Starts every row in the layout's default state.

        Raises:
            CapabilityError: `execution` is not HOST_BRIDGE, or `device` is not the CPU.
        """
        if execution is not TensorExecution.HOST_BRIDGE:
            raise CapabilityError("FakeBackend: DEVICE_RESIDENT is not available in this version")
        if torch.device(device).type != "cpu":
            raise CapabilityError(f"FakeBackend: device {device!r}; accepted is 'cpu'")
        super().__init__(layout, num_envs, owner="FakeBackend")
        self._script = script
        self._faults = tuple(faults)
        self._resets = self._substeps = 0
        self._dofs = torch.tensor(
            [find(layout.joints, a.joint or "", "joint").qvel_start for a in layout.actuators],
            dtype=torch.int64,
        )
        scalar = [j for j in layout.joints if j.qpos_dim == 1]
        self._scalar_q = torch.tensor([j.qpos_start for j in scalar], dtype=torch.int64)
        self._scalar_v = torch.tensor([j.qvel_start for j in scalar], dtype=torch.int64)
        f64 = torch.float64
        self._defaults = {
            "qpos": torch.tensor(layout.default_qpos, dtype=f64),
            "qvel": torch.tensor(layout.default_qvel, dtype=f64),
            "ctrl": torch.zeros(layout.nu, dtype=f64),
        }
        self._values = {name: row.expand(num_envs, -1).clone() for name, row in self._defaults.items()}
        for sensor in layout.sensors:
            self._values[f"sensor:{sensor.name}"] = torch.zeros(num_envs, sensor.dim, dtype=f64)
        for key in [f"body:{n}" for n in layout.bodies] + [f"site:{n}" for n in layout.sites]:
            self._values[key] = torch.zeros(num_envs, 13, dtype=f64)
            self._values[key][:, 3] = 1.0

    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What a fake can do: state, sensors, resets and row writes."""
        self._alive("get_tensor_capabilities")
        return TensorCapabilities(
            execution=TensorExecution.HOST_BRIDGE,
            process_topology="any_process",
            data_plane="packets",
            accepted_devices=("cpu",),
            owns_stream=False,
            state_fields=STATE_FIELDS,
            sensors=tuple(sensor.name for sensor in self._layout.sensors),
            selected_reset=True,
            row_writes=True,
            randomizable_fields=(),
            body_reads=True,
            contact_reads=False,
            wrenches=False,
            graph_capture=False,
            rendering=False,
            snapshots=False,
        )

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """A fake optimises nothing."""
        self._alive("get_runtime_diagnostics")
        return ()

    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns into `out` as float32."""
        self._alive("pack_rows")
        rows = slice(None) if env_ids is None else env_ids
        for block in layout.blocks:
            out[:, block.start : block.stop] = self._values[block.key][rows]

    def _fault(self, kind: str, at: int) -> Fault | None:
        return next((f for f in self._faults if f.kind == kind and f.at == at), None)

    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        self._values["ctrl"].copy_(ctrl)
        for _ in range(nsteps):
            if self._fault("step", self._substeps):
                raise RuntimeError(f"FakeBackend: injected fault in substep {self._substeps}")
            self._integrate()
            if self._script is not None:
                for key, value in (self._script(self._substeps + 1, self._values) or {}).items():
                    self._values[key].copy_(value)
            if nan := self._fault("nan", self._substeps):
                self._values["qpos"][nan.row or 0] = float("nan")
            self._substeps += 1

    def _integrate(self) -> None:
        dt = self._layout.timestep
        self._values["qvel"].index_add_(1, self._dofs, dt * self._values["ctrl"])
        self._values["qpos"].index_add_(1, self._scalar_q, dt * self._values["qvel"][:, self._scalar_v])

    def _commit_reset(self, payload: ResetPayload) -> None:
        number, self._resets = self._resets, self._resets + 1
        if self._fault("before_commit", number):
            raise ResetRejectedError(
                f"FakeBackend: injected rejection of reset {number}; nothing was written"
            )
        for position, name in enumerate(STATE_FIELDS):
            given = dict(payload.parts()).get(name)
            self._values[name][payload.env_ids] = self._defaults[name] if given is None else given.double()
            if position == 0 and self._fault("after_first_write", number):
                raise RuntimeError(f"FakeBackend: injected fault in the middle of reset {number}")

    def _commit_write(self, payload: ResetPayload) -> None:
        for name, values in payload.parts():
            self._values[name][payload.env_ids] = values.double()

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: rows whose state is not finite."""
        self._alive("bad_rows")
        state = torch.cat([self._values["qpos"], self._values["qvel"]], dim=1)
        return ~torch.isfinite(state).all(dim=1)

    def _free(self) -> None:
        self._values.clear()
