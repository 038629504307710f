"""What can be read from a MuJoCo batch: state, sensors, bodies, sites, substep history; packed as float32."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import mujoco
import numpy as np
import torch

from unisim.backends.mujoco.packing import Array, PackProgram
from unisim.model_layout import ModelLayout, find
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS, ReadLayout
from unisim.transfer import HostBridgeTransferPlan

__all__ = ["BatchReads", "state_columns"]

_HELD = ("sensordata", *ACCELERATION_FIELDS)
"""Fields of the engine whose values no forward of the present state brings back."""
_FRESH = mujoco.mjtStage.mjSTAGE_VEL
_NONE = mujoco.mjtStage.mjSTAGE_NONE


def state_columns(batch: Any, name: str) -> slice:  # noqa: ANN401 - mujoco ships no types
    """Returns the columns of a batch's state rows that a state field is a view of."""
    state, field = batch.state, batch.bind(name)
    if not field.size:  # it has no place in memory
        return slice(0, 0)
    start = (field.ctypes.data - state.ctypes.data) // state.itemsize
    return slice(start, start + (field[0].size if field.ndim > 1 else 1))


class BatchReads:
    """Reads of one batch, always current: the owner tells it what happened to which rows.

    Some calls of the engine leave acceleration-stage values that belong to another row or to no step at all. Values
    that must outlive such a call are held here until the next step.

    What follows from positions and velocities is one substep behind after a step of the engine, unless it is asked
    for more, which costs up to a third of a step of a small model. It is asked where an open plan reads such values,
    and where no plan says what is read; otherwise whoever reads one makes the engine compute it, once.
    """

    def __init__(
        self,
        batch: Any,  # noqa: ANN401 - mujoco ships no types
        model: Any,  # noqa: ANN401 - mujoco ships no types
        layout: ModelLayout,
        *,
        persistent: bool,
        substep_sensors: tuple[str, ...],
        decimation: int,
    ) -> None:
        """Binds sensors, accelerations and forces; a derived field shows zeros until the call after its binding."""
        self._batch = batch
        self._model = model
        self._layout = layout
        self._persistent = persistent
        self._engine: dict[str, Array] = {name: batch.bind(name) for name in _HELD}
        self._arrays: dict[str, Array] = {"state": batch.state, **self._engine}
        """What packets are packed from: views that stay valid as long as the batch."""
        self._held: dict[str, Array] | None = None
        self._programs: WeakKeyDictionary[ReadLayout, PackProgram] = WeakKeyDictionary()
        self._plans: WeakKeyDictionary[HostBridgeTransferPlan, PackProgram] = WeakKeyDictionary()
        self._behind = False
        """Whether what follows from positions and velocities is that of an earlier state, in some row."""
        columns = [range(s.start, s.start + s.dim) for s in layout.sensors if s.stage != "acceleration"]
        self._fresh_columns = np.array([c for run in columns for c in run], dtype=np.int64)
        self._substep = [find(layout.sensors, name, "sensor") for name in substep_sensors]
        # The engine leaves position- and velocity-stage sensors one substep behind unless it is asked for more.
        self._lagging = any(sensor.stage != "acceleration" for sensor in self._substep)
        self._declared_steps = decimation
        self.history_steps = decimation
        """How many substeps the history holds: those of the last control step."""
        self._history = {sensor.name: self._empty(sensor.dim) for sensor in self._substep}
        self._stepped = False

    def _empty(self, dim: int) -> Array:
        return np.zeros((self._batch.nsim, self.history_steps, dim))

    # ------------------------------------------------------------------ what happened

    def follow(self, plan: HostBridgeTransferPlan) -> None:
        """Steps keep current what a plan reads, until it is closed."""
        self._plans[plan] = self._program(plan.layout)

    @property
    def steps_fresh(self) -> bool:
        """Whether a step leaves position- and velocity-stage values fresh, before anyone reads one."""
        reading = [program.follows_from_state for plan, program in self._plans.items() if not plan.closed]
        return any(reading) or not reading

    def step(self, nsteps: int) -> None:
        """Advances all rows and leaves position- and velocity-stage values fresh, or noted as behind."""
        self._held = None
        fresh = self.steps_fresh or self._lagging
        self._behind = not fresh
        last = _FRESH if fresh else _NONE
        if not self._substep:
            self._batch.step(nstep=nsteps, stage=last)
            return
        self._stepped = True
        if nsteps != self.history_steps:
            self.history_steps = nsteps
            self._history = {sensor.name: self._empty(sensor.dim) for sensor in self._substep}
        between = _FRESH if self._lagging else _NONE
        for i in range(nsteps):
            self._batch.step(nstep=1, stage=last if i == nsteps - 1 else between)
            for sensor in self._substep:
                values = self._engine["sensordata"][:, sensor.start : sensor.start + sensor.dim]
                self._history[sensor.name][:, i] = values

    def refresh(self, ids: Array | None) -> None:
        """Recomputes position- and velocity-stage values of rows; acceleration-stage values stay as they are.

        Of some rows only where they are current: otherwise all will be computed when one of them is read.
        """
        if ids is not None and self._behind:
            return
        if self._held is None and not self._persistent:
            self._held = {name: values.copy() for name, values in self._engine.items()}
        self._batch.forward(ids, stage=_FRESH)
        self._behind = False
        if self._held is not None and self._fresh_columns.size:
            rows = np.arange(self._batch.nsim) if ids is None else ids
            place = rows[:, None], self._fresh_columns
            self._held["sensordata"][place] = self._engine["sensordata"][place]

    def restarted(self, ids: Array) -> None:
        """Takes over the values of rows after a full forward, and clears their history."""
        for name, values in (self._held or {}).items():
            values[ids] = self._engine[name][ids]
        for values in self._history.values():
            values[ids] = 0.0

    # ------------------------------------------------------------------ snapshots

    def saved(self) -> dict[str, torch.Tensor]:
        """Returns copies of what a forward cannot compute again; before the first step a history has no substeps."""
        if self._behind and self._fresh_columns.size:
            self.refresh(None)
        last = self._engine if self._held is None else self._held
        out = {name: torch.from_numpy(last[name].copy()) for name in _HELD}
        steps = self.history_steps if self._stepped else 0
        history = {name: values[:, :steps].copy() for name, values in self._history.items()}
        return out | {f"history:{name}": torch.from_numpy(values) for name, values in history.items()}

    def hold(self, saved: dict[str, torch.Tensor]) -> None:
        """Puts back what `saved` returned; these values stay as saved until the next step."""
        self._batch.forward(stage=_FRESH)
        self._behind = False
        self._held = {name: saved[name].numpy().copy() for name in _HELD}
        history = {sensor.name: saved[f"history:{sensor.name}"].numpy().copy() for sensor in self._substep}
        lengths = {values.shape[1] for values in history.values()}  # one at most: it was checked
        self._stepped = any(lengths)
        self.history_steps = max(lengths) if self._stepped else self._declared_steps
        self._history = history if self._stepped else {s.name: self._empty(s.dim) for s in self._substep}

    # ------------------------------------------------------------------ reading

    def pack(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns of all rows, or of `env_ids`, into `out` (N or k, W) float32."""
        program = self._program(layout)
        if program.follows_from_state and self._behind:
            self.refresh(None)
        arrays, target = self._arrays, out.numpy()
        if self._held is not None:
            arrays = arrays | self._held
        rows: Any = slice(None)
        if env_ids is not None:
            rows = env_ids.numpy()
            arrays = {name: arrays[name].take(rows, axis=0) for name in program.fields}
        program.pack(arrays, target)
        for name, columns in program.histories:
            self._pack_history(name, layout.spec.decimation, target[:, columns], rows)

    def _program(self, layout: ReadLayout) -> PackProgram:
        """Returns how a layout is packed; what it reads and nothing has read before is bound and computed."""
        program = self._programs.get(layout)
        if program is not None:
            return program
        program = PackProgram(
            layout,
            self._layout,
            num_envs=self._batch.nsim,
            state_start={name: state_columns(self._batch, name).start for name in STATE_FIELDS},
            site_bodies=self._model.site_bodyid,
            body_roots=self._model.body_rootid,
        )
        unbound = [name for name in program.fields if name not in self._arrays]
        for name in unbound:
            self._arrays[name] = self._batch.bind(name)
        if unbound:
            self.refresh(None)
        self._programs[layout] = program
        return program

    def _pack_history(self, name: str, decimation: int, out: Array, rows: Any) -> None:  # noqa: ANN401 - an index
        values = self._history[name]
        if not self._stepped:
            out[:] = 0.0  # of whatever length
            return
        if values.shape[1] != decimation:
            raise ValueError(
                f"substep history of {name!r} holds {values.shape[1]} substeps, the plan reads {decimation}; "
                "step by the plan's decimation"
            )
        out[:] = values[rows].reshape(out.shape)
