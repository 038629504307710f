"""Observation terms: each returns (N, dim) float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["joint_pos", "joint_pos_rel", "joint_vel", "last_action"]

_ROBOT = SceneEntityCfg()


def joint_pos(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns joint positions, (N, J) m or rad."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_pos[:, entity.joint_ids(asset_cfg)]


def joint_pos_rel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns joint positions relative to the default ones, (N, J) m or rad."""
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    return entity.data.joint_pos[:, ids] - entity.data.default_joint_pos[:, ids]


def joint_vel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns joint velocities, (N, J) m/s or rad/s."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_vel[:, entity.joint_ids(asset_cfg)]


def last_action(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the raw action of this step, (N, A); zero right after a reset."""
    return env.action_manager.action
