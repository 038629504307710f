"""Pairs of backends, MuJoCo's and MuJoCo-Warp's on its CPU device, of the same scenes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from leg_model import leg_backend

from unisim import EntityCfg, SceneCfg, SensorCfg, SimCfg
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared


def warp_backend(
    build: Callable[..., Any],
    num_envs: int,
    *,
    sim: SimCfg | None = None,
    declared: Declared | None = None,
    sensors: tuple[SensorCfg, ...] = (),
    params: dict[str, Any] | None = None,
    backend_class: type = MuJoCoWarpBackend,
) -> Any:
    """N rows of one entity `robot`."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build, params=params or {})}, sensors=sensors)
    return backend_class(scene, sim or SimCfg(timestep=0.004), num_envs=num_envs, declared=declared)


def leg_pair(num_envs: int, declared: Declared | None = None) -> tuple[Any, Any]:
    """Legs on MuJoCo-Warp and on MuJoCo."""
    return tuple(
        leg_backend(num_envs, declared=declared, backend_class=kind)
        for kind in (MuJoCoWarpBackend, MuJoCoBackend)
    )


def controls(backend: Any, steps: int, seed: int = 0, scale: float = 1.0) -> list[torch.Tensor]:
    """Random controls in [-scale, scale] and wrenches of up to a tenth of it."""
    generator = torch.Generator().manual_seed(seed)
    nu = backend.model_layout.nu
    width = nu + 6 * len(backend.declared.wrench_bodies)
    made = [
        scale * (2.0 * torch.rand(backend.num_envs, width, generator=generator) - 1.0) for _ in range(steps)
    ]
    for ctrl in made:
        ctrl[:, nu:] *= 0.1
    return made


def everything(backend: Any) -> dict[str, torch.Tensor]:
    """Copies of all that can be read."""
    layout = backend.model_layout
    keys = [
        *("qpos", "qvel", "ctrl", "qacc", "actuator_force"),
        *(f"sensor:{sensor.name}" for sensor in layout.sensors),
        *(f"body:{name}" for name in layout.bodies),
        *(f"site:{name}" for name in layout.sites),
        *(f"substep:{name}" for name in backend.declared.substep_sensors),
    ]
    return {key: values.clone() for key, values in backend.get_state_views(keys).items()}


def largest_difference(one: Any, other: Any, key: str = "qpos") -> float:
    """The largest absolute difference of a read between two backends."""
    return float((one.get_state_views((key,))[key] - other.get_state_views((key,))[key]).abs().max())
