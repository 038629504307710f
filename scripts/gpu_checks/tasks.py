"""Names of what is checked; nothing is imported here."""

from __future__ import annotations

__all__ = ["CARTPOLE", "HOST", "QUADRUPED", "RESIDENT"]

RESIDENT, HOST = "mujoco_warp", "mujoco"
"""The backend that is checked, and the one that it is compared with."""
QUADRUPED, CARTPOLE = "velocity-flat-quadruped", "cartpole-balance"
