"""Metrics: each returns (N,) float32, for the log only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["action_rate", "ended_by", "joint_speed"]

_ROBOT = SceneEntityCfg()


def ended_by(env: ManagerBasedRlEnv, term: str) -> torch.Tensor:
    """Returns 1 where a termination term fired in this step, else 0, (N,).

    With `reduce="last"` its mean over episodes is the share of episodes that the term ended.
    """
    return env.termination_manager.get_term(term).float()


def action_rate(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns how far the raw action is from that of the step before, (N,), the Euclidean norm over its columns."""
    manager = env.action_manager
    change: torch.Tensor = torch.linalg.vector_norm(manager.action - manager.prev_action, dim=1)
    return change


def joint_speed(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the mean absolute velocity of joints, (N,) m/s or rad/s."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_vel[:, entity.joint_ids(asset_cfg)].abs().mean(dim=1)
