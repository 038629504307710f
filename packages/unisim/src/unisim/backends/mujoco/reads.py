"""What can be read from a MuJoCo batch: state, sensors, bodies, sites, substep history; packed as float32."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import mujoco
import numpy as np
import torch

from unisim.model_layout import ModelLayout, find
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS, ReadLayout

__all__ = ["BatchReads"]

Array = np.ndarray[Any, Any]

_HELD = ("sensordata", *ACCELERATION_FIELDS)
"""Fields of the engine whose values no forward of the present state brings back."""


class _Frames(NamedTuple):
    """Bodies or sites that stand side by side in a packet."""

    columns: slice
    pos: str
    quat: str
    elements: Array
    """(F,) which of the engine's bodies or sites."""
    bodies: Array
    """(F,) the bodies that they are fixed to."""
    roots: Array
    """(F,) the roots of the trees of these."""


class BatchReads:
    """Reads of one batch, always current: the owner tells it what happened to which rows.

    Some calls of the engine leave acceleration-stage values that belong to another row or to no step at all. Values
    that must outlive such a call are held here until the next step.
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
        self._held: dict[str, Array] | None = None
        self._outputs: dict[str, Array] = {}
        self._frames: WeakKeyDictionary[ReadLayout, list[_Frames]] = WeakKeyDictionary()
        columns = [range(s.start, s.start + s.dim) for s in layout.sensors if s.stage != "acceleration"]
        self._fresh_columns = np.array([c for run in columns for c in run], dtype=np.int64)
        self._substep = [find(layout.sensors, name, "sensor") for name in substep_sensors]
        # The engine leaves position- and velocity-stage sensors one substep behind unless it is asked for more.
        lagging = any(sensor.stage != "acceleration" for sensor in self._substep)
        self._between = mujoco.mjtStage.mjSTAGE_VEL if lagging else mujoco.mjtStage.mjSTAGE_NONE
        self._declared_steps = decimation
        self.history_steps = decimation
        """How many substeps the history holds: those of the last control step."""
        self._history = {sensor.name: self._empty(sensor.dim) for sensor in self._substep}
        self._stepped = False

    def _empty(self, dim: int) -> Array:
        return np.zeros((self._batch.nsim, self.history_steps, dim))

    # ------------------------------------------------------------------ what happened

    def step(self, nsteps: int) -> None:
        """Advances all rows and leaves position- and velocity-stage values fresh."""
        self._held = None
        fresh = mujoco.mjtStage.mjSTAGE_VEL
        if not self._substep:
            self._batch.step(nstep=nsteps, stage=fresh)
            return
        self._stepped = True
        if nsteps != self.history_steps:
            self.history_steps = nsteps
            self._history = {sensor.name: self._empty(sensor.dim) for sensor in self._substep}
        for i in range(nsteps):
            self._batch.step(nstep=1, stage=fresh if i == nsteps - 1 else self._between)
            for sensor in self._substep:
                values = self._engine["sensordata"][:, sensor.start : sensor.start + sensor.dim]
                self._history[sensor.name][:, i] = values

    def refresh(self, ids: Array | None) -> None:
        """Recomputes position- and velocity-stage values of rows; acceleration-stage values stay as they are."""
        if self._held is None and not self._persistent:
            self._held = {name: values.copy() for name, values in self._engine.items()}
        self._batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_VEL)
        if self._held is not None:
            rows = np.arange(self._batch.nsim) if ids is None else ids
            place = np.ix_(rows, self._fresh_columns)
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
        out = {name: torch.from_numpy(self._last(name).copy()) for name in _HELD}
        steps = self.history_steps if self._stepped else 0
        history = {name: values[:, :steps].copy() for name, values in self._history.items()}
        return out | {f"history:{name}": torch.from_numpy(values) for name, values in history.items()}

    def hold(self, saved: dict[str, torch.Tensor]) -> None:
        """Puts back what `saved` returned; these values stay as saved until the next step."""
        self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_VEL)
        self._held = {name: saved[name].numpy().copy() for name in _HELD}
        history = {sensor.name: saved[f"history:{sensor.name}"].numpy().copy() for sensor in self._substep}
        lengths = {values.shape[1] for values in history.values()}  # one at most: it was checked
        self._stepped = any(lengths)
        self.history_steps = max(lengths) if self._stepped else self._declared_steps
        self._history = history if self._stepped else {s.name: self._empty(s.dim) for s in self._substep}

    # ------------------------------------------------------------------ reading

    def _last(self, name: str) -> Array:
        """Returns the right values of a field of `_HELD`, (N, width) float64; not to be written."""
        return (self._engine if self._held is None else self._held)[name]

    def pack(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns of all rows, or of `env_ids`, into `out` (N or k, W) float32."""
        target = out.numpy()
        rows: Any = slice(None) if env_ids is None else env_ids.numpy()
        for block in layout.blocks:
            kind, _, name = block.key.partition(":")
            columns = target[:, block.start : block.stop]
            if kind in STATE_FIELDS:
                columns[:] = self._batch.bind(kind)[rows]
            elif kind in ACCELERATION_FIELDS:
                columns[:] = self._last(kind)[rows]
            elif kind == "sensor":
                sensor = find(self._layout.sensors, name, "sensor")
                columns[:] = self._last("sensordata")[rows, sensor.start : sensor.start + sensor.dim]
            elif kind == "substep":
                self._pack_history(name, layout.spec.decimation, columns, rows)
        if layout not in self._frames:
            self._frames[layout] = self._frames_of(layout)
        for frames in self._frames[layout]:
            self._pack_frames(frames, target[:, frames.columns], rows)

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

    def _output(self, name: str) -> Array:
        """Returns a derived field; the first use binds it and fills it without touching other values."""
        values = self._outputs.get(name)
        if values is None:
            values = self._outputs[name] = self._batch.bind(name)
            self.refresh(None)
        return values

    def _frames_of(self, layout: ReadLayout) -> list[_Frames]:
        """Returns the bodies and the sites of a packet; each of the two stands side by side in it."""
        found = []
        for kind, names, own, pos, quat in (
            ("body", layout.spec.bodies, self._layout.bodies, "xpos", "xquat"),
            ("site", layout.spec.sites, self._layout.sites, "site_xpos", "site_xquat"),
        ):
            if names:
                blocks = [layout.columns(f"{kind}:{name}") for name in names]
                elements = np.array([own.index(name) for name in names])
                bodies = elements if kind == "body" else self._model.site_bodyid[elements]
                columns = slice(blocks[0].start, blocks[-1].stop)
                found.append(_Frames(columns, pos, quat, elements, bodies, self._model.body_rootid[bodies]))
        return found

    def _pack_frames(self, frames: _Frames, out: Array, rows: Any) -> None:  # noqa: ANN401 - an index
        """Packs poses and velocities of frames; the engine's velocity is moved to their origin, v + w x r."""

        def of(name: str, elements: Array) -> Array:
            values = self._output(name)
            return values[:, elements] if isinstance(rows, slice) else values[np.ix_(rows, elements)]

        n, width = out.shape
        each = out.reshape(n, frames.elements.size, width // frames.elements.size)  # a view
        spatial, position = of("cvel", frames.bodies), of(frames.pos, frames.elements)
        each[..., 0:3] = position
        each[..., 3:7] = of(frames.quat, frames.elements)
        w, arm = spatial[..., 0:3], position - of("subtree_com", frames.roots)
        for x, y, z in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            turned = w[..., y] * arm[..., z] - w[..., z] * arm[..., y]
            each[..., 7 + x] = spatial[..., 3 + x] + turned
        each[..., 10:13] = w
