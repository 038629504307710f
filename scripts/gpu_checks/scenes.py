"""What the checks simulate, and small helpers that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpu_checks.reporting import Report
from gpu_checks.tasks import RESIDENT
from unilab_tasks.robots.ground import build_ground
from unilab_tasks.robots.quad12 import quad12
from unisim import (
    BuiltinSensorCfg,
    ContactSensorCfg,
    EntityCfg,
    ResetPayload,
    SceneCfg,
    SensorCfg,
    SimBackend,
    SimCfg,
    make_backend,
)

__all__ = [
    "hold",
    "make_quadruped",
    "mask_of",
    "per_second",
    "reads_of",
    "synchronize",
]

_SENSORS: tuple[SensorCfg, ...] = (
    ContactSensorCfg(name="ground_force", target="robot/FR_calf", data=("found", "force")),
    BuiltinSensorCfg(name="gyro", kind="gyro", target="robot/imu"),
    BuiltinSensorCfg(name="accelerometer", kind="accelerometer", target="robot/imu"),
    BuiltinSensorCfg(name="foot_velocity", kind="framelinvel", target="robot/FL_foot"),
)
"""Of every stage."""


def make_quadruped(
    report: Report, num_envs: int, *, backend: str = RESIDENT, sim: Mapping[str, Any] | None = None
) -> SimBackend:
    """Returns `quad12` on flat ground with sensors of every stage; the host backend's tensors stay in host memory."""
    scene = SceneCfg(entities={"ground": EntityCfg(spec=build_ground), "robot": quad12()}, sensors=_SENSORS)
    settings = SimCfg(timestep=0.005, cone="pyramidal", **(sim or {}))
    device = report.device if backend == RESIDENT else "cpu"
    return make_backend(backend, scene, settings, num_envs=num_envs, device=device)


def hold(backend: SimBackend) -> torch.Tensor:
    """Resets every row, and returns the control that holds its pose, (N, A) float32."""
    device = backend.get_state_views()["qpos"].device
    rows = torch.arange(backend.num_envs, device=device)
    backend.apply_reset(torch.ones_like(rows, dtype=torch.bool), ResetPayload(rows))
    return backend.get_state_views()["ctrl"].clone()


def mask_of(rows: torch.Tensor, num_envs: int) -> torch.Tensor:
    """Returns (N,) bool, true at `rows`, on their device."""
    mask = torch.zeros(num_envs, dtype=torch.bool, device=rows.device)
    return mask.index_fill_(0, rows, True)


def reads_of(backend: SimBackend) -> dict[str, torch.Tensor]:
    """Returns copies in host memory of everything that can be read, by key."""
    layout, can = backend.model_layout, backend.get_tensor_capabilities()
    keys = [*can.state_fields, *can.acceleration_fields]
    keys += [f"body:{name}" for name in layout.bodies] + [f"site:{name}" for name in layout.sites]
    keys += [f"sensor:{sensor.name}" for sensor in layout.sensors]
    views = backend.get_state_views([key for key in keys if not key.startswith("sensor:")])
    found = {key: values.cpu().clone() for key, values in views.items()}
    for sensor in layout.sensors:
        found[f"sensor:{sensor.name}"] = backend.get_sensor_view(sensor.name).cpu().clone()
    return found


def synchronize(report: Report) -> None:
    """Makes the host wait for everything on the device."""
    if torch.device(report.device).type == "cuda":
        torch.cuda.synchronize()


def per_second(report: Report, call: Callable[[], object], *, seconds: float, most: int) -> float:
    """Returns how often per second `call` runs, everything that it puts on the device included.

    It is run once first, then for `seconds` or `most` times.
    """
    call()
    synchronize(report)
    began, count = time.perf_counter(), 0
    while count < most:
        call()
        count += 1
        if count % 4 == 0 or count == most:
            synchronize(report)  # otherwise calls would be queued for much longer than `seconds`
            if time.perf_counter() - began >= seconds:
                break
    synchronize(report)
    return count / (time.perf_counter() - began)
