"""A `mujoco.batch.Batch` and nothing else: the calls that the MuJoCo backend made, made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import torch

from unisim.backends.mujoco.holding import HoldingControl
from unisim.backends.mujoco.packing import follows_from_state
from unisim.backends.mujoco.reads import state_columns
from unisim.bare import BareEngine, EngineCall, Freshness, RowsCall, StepCall
from unisim.contract import Declared
from unisim.model_layout import find, layout_digest
from unisim.randomization import engine_values
from unisim.scene import SceneCfg, SimCfg
from unisim.scene_model import compile_scene, engine_field

__all__ = ["BareBatch"]

Array = np.ndarray[Any, Any]

_FRESH = mujoco.mjtStage.mjSTAGE_VEL
_COMPONENTS = ("time", "qpos", "qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied")


class BareBatch(BareEngine):
    """N rows of the same model, on as many threads, persistent or not, with the same fields expanded.

    Fresh, it makes the engine calls of the backend in their order: substep by substep where sensors are declared of
    which each substep is recorded, otherwise all substeps in one call; and as the backend it brings positions,
    velocities and sensors up to date where something that follows from the state is read. Plain, it makes all substeps
    in one call, without that, and writes rows without a forward; the states are the same to the bit.
    """

    def __init__(
        self,
        scene: SceneCfg,
        sim: SimCfg,
        *,
        num_envs: int,
        declared: Declared,
        freshness: Freshness,
        reads: Sequence[str] | None = None,
    ) -> None:
        """Compiles the scene and makes the batch; see `unisim.bare.make_bare`."""
        self._fresh = freshness == "fresh"
        self._by_substep = self._fresh and bool(declared.substep_sensors)
        model, layout = compile_scene(scene, sim, declared.model_fields)
        recorded = [find(layout.sensors, name, "sensor") for name in declared.substep_sensors]
        lagging = any(sensor.stage != "acceleration" for sensor in recorded)
        self._between = _FRESH if lagging else mujoco.mjtStage.mjSTAGE_NONE  # as the backend does
        self._current_stage = self._fresh and (lagging or reads is None or follows_from_state(reads, layout))
        """Whether a step leaves position- and velocity-stage values current."""
        self._stage = _FRESH if self._current_stage else mujoco.mjtStage.mjSTAGE_NONE
        stage = "stage=mjSTAGE_VEL" if self._current_stage else "no fresh stage"
        self.label = f"mujoco.batch.Batch, {stage}{', substep by substep' if self._by_substep else ''}"
        self.exact = True
        self._current = [sensor for sensor in layout.sensors if sensor.stage != "acceleration"]
        self._model_digest = layout_digest(layout)
        self._batch = mujoco.batch.Batch(model, num_envs, nthread=sim.num_threads, persistent=sim.persistent)
        self._qpos, self._qvel, self._ctrl = (self._batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._wrenches = self._batch.bind("xfrc_applied") if declared.wrench_bodies else None
        self._bodies = [layout.bodies.index(name) for name in declared.wrench_bodies]
        self._fields = {name: self._batch.expand(engine_field(name)) for name in declared.model_fields}
        self._nominal = {name: torch.from_numpy(values[0].copy()) for name, values in self._fields.items()}
        self._holding = HoldingControl(self._batch, model, layout) if self._fresh else None
        # The engine fills what is bound: the backend pays for its sensors too.
        self._sensors = self._batch.bind("sensordata") if self._fresh else None
        self._default = np.array(layout.default_qpos), np.array(layout.default_qvel)

    def load(self, snapshot: dict[str, torch.Tensor]) -> None:
        """Takes over state and model fields; see `BareEngine`."""
        if not torch.equal(snapshot["model"], self._model_digest):
            raise ValueError(f"{self.label}: the snapshot belongs to another model than that of the config")
        for name, values in self._fields.items():
            values[:] = snapshot[f"field:{name}"].numpy()
        if any(map(_derives_constants, self._fields)):
            self._batch.set_const()
        self._batch.state[:] = snapshot["state"].numpy()
        if self._fresh:
            self._batch.forward(stage=_FRESH)

    def prepare(self, calls: Sequence[EngineCall]) -> Callable[[], None]:
        """Returns a function that makes these calls, their numbers in the engine's precision already."""
        ready = [self._step(c) if isinstance(c, StepCall) else self._rows(c) for c in calls]

        def run() -> None:
            for call in ready:
                call()

        return run

    def _step(self, call: StepCall) -> Callable[[], None]:
        batch, ctrl = self._batch, self._ctrl
        steps = [(call.nsteps, self._stage)]
        if self._by_substep:
            steps = [(1, self._between)] * (call.nsteps - 1) + [(1, self._stage)]
        values = call.ctrl.to(torch.float64).numpy()
        control = values[:, : ctrl.shape[1]].copy()
        wrenches = values[:, ctrl.shape[1] :].reshape(len(values), -1, 6)

        def step() -> None:
            ctrl[:] = control
            if self._wrenches is not None:
                self._wrenches[:, self._bodies] = wrenches
            for nstep, stage in steps:
                batch.step(nstep=nstep, stage=stage)

        return step

    def _rows(self, call: RowsCall) -> Callable[[], None]:
        payload = call.payload
        ids = payload.env_ids.numpy()
        fields = {
            name: engine_values(name, values, self._nominal[name]).numpy()
            for name, values in payload.model.items()
        }
        derives = any(map(_derives_constants, fields))
        qpos, qvel, ctrl = (
            None if part is None else part.numpy() for part in (payload.qpos, payload.qvel, payload.ctrl)
        )
        if call.kind == "reset":
            qpos, qvel = (d if v is None else v for v, d in zip((qpos, qvel), self._default, strict=True))

        def rows() -> None:
            for name, values in fields.items():
                self._fields[name][ids] = values
            if derives:
                self._batch.set_const(ids)
            if call.kind == "reset":
                self._reset(ids, qpos, qvel, ctrl)
            else:
                self._write(ids, qpos, qvel, ctrl)

        return rows

    def _reset(self, ids: Array, qpos: Array | None, qvel: Array | None, ctrl: Array | None) -> None:
        batch = self._batch
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        self._qpos[ids], self._qvel[ids] = qpos, qvel
        if self._holding is None:  # the next step computes whatever it needs, under its own control
            return
        if ctrl is not None:
            self._ctrl[ids] = ctrl
        else:
            self._holding.write(ids, self._qpos, self._ctrl)
        batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_ACC)

    def _write(self, ids: Array, qpos: Array | None, qvel: Array | None, ctrl: Array | None) -> None:
        for stored, written in ((self._qpos, qpos), (self._qvel, qvel), (self._ctrl, ctrl)):
            if written is not None:
                # As the backend does: what was read as float32 and is written back keeps the engine's precision.
                stored[ids] = np.where(stored[ids].astype(np.float32) == written, stored[ids], written)
        if self._current_stage:
            self._batch.forward(ids, stage=_FRESH)

    def difference(self, snapshot: dict[str, torch.Tensor]) -> str:
        """Returns where it differs from the backend; see `BareEngine`.

        State and model fields are compared; where they are current, the sensors of the position and velocity stage too.
        Plain, it knows no reset's control.
        """
        own, theirs = np.array(self._batch.state), snapshot["state"].numpy()
        differs = _differ(own, theirs)
        if not self._fresh:
            differs[:, state_columns(self._batch, "ctrl")] = False
        if not differs.any():
            return self._field_difference(snapshot) or self._sensor_difference(snapshot)
        row, column = (int(i) for i in np.argwhere(differs)[0])
        name = next(
            (n for n in _COMPONENTS if column in range(*state_columns(self._batch, n).indices(own.shape[1]))),
            "state",
        )
        return (
            f"{name} of {int(differs.any(axis=1).sum())} rows; in row {row}, column {column} of the state, "
            f"{float(own[row, column])!r} instead of {float(theirs[row, column])!r}"
        )

    def _field_difference(self, snapshot: dict[str, torch.Tensor]) -> str:
        for name, values in self._fields.items():
            differs = (values != snapshot[f"field:{name}"].numpy()).reshape(len(values), -1).any(axis=1)
            if differs.any():
                return f"model field {name} of row {int(np.flatnonzero(differs)[0])}"
        return ""

    def _sensor_difference(self, snapshot: dict[str, torch.Tensor]) -> str:
        if self._sensors is None or not self._current_stage:
            return ""
        differs = _differ(self._sensors, snapshot["sensordata"].numpy())
        for sensor in self._current:
            rows = differs[:, sensor.start : sensor.start + sensor.dim].any(axis=1)
            if rows.any():
                return f"sensor {sensor.name} of {int(rows.sum())} rows, first in row {int(np.flatnonzero(rows)[0])}"
        return ""

    def close(self) -> None:
        """Drops the batch and every array that keeps its threads alive; a prepared function keeps them too."""
        for name in vars(self).keys() - {"label", "exact"}:
            delattr(self, name)


def _differ(a: Array, b: Array) -> Array:
    """Returns where two arrays differ; NaN is the same as NaN."""
    differs: Array = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return differs


def _derives_constants(name: str) -> bool:
    return name in mujoco.MjModel._setconst_inputs
