"""MuJoCo on the CPU: a host bridge over `mujoco.batch`."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from unisim.errors import CapabilityError
from unisim.render import GL_REMEDY

if TYPE_CHECKING:
    from unisim.contract import Declared, SimBackend
    from unisim.scene import SceneCfg, SimCfg

__all__ = ["create_backend"]


def create_backend(
    scene: SceneCfg, sim: SimCfg, *, num_envs: int, device: str = "cpu", declared: Declared | None = None
) -> SimBackend:
    """Returns the MuJoCo backend of a scene; see `unisim.make_backend`.

    Raises:
        CapabilityError: MuJoCo is not installed or cannot be imported, or something declared is not supported.
    """
    if importlib.util.find_spec("mujoco") is None:
        raise CapabilityError("backend 'mujoco' needs MuJoCo: pip install 'unisim[mujoco]>=2.0'")
    try:
        import mujoco  # noqa: F401 - it loads what MUJOCO_GL names
    except Exception as error:
        raise CapabilityError(
            f"backend 'mujoco': MuJoCo cannot be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r} "
            f"({type(error).__name__}: {error}); unset it, or {GL_REMEDY}"
        ) from error
    from unisim.backends.mujoco.backend import MuJoCoBackend

    return MuJoCoBackend(scene, sim, num_envs=num_envs, device=device, declared=declared)
