"""The control that holds the pose of a reset: of actuators that are biased by position, their length there."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from unisim.backends.mujoco.packing import Array
from unisim.model_layout import ModelLayout
from unisim.scene_model import holding_actuators

__all__ = ["HoldingControl"]

_POS = mujoco.mjtStage.mjSTAGE_POS
_DIRECT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_SCALAR = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))


class HoldingControl:
    """Writes controls of rows whose positions are those of their reset."""

    def __init__(self, batch: Any, model: Any, layout: ModelLayout) -> None:  # noqa: ANN401 - mujoco ships no types
        """Finds the actuators, and binds their lengths where the engine must work these out."""
        self._batch = batch
        self._actuators = holding_actuators(model)
        self._range = np.array([layout.actuators[i].ctrl_range for i in self._actuators]).T
        joints = model.actuator_trnid[self._actuators, 0]
        is_direct = np.isin(model.actuator_trntype[self._actuators], _DIRECT)
        is_direct[is_direct] = np.isin(model.jnt_type[joints[is_direct]], _SCALAR)
        self._lengths: Array | None = None
        if is_direct.all():
            # The engine has the same product: `length = gear * qpos` of a slide or a hinge, whatever else is there.
            self._columns = model.jnt_qposadr[joints]
            self._gears = model.actuator_gear[self._actuators, 0]
        else:
            self._lengths = batch.bind("actuator_length")

    def write(self, ids: Array, qpos: Array, ctrl: Array) -> None:
        """Writes the controls of rows.

        Args:
            ids: (k,) int64, ascending.
            qpos: (N, Q) float64: the engine's positions, those of the reset.
            ctrl: (N, A) float64: the engine's controls, of which those that hold a length are written.
        """
        if not self._actuators.size:
            return
        rows = ids[:, None]
        if self._lengths is None:
            lengths = qpos[rows, self._columns] * self._gears
        else:
            self._batch.forward(ids, stage=_POS)
            lengths = self._lengths[rows, self._actuators]
        ctrl[rows, self._actuators] = np.clip(lengths, *self._range)
