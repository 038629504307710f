"""MuJoCo-Warp: the state stays on one CUDA device, and so does everything that is read from it."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING

from unisim.errors import CapabilityError

if TYPE_CHECKING:
    from unisim.contract import Declared, SimBackend
    from unisim.scene import SceneCfg, SimCfg

__all__ = ["create_backend"]

_LOGGER = logging.getLogger(__name__)


def create_backend(
    scene: SceneCfg, sim: SimCfg, *, num_envs: int, device: str = "cpu", declared: Declared | None = None
) -> SimBackend:
    """Returns the MuJoCo-Warp backend of a scene; see `unisim.make_backend`.

    Raises:
        CapabilityError: MuJoCo-Warp is not installed, the device is not there, or the model or something declared is
            not supported.
    """
    for module in ("mujoco", "warp", "mujoco_warp"):
        if importlib.util.find_spec(module) is None:
            raise CapabilityError("backend 'mujoco_warp' needs it: pip install 'unisim[mujoco-warp]>=2.0'")
    from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend

    backend = MuJoCoWarpBackend(scene, sim, num_envs=num_envs, device=device, declared=declared)
    if device == "cpu":
        _LOGGER.warning(
            "MuJoCo-Warp computes on device 'cpu', which is also the default: that is a test path, several times "
            "slower than backend 'mujoco'; ask for device 'cuda' where there is one"
        )
    return backend
