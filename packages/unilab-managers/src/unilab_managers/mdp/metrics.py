"""Metrics: each returns (N,) float32, for the log only. Those of feet: `metrics_feet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.action_history import OfActionHistory
from unilab_managers.mdp.actuators import OfJointActuators

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["action_acc", "action_rate", "ended_by", "joint_speed", "joint_torque", "mechanical_power", "tilt"]

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


class action_acc(OfActionHistory):
    """How abruptly the raw action changes its course: the Euclidean norm of a - 2 a' + a'', (N,)."""

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        """Returns the norm, (N,); actions before the first one of an episode count as 0."""
        norm: torch.Tensor = torch.linalg.vector_norm(self._history.acceleration(), dim=1)
        return norm


def joint_speed(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the mean absolute velocity of joints, (N,) m/s or rad/s."""
    entity = env.scene[asset_cfg.name]
    return entity.data.joint_vel[:, entity.joint_ids(asset_cfg)].abs().mean(dim=1)


class joint_torque(OfJointActuators):
    """The mean absolute force or torque of actuators on their joints in the last substep, (N,) N or N m."""

    def __call__(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
        """Returns the mean.

        Args:
            env: The environment.
            asset_cfg: The entity, and its actuators (`actuator_names`); read when the environment is built.
        """
        return self._actuators.torque().abs().mean(dim=1)


class mechanical_power(OfJointActuators):
    """What actuators put into their joints, less what they take out by braking: the sum of tau q_vel, (N,) W."""

    def __call__(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
        """Returns the sum; parameters as of `joint_torque`."""
        return self._actuators.power().sum(dim=1)


def tilt(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns the angle between the root's z axis and straight up, (N,) rad in [0, pi]."""
    gravity = env.scene[asset_cfg.name].data.projected_gravity_b
    # Unlike the arc cosine of g_z it is as exact, and as smooth, near upright as anywhere.
    return torch.atan2(torch.linalg.vector_norm(gravity[:, :2], dim=1), -gravity[:, 2])
