"""What can be read: arrays that steps, resets and row writes bring up to date, and torch's views of them.

The engine computes whole batches, so that a reset of some rows computes all. What is read is therefore published from
the engine's arrays: to all rows after a step, to the rows concerned otherwise. Other rows keep every bit.
"""

from __future__ import annotations

from typing import Any

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp

from unisim.backends.mujoco_warp.reads_kernels import (
    clear_rows,
    publish_columns,
    publish_frames,
    record_substep,
)
from unisim.model_layout import ModelLayout, find

__all__ = ["PublishedReads"]


def _columns(runs: list[range]) -> Any:  # noqa: ANN401 - a wp.array
    return wp.array(np.array([c for run in runs for c in run], dtype=np.int32), dtype=wp.int32)


class PublishedReads:
    """Reads of one batch. Its methods launch; they are made to be captured.

    Attributes:
        arrays: Every published array by a name of its own, as torch tensors (N, ...): what a snapshot saves.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - mujoco_warp ships no types
        data: Any,  # noqa: ANN401 - mujoco_warp ships no types
        layout: ModelLayout,
        *,
        substep_sensors: tuple[str, ...],
        decimation: int,
    ) -> None:
        """Makes the arrays on Warp's current device, zero."""
        self._model, self._data, self._layout = model, data, layout
        n, sensors = data.nworld, layout.sensors
        self._everyone = wp.full(n, True, dtype=wp.bool)
        self._sensordata = wp.zeros((n, sum(s.dim for s in sensors)), dtype=float)
        self._qacc = wp.zeros((n, layout.nv), dtype=float)
        self._force = wp.zeros((n, layout.nu), dtype=float)
        self._bodies = wp.zeros((n, len(layout.bodies), 13), dtype=float)
        self._sites = wp.zeros((n, len(layout.sites), 13), dtype=float)
        self._every_body = _columns([range(len(layout.bodies))])
        self._not_turned = wp.zeros((1, 0), dtype=wp.quat)
        runs = {s.name: range(s.start, s.start + s.dim) for s in sensors}
        held = {s.name for s in sensors if s.stage == "acceleration"}
        self._held_columns = _columns([run for name, run in runs.items() if name in held])
        self._fresh_columns = _columns([run for name, run in runs.items() if name not in held])
        self._joint_columns, self._force_columns = _columns([range(layout.nv)]), _columns([range(layout.nu)])
        self._substep = [find(sensors, name, "sensor") for name in substep_sensors]
        self._history = {s.name: wp.zeros((n, decimation * s.dim), dtype=float) for s in self._substep}
        self.lagging = any(sensor.stage != "acceleration" for sensor in self._substep)
        """Whether a recorded sensor is one that the engine leaves a substep behind."""
        # Sensors of distances and contacts need collisions, and that of the kinetic energy the masses.
        self._whole_position_stage = bool(
            model.nsensorcollision
            or model.sensor_contact_pos_adr.size
            or model.sensor_contact_vel_adr.size
            or model.sensor_e_kinetic
        )
        published = {
            "sensordata": self._sensordata,
            "qacc": self._qacc,
            "actuator_force": self._force,
            "bodies": self._bodies,
            "sites": self._sites,
            **{f"substep:{name}": values for name, values in self._history.items()},
        }
        self.arrays: dict[str, torch.Tensor] = {name: wp.to_torch(array) for name, array in published.items()}

    # ------------------------------------------------------------------ launches

    def after_substep(self, *, last: bool) -> None:
        """Publishes what an integrated substep has left, to all rows."""
        if last or self._substep:
            self._publish_held(self._everyone)
        if last or self.lagging:
            self.refresh(self._everyone)
        for sensor in self._substep:
            inputs = [sensor.start, sensor.dim, self._sensordata]
            wp.launch(record_substep, self._data.nworld, inputs=inputs, outputs=[self._history[sensor.name]])

    def refresh(self, mask: Any) -> None:  # noqa: ANN401 - a wp.array
        """Computes position- and velocity-stage values of the present state, and publishes them."""
        m, d = self._model, self._data
        if self._whole_position_stage:
            mjw.fwd_position(m, d, factorize=False)
        else:
            mjw.fwd_kinematics(m, d)
            mjw.transmission(m, d)
        d.sensordata.zero_()  # some kinds write only where they have something to say
        mjw.sensor_pos(m, d)
        mjw.fwd_velocity(m, d)
        mjw.sensor_vel(m, d)
        self._publish_fresh(mask)

    def after_forward(self, mask: Any) -> None:  # noqa: ANN401 - a wp.array
        """Publishes everything after a full forward of restarted rows, and clears their history."""
        self._publish_held(mask)
        self._publish_fresh(mask)
        for values in self._history.values():
            wp.launch(clear_rows, self._data.nworld, inputs=[mask], outputs=[values])

    def _publish_held(self, mask: Any) -> None:  # noqa: ANN401 - a wp.array
        for columns, source, target in (
            (self._held_columns, self._data.sensordata, self._sensordata),
            (self._joint_columns, self._data.qacc, self._qacc),
            (self._force_columns, self._data.actuator_force, self._force),
        ):
            self._publish(mask, columns, source, target)

    def _publish_fresh(self, mask: Any) -> None:  # noqa: ANN401 - a wp.array
        m, d = self._model, self._data
        self._publish(mask, self._fresh_columns, d.sensordata, self._sensordata)
        for bodies, turns, positions, out in (
            (self._every_body, self._not_turned, d.xpos, self._bodies),
            (m.site_bodyid, m.site_quat, d.site_xpos, self._sites),
        ):
            motion = [positions, d.xquat, d.cvel, d.subtree_com]
            inputs = [mask, bodies, turns, m.body_rootid, *motion]
            wp.launch(publish_frames, dim=out.shape[:2], inputs=inputs, outputs=[out])

    def _publish(self, mask: Any, columns: Any, source: Any, target: Any) -> None:  # noqa: ANN401
        dim = (self._data.nworld, columns.size)
        wp.launch(publish_columns, dim=dim, inputs=[mask, columns, source], outputs=[target])

    # ------------------------------------------------------------------ views

    def view(self, key: str) -> torch.Tensor:
        """Returns the live values of a key of a read packet that is not part of the state, (N, width)."""
        kind, _, name = key.partition(":")
        if kind == "sensor":
            sensor = find(self._layout.sensors, name, "sensor")
            return self.arrays["sensordata"][:, sensor.start : sensor.start + sensor.dim]
        if kind == "body":
            return self.arrays["bodies"][:, self._layout.bodies.index(name)]
        if kind == "site":
            return self.arrays["sites"][:, self._layout.sites.index(name)]
        return self.arrays[key]
