"""MuJoCo on the CPU: a host bridge over `mujoco.batch`."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from unisim.errors import CapabilityError

if TYPE_CHECKING:
    from unisim.contract import Declared, SimBackend
    from unisim.scene import SceneCfg, SimCfg

__all__ = ["create_backend"]


def create_backend(
    scene: SceneCfg, sim: SimCfg, *, num_envs: int, device: str = "cpu", declared: Declared | None = None
) -> SimBackend:
    """Returns the MuJoCo backend of a scene; see `unisim.make_backend`.

    Raises:
        CapabilityError: MuJoCo is not installed, or something declared is not supported.
    """
    if importlib.util.find_spec("mujoco") is None:
        raise CapabilityError("backend 'mujoco' needs MuJoCo: pip install 'unisim[mujoco]>=2.0'")
    from unisim.backends.mujoco.backend import MuJoCoBackend

    return MuJoCoBackend(scene, sim, num_envs=num_envs, device=device, declared=declared)
