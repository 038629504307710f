"""Reward terms: each returns (N,) float32, before its weight.

`v` and `w` below are linear and angular velocity of the root in its own frame, `c` is a velocity command
(vx m/s, vy m/s, wz rad/s), `g` the direction of gravity in the root's frame, `q` joint positions, `a` the raw action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_core.entity_cfg import SceneEntityCfg, match_names

if TYPE_CHECKING:
    from unilab_managers.cfg.rewards import RewardTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "action_rate_l2",
    "ang_vel_xy_l2",
    "flat_orientation_l2",
    "is_alive",
    "is_terminated",
    "joint_pos_limits",
    "joint_posture_exp",
    "lin_vel_z_l2",
    "track_ang_vel_z_exp",
    "track_lin_vel_xy_exp",
]

_ROBOT = SceneEntityCfg()


def track_lin_vel_xy_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-((v_x - c_x)^2 + (v_y - c_y)^2) / std^2), (N,) in (0, 1]; `std` in m/s."""
    error = env.scene[asset_cfg.name].data.root_lin_vel_b[:, :2] - _command(env, command_name)[:, :2]
    return torch.exp(error.square().sum(dim=-1) / -(std**2))


def track_ang_vel_z_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-(w_z - c_z)^2 / std^2), (N,) in (0, 1]; `std` in rad/s."""
    error = env.scene[asset_cfg.name].data.root_ang_vel_b[:, 2] - _command(env, command_name)[:, 2]
    return torch.exp(error.square() / -(std**2))


def flat_orientation_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns g_x^2 + g_y^2, (N,): the squared sine of the tilt."""
    return env.scene[asset_cfg.name].data.projected_gravity_b[:, :2].square().sum(dim=-1)


def lin_vel_z_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns v_z^2, (N,) m^2/s^2."""
    return env.scene[asset_cfg.name].data.root_lin_vel_b[:, 2].square()


def ang_vel_xy_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns w_x^2 + w_y^2, (N,) rad^2/s^2."""
    return env.scene[asset_cfg.name].data.root_ang_vel_b[:, :2].square().sum(dim=-1)


def action_rate_l2(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the sum over actions of (a - a of the step before)^2, (N,); the step before a first one had a = 0."""
    return (env.action_manager.action - env.action_manager.prev_action).square().sum(dim=-1)


def is_alive(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 1 where this step did not terminate the episode, else 0, (N,); see `is_terminated`."""
    return (~env.state.terminated).float()


def is_terminated(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 1 where this step terminated the episode, 0 where it goes on or was cut by a time limit, (N,).

    As `env.state.terminated` says, so a time limit counts if `is_finite_horizon`, and so does a state that the engine
    calls bad.
    """
    return env.state.terminated.float()


class joint_pos_limits:
    """How far joints are beyond the soft part of their range: the sum over joints of the excess, (N,) m or rad.

    The soft part is the middle of the range, `soft_factor` times as wide. Unlimited joints give 0.
    """

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Works out the middle and the half width of every range."""
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        entity = env.scene[asset_cfg.name]
        self._ids = entity.joint_ids(asset_cfg)
        low, high = entity.data.joint_pos_limits[0, self._ids].unbind(dim=-1)
        self._half = 0.5 * (high - low)
        # Without limits the middle would be NaN; any number will do, for no joint is infinitely far from it.
        self._middle = torch.where(torch.isfinite(self._half), low + self._half, 0.0)

    def __call__(
        self, env: ManagerBasedRlEnv, soft_factor: float, asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the sum of max(|q - middle| - soft_factor x half width, 0), (N,).

        Raises:
            ValueError: `soft_factor` is not in (0, 1].
        """
        if not 0.0 < soft_factor <= 1.0:
            raise ValueError(f"soft_factor is {soft_factor}, expected 0 < soft_factor <= 1")
        pos = env.scene[asset_cfg.name].data.joint_pos[:, self._ids]
        excess = (pos - self._middle).abs() - soft_factor * self._half
        return excess.clamp(min=0.0).sum(dim=-1)


class joint_posture_exp:
    """How close joints are to their default positions: exp(-sum k (q - default)^2), (N,) in (0, 1]."""

    row_settings: ClassVar[tuple[str, ...]] = ("_given", "_minus_k")

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Gives each joint its weight k.

        Raises:
            ValueError: A name matches no joint, two match the same, or a weight is negative.
        """
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        self._given: Mapping[str, float] = cfg.params["weights"]
        self._minus_k = _by_joint(env, self._given, asset_cfg).neg_()

    def __call__(
        self, env: ManagerBasedRlEnv, weights: Mapping[str, float], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the posture's worth.

        Args:
            env: The environment.
            weights: k by joint name or full-match regular expression, 1/m^2 or 1/rad^2; other joints count nothing.
            asset_cfg: The entity.

        Raises:
            ValueError: A curriculum has set weights of which a name matches no joint, and so on.
        """
        if weights is not self._given:  # a curriculum has set others
            self._minus_k = _by_joint(env, weights, asset_cfg).neg_()
            self._given = weights
        data = env.scene[asset_cfg.name].data
        return torch.exp((data.joint_pos - data.default_joint_pos).square() @ self._minus_k)


def _by_joint(
    env: ManagerBasedRlEnv, weights: Mapping[str, float], asset_cfg: SceneEntityCfg
) -> torch.Tensor:
    """Returns the weight of each joint, (J,) float32; 0 where no name matches."""
    names = env.scene[asset_cfg.name].joint_names
    found = [0.0] * len(names)
    match_names(tuple(weights), names, preserve_order=False, owner="weights")  # no joint twice
    for pattern, weight in weights.items():
        if weight < 0:
            raise ValueError(f"weights[{pattern!r}] is {weight}, expected a weight >= 0")
        for i in match_names((pattern,), names, preserve_order=False, owner="weights"):
            found[i] = weight
    return torch.tensor(found, dtype=torch.float32, device=env.device)


def _command(env: ManagerBasedRlEnv, name: str) -> torch.Tensor:
    return env.command_manager.get_command(name)
