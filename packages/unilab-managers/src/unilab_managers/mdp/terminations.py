"""Termination terms: each returns (N,) bool."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["bad_orientation", "root_height_below_minimum", "time_out"]

_ROBOT = SceneEntityCfg()


def time_out(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns which episodes have reached the time limit, (N,) bool; a truncation by itself."""
    return env.timed_out


time_out.is_time_out = True  # type: ignore[attr-defined] # what a termination says of itself


def bad_orientation(
    env: ManagerBasedRlEnv, limit_angle: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns where the root's z axis is more than `limit_angle` rad away from straight up, (N,) bool."""
    # The gravity's z is minus the cosine of that angle, which falls as the angle grows to pi.
    return env.scene[asset_cfg.name].data.projected_gravity_b[:, 2] > -math.cos(limit_angle)


def root_height_below_minimum(
    env: ManagerBasedRlEnv, minimum_height: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns where the origin of the root frame is lower than `minimum_height` m in the world, (N,) bool."""
    return env.scene[asset_cfg.name].data.root_pos_w[:, 2] < minimum_height
