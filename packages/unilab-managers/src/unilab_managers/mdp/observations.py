"""Observation terms: each returns (N, dim) float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp._columns import chosen
from unilab_managers.mdp.labels import (
    action_columns,
    columns,
    command_columns,
    fixed_columns,
    joint_columns,
    joint_units,
    joint_velocity_units,
)

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "base_ang_vel",
    "base_height",
    "base_lin_vel",
    "generated_commands",
    "joint_pos",
    "joint_pos_rel",
    "joint_vel",
    "joint_vel_rel",
    "last_action",
    "previous_action",
    "projected_gravity",
]

_ROBOT = SceneEntityCfg()
_XYZ = fixed_columns("x", "y", "z")


@columns(unit="m/s", names=_XYZ)
def base_lin_vel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the velocity of the root frame's origin in the root's own frame, (N, 3) m/s."""
    return env.scene[asset_cfg.name].data.root_lin_vel_b


@columns(unit="rad/s", names=_XYZ)
def base_ang_vel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the root's angular velocity in its own frame, (N, 3) rad/s: what a gyroscope shows."""
    return env.scene[asset_cfg.name].data.root_ang_vel_b


@columns(unit="m", names=fixed_columns("z"))
def base_height(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns how high the origin of the root frame is above the plane z = 0 of the world, (N, 1) m."""
    return env.scene[asset_cfg.name].data.root_pos_w[:, 2:3]


@columns(unit="", names=_XYZ)
def projected_gravity(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the direction of gravity in the root's frame, (N, 3), of length 1; (0, 0, -1) when upright."""
    return env.scene[asset_cfg.name].data.projected_gravity_b


@columns(unit=joint_units, names=joint_columns)
def joint_pos(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT, biased: bool = False
) -> torch.Tensor:
    """Returns joint positions, (N, J) m or rad; biased: as the encoders read, see `randomize_encoder_bias`."""
    entity = env.scene[asset_cfg.name]
    positions = env.encoders.joint_pos(asset_cfg.name) if biased else entity.data.joint_pos
    return chosen(positions, entity.joint_ids(asset_cfg))


@columns(unit=joint_units, names=joint_columns)
def joint_pos_rel(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT, biased: bool = False
) -> torch.Tensor:
    """Returns joint positions relative to the default ones, (N, J) m or rad; biased: as of `joint_pos`."""
    entity = env.scene[asset_cfg.name]
    default = chosen(entity.data.default_joint_pos, entity.joint_ids(asset_cfg))
    return joint_pos(env, asset_cfg, biased) - default


@columns(unit=joint_velocity_units, names=joint_columns)
def joint_vel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns joint velocities, (N, J) m/s or rad/s."""
    entity = env.scene[asset_cfg.name]
    return chosen(entity.data.joint_vel, entity.joint_ids(asset_cfg))


@columns(unit=joint_velocity_units, names=joint_columns)
def joint_vel_rel(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns joint velocities relative to the default ones, (N, J) m/s or rad/s."""
    entity = env.scene[asset_cfg.name]
    ids, data = entity.joint_ids(asset_cfg), entity.data
    return chosen(data.joint_vel, ids) - chosen(data.default_joint_vel, ids)


@columns(unit="", names=action_columns)
def last_action(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the raw action of this step, (N, A); zero right after a reset."""
    return env.action_manager.action


@columns(unit="", names=action_columns)
def previous_action(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the raw action of the step before this one, (N, A); zero in the first step of an episode."""
    return env.action_manager.prev_action


@columns(unit="", names=command_columns)
def generated_commands(env: ManagerBasedRlEnv, command_name: str) -> torch.Tensor:
    """Returns the command of that name, (N, dim), in the units of its term."""
    return env.command_manager.get_command(command_name)
