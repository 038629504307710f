"""Where and with what a run was made: the content of `manifest.json`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unilab_rl.contracts.env import EnvProtocol
    from unilab_rl.run_config import RunConfig

__all__ = ["SCHEMA_VERSION", "installed_versions", "make_manifest", "thread_settings"]

SCHEMA_VERSION = 1
_DISTRIBUTIONS = (
    *("unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks"),
    *("torch", "rsl-rl-lib", "tensordict", "mujoco", "mujoco-warp", "warp-lang"),
)


def installed_versions() -> dict[str, str | None]:
    """Returns the version of Python and of every package that decides results; `None` where one isn't installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in _DISTRIBUTIONS}


def thread_settings() -> dict[str, Any]:
    """Returns what decides how sums are split among threads, and so their last bits."""
    import torch

    return {
        "cpus": os.cpu_count(),
        "torch": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "gomp_spincount": os.environ.get("GOMP_SPINCOUNT"),
    }


def make_manifest(
    config: RunConfig, env: EnvProtocol, *, overrides: Sequence[str] = (), now: datetime
) -> dict[str, Any]:
    """Returns the manifest of a new run as plain data.

    Args:
        config: The complete config.
        env: The environment as built.
        overrides: The overrides as they were typed.
        now: The time of creation.
    """
    import torch

    return {
        "schema_version": SCHEMA_VERSION,
        "created": now.isoformat(timespec="seconds"),
        "task": config.task,
        "algorithm": config.algorithm,
        "backend": config.backend,
        "device": str(env.device),
        "device_name": torch.cuda.get_device_name(env.device)
        if env.device.type == "cuda"
        else platform.machine(),
        "num_envs": env.num_envs,
        "seed": config.seed,
        "overrides": list(overrides),
        "versions": installed_versions(),
        "platform": platform.platform(),
        "threads": thread_settings(),
        "capabilities": dict(env.describe().capabilities),
        "config_hash": config.digest(),
        "resumes": [],
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
