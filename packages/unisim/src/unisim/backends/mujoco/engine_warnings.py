"""What the engine warns of goes to the logger: by default it writes stderr and a file in the working directory."""

from __future__ import annotations

import logging
from typing import Any

import mujoco
import numpy as np

__all__ = ["BAD_ROW", "EngineWarnings", "log_engine_message"]

_LOGGER = logging.getLogger(__name__)

BAD_ROW = (
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
)
"""Kinds of warning that make a row bad."""

_FULL = (int(mujoco.mjtWarning.mjWARN_CONTACTFULL), int(mujoco.mjtWarning.mjWARN_CNSTRFULL))
_INERTIA = int(mujoco.mjtWarning.mjWARN_INERTIA)
_NUM_KINDS = int(mujoco.mjtWarning.mjNWARNING)
_OPENINGS = tuple(
    mujoco.mju_warningText(kind, 0).split(".")[0].rstrip("0123456789") for kind in range(_NUM_KINDS)
)


def log_engine_message(message: str) -> None:
    """Takes the engine's warnings; those of one row are for debugging, since every row repeats them."""
    level = logging.DEBUG if message.startswith(_OPENINGS) else logging.WARNING
    _LOGGER.log(level, "MuJoCo: %s", message)


class EngineWarnings:
    """Reports each kind of warning of one batch once, with the setting to change."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - mujoco ships no types
        """Nothing has been reported yet."""
        self._memory_mib = model.narena / 2**20
        self._reported = np.zeros(_NUM_KINDS, dtype=bool)

    @staticmethod
    def any(warnings: np.ndarray[Any, Any]) -> bool:
        """Whether any row has a warning since its last reset, among (N, kinds, 2): nearly always none has."""
        return bool(np.count_nonzero(warnings))

    def know(self, warnings: np.ndarray[Any, Any]) -> None:
        """Takes the kinds among `warnings` for reported: a snapshot brings back what was told when it was made."""
        self._reported |= warnings[:, :, 1].any(axis=0)

    def report(self, warnings: np.ndarray[Any, Any]) -> None:
        """Logs the kinds that are new among (N, kinds, 2) last infos and counts."""
        if not self.any(warnings):
            return
        new = warnings[:, :, 1].any(axis=0) & ~self._reported
        if not new.any():
            return
        self.know(warnings)
        for kind in new.nonzero()[0].tolist():
            row = int(warnings[:, kind, 1].argmax())
            text = mujoco.mju_warningText(kind, int(warnings[row, kind, 0]))
            _LOGGER.warning("MuJoCo: row %d: %s%s (reported once)", row, text, self._remedy(kind))

    def _remedy(self, kind: int) -> str:
        if kind in _FULL:
            return f" Raise sim.memory_mib: a row has {self._memory_mib:.3g} MiB."
        if kind == _INERTIA:
            return " Raise the inertia or the armature of that joint, or lower sim.timestep."
        return ""
