"""Reward terms of joints, actuators and actions: each returns (N,) float32, before its weight.

`q` joint positions, `tau` what actuators do to their joints (N or N m, in the last substep of a step), `a` the raw
action of this step, `a'` and `a''` of the two steps before (0 before an episode's first).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.action_history import OfActionHistory
from unilab_managers.mdp.actuators import OfJointActuators
from unilab_managers.mdp.by_joint import OfVelocityLimits

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "action_acc_l2",
    "action_l2",
    "joint_acc_l2",
    "joint_deviation_l1",
    "joint_power_l1",
    "joint_torques_l2",
    "joint_vel_l2",
    "joint_vel_limits",
    "stand_still_l1",
]

_ROBOT = SceneEntityCfg()


def action_l2(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the sum over actions of a^2, (N,)."""
    return env.action_manager.action.square().sum(dim=-1)


class action_acc_l2(OfActionHistory):
    """How abruptly the action changes its course: the sum over actions of (a - 2 a' + a'')^2, (N,)."""

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        """Returns the sum, (N,)."""
        return self._history.acceleration().square_().sum(dim=-1)


class joint_torques_l2(OfJointActuators):
    """How hard the actuators work: the sum over actuators of tau^2, (N,) N^2 or N^2 m^2."""

    def __call__(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
        """Returns the sum.

        Args:
            env: The environment.
            asset_cfg: The entity, and its actuators (`actuator_names`); read when the environment is built.
        """
        return self._actuators.torque().square().sum(dim=-1)


class joint_power_l1(OfJointActuators):
    """Mechanical power, braking counted like driving: the sum over actuators of |tau q_vel|, (N,) W."""

    def __call__(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
        """Returns the sum; parameters as of `joint_torques_l2`."""
        return self._actuators.power().abs().sum(dim=-1)


def joint_vel_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the sum over joints of their squared velocity, (N,) m^2/s^2 or rad^2/s^2."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_vel[:, entity.joint_ids(asset_cfg)].square().sum(dim=-1)


def joint_acc_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the sum over joints of their squared acceleration in the last substep, (N,) m^2/s^4 or rad^2/s^4."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_acc[:, entity.joint_ids(asset_cfg)].square().sum(dim=-1)


def joint_deviation_l1(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the sum over joints of |q - default|, (N,) m or rad."""
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    return (entity.data.joint_pos[:, ids] - entity.data.default_joint_pos[:, ids]).abs().sum(dim=-1)


def stand_still_l1(
    env: ManagerBasedRlEnv,
    command_name: str,
    standing_below: float = 0.05,
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> torch.Tensor:
    """Returns `joint_deviation_l1` where the robot is to stand, else 0, (N,) m or rad.

    Args:
        env: The environment.
        command_name: A velocity command, (vx m/s, vy m/s, wz rad/s).
        standing_below: Length of the command below which the robot is to stand, m/s and rad/s together.
        asset_cfg: The entity, and its joints.
    """
    command = env.command_manager.get_command(command_name)
    length: torch.Tensor = torch.linalg.vector_norm(command, dim=-1)
    return joint_deviation_l1(env, asset_cfg) * (length < standing_below)


class joint_vel_limits(OfVelocityLimits):
    """How much faster joints are than they may: the sum over joints of the excess, (N,) m/s or rad/s."""

    def __call__(
        self, env: ManagerBasedRlEnv, max_velocity: Mapping[str, float], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the sum of max(|q_vel| - limit, 0).

        Args:
            env: The environment.
            max_velocity: Limits by joint name or full-match regular expression, m/s or rad/s; joints without one have
                none. Read when the environment is built.
            asset_cfg: The entity.
        """
        speed = env.scene[asset_cfg.name].data.joint_vel.abs()
        return (speed - self._limits).clamp(min=0.0).sum(dim=-1)
