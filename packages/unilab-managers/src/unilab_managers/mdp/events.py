"""Event terms: each is called with `(env, env_ids)`, env_ids (K,) int64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["reset_joints_by_offset"]

_ROBOT = SceneEntityCfg()


def reset_joints_by_offset(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    position_range: tuple[float, float],
    velocity_range: tuple[float, float],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Stages default joint state plus uniform offsets; positions are kept within the joint limits.

    Args:
        env: The environment.
        env_ids: (K,) rows being reset.
        position_range: Lowest and highest offset of each joint, m or rad.
        velocity_range: Lowest and highest offset of each joint's velocity, m/s or rad/s.
        asset_cfg: The joints.

    Raises:
        ValueError: A range is inverted.
    """
    for name, (low, high) in (("position_range", position_range), ("velocity_range", velocity_range)):
        if low > high:
            raise ValueError(f"{name} ({low}, {high}) is inverted; expected (low, high)")
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    data = entity.data
    pos = data.default_joint_pos[env_ids][:, ids]
    vel = data.default_joint_vel[env_ids][:, ids]
    limits = data.joint_pos_limits[env_ids][:, ids]
    pos = pos + env.rng.uniform(*position_range, tuple(pos.shape))
    vel = vel + env.rng.uniform(*velocity_range, tuple(vel.shape))
    data.write_joint_state(pos.clamp(limits[..., 0], limits[..., 1]), vel, env_ids, ids)
