"""Variants of a task in which much happens in few steps: short episodes, short timers, scattered starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.env_cfg import TermsCfg
from unisim.config import Cfg

__all__ = ["bare", "hurried", "is_point", "scatter", "scattered", "without_corruption"]

EPISODE_STEPS = 12
"""Control steps of a hurried episode."""
_INTERVAL_STEPS = (2, 4)
_COMMAND_STEPS = (4, 6)
_LEANS = 0.6
"""How far scattered roots lean over, rad: far enough to fall, but not lying on the ground."""
_LIFT = 0.3
_SPEED = 1.0
_REACH = 1.0
"""How far scattered joints without limits are from their defaults, m or rad."""


def bare(cfg: TermsCfg) -> TermsCfg:
    """Returns the task without what leaves the process: no recorders, no dumps of a guard."""
    return cfg.model_copy(update={"recorders": {}, "nan_guard": None})


def without_corruption(cfg: TermsCfg) -> TermsCfg:
    """Returns the task with observations as they are, without noise."""
    return cfg.model_copy(
        update={
            "observations": {
                name: group.model_copy(update={"enable_corruption": False})
                for name, group in cfg.observations.items()
            }
        }
    )


def hurried(cfg: TermsCfg) -> TermsCfg:
    """Returns the task with short episodes and with timers so short that they run down in them."""
    dt = cfg.step_dt
    return cfg.model_copy(
        update={
            "episode_length_s": min(cfg.episode_length_s, EPISODE_STEPS * dt),
            "events": {name: _hurried_event(term, dt) for name, term in cfg.events.items()},
            "commands": {name: _hurried_command(term, dt) for name, term in cfg.commands.items()},
        }
    )


def _hurried_event(term: EventTermCfg, dt: float) -> EventTermCfg:
    changes: dict[str, Any] = {}
    if term.interval_range_s is not None:
        changes["interval_range_s"] = _steps(_INTERVAL_STEPS, dt)
    if term.min_step_count_between_reset:
        changes["min_step_count_between_reset"] = min(term.min_step_count_between_reset, EPISODE_STEPS // 2)
    shorter = {
        name: _steps((1, 2), dt)
        for name, value in term.params.items()
        if name.endswith("_range_s") and _is_pair(value)
    }
    if shorter:
        changes["params"] = {**term.params, **shorter}
    return term.model_copy(update=changes) if changes else term


def _hurried_command(term: Cfg, dt: float) -> Cfg:
    return term.model_copy(update={"resampling_time_range": _steps(_COMMAND_STEPS, dt)})


def _steps(steps: tuple[int, int], dt: float) -> tuple[float, float]:
    return steps[0] * dt, steps[1] * dt


def scattered(cfg: TermsCfg) -> TermsCfg:
    """Returns the task with starts all over the place, so that terms see states that its own starts never lead to."""
    event = EventTermCfg(func=scatter, mode="reset")
    return cfg.model_copy(update={"events": {**cfg.events, "unilab_check_scatter": event}})


def scatter(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Stages random joint state within the limits, and random poses and velocities of free roots.

    Args:
        env: The environment.
        env_ids: (K,) rows being reset.
    """
    k = env_ids.numel()
    for entity in env.model_layout.entities:
        data = env.scene[entity.name].data
        default, limits = data.default_joint_pos[env_ids], data.joint_pos_limits[env_ids]
        low = torch.where(limits[..., 0].isfinite(), limits[..., 0], default - _REACH)
        high = torch.where(limits[..., 1].isfinite(), limits[..., 1], default + _REACH)
        speed = env.rng.uniform(-_SPEED, _SPEED, tuple(default.shape))
        data.write_joint_state(env.rng.uniform(low, high, tuple(default.shape)), speed, env_ids)
        if entity.root_joint is None:
            continue
        position = data.root_pos_w[env_ids].clone()
        position[:, 2] += env.rng.uniform(0.0, _LIFT, k)
        data.write_root_pose(torch.cat([position, _leaning(env, k)], dim=1), env_ids)
        spin = env.rng.uniform(-_SPEED, _SPEED, (k, 6))
        data.write_root_velocity(spin[:, :3].contiguous(), spin[:, 3:].contiguous(), env_ids)


def _leaning(env: ManagerBasedRlEnv, count: int) -> torch.Tensor:
    """Returns (K, 4) orientations, wxyz: turned about any axis by an angle up to `_LEANS`."""
    axis = torch.nn.functional.normalize(env.rng.normal(0.0, 1.0, (count, 3)), dim=1)
    half = env.rng.uniform(0.0, _LEANS / 2.0, (count, 1))
    return torch.cat([half.cos(), half.sin() * axis], dim=1)


def is_point(params: Mapping[str, Any]) -> bool:
    """Whether all ranges among a term's parameters have no width, and there is at least one."""
    pairs = list(_ranges(params))
    return bool(pairs) and all(math.isclose(low, high, abs_tol=0.0) for low, high in pairs)


def _ranges(params: Mapping[str, Any]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for name, value in params.items():
        if "range" not in name:
            continue
        values = list(value.values()) if isinstance(value, Mapping) else [value]
        found += [(item[0], item[1]) for item in values if _is_pair(item)]
    return found


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    )
