"""Reward terms of the base and of posture: each returns (N,) float32, before its weight. Others: `rewards_*`.

`v` and `w` below are linear and angular velocity of the root in its own frame, `c` is a velocity command
(vx m/s, vy m/s, wz rad/s), `g` the direction of gravity in the root's frame, `q` joint positions, `a` the raw action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_core.entity_cfg import SceneEntityCfg, match_names
from unilab_managers.mdp._columns import chosen
from unilab_managers.mdp._sampling import check_positive
from unilab_managers.mdp.frames import frames

if TYPE_CHECKING:
    from unilab_managers.cfg.rewards import RewardTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "action_rate_l2",
    "ang_vel_xy_l2",
    "base_height_exp",
    "base_height_l2",
    "body_orientation_l2",
    "flat_orientation_l2",
    "is_alive",
    "is_terminated",
    "joint_pos_limits",
    "joint_posture_exp",
    "lin_vel_z_l2",
    "terminated_by",
    "track_ang_vel_z_exp",
    "track_ang_vel_z_world_exp",
    "track_lin_vel_xy_exp",
    "track_lin_vel_xy_yaw_exp",
    "upright_exp",
]

_ROBOT = SceneEntityCfg()


def _sum_of_squares(vectors: torch.Tensor) -> torch.Tensor:
    """Returns the sum over the last dimension."""
    return vectors.square().sum(dim=-1)


def _bell(squared: torch.Tensor, std: float) -> torch.Tensor:
    """Returns exp(-squared / std^2).

    Raises:
        ValueError: `std` is not above 0.
    """
    check_positive(std=std)
    return torch.exp(squared / -(std**2))


def track_lin_vel_xy_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-((v_x - c_x)^2 + (v_y - c_y)^2) / std^2), (N,) in (0, 1]; `std` in m/s."""
    error = env.scene[asset_cfg.name].data.root_lin_vel_b[:, :2] - _command(env, command_name)[:, :2]
    return _bell(_sum_of_squares(error), std)


def track_ang_vel_z_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-(w_z - c_z)^2 / std^2), (N,) in (0, 1]; `std` in rad/s."""
    error = env.scene[asset_cfg.name].data.root_ang_vel_b[:, 2] - _command(env, command_name)[:, 2]
    return _bell(error.square(), std)


def track_lin_vel_xy_yaw_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns `track_lin_vel_xy_exp` of the horizontal velocity along the heading, (N,) in (0, 1]; `std` in m/s.

    Unlike in the body's own frame, leaning neither adds to nor takes from the velocity: for bodies that pitch and roll.
    """
    data = env.scene[asset_cfg.name].data
    velocity, heading, command = data.root_lin_vel_w, data.heading_w, _command(env, command_name)
    cos, sin = heading.cos(), heading.sin()
    forward = cos * velocity[:, 0] + sin * velocity[:, 1] - command[:, 0]
    left = cos * velocity[:, 1] - sin * velocity[:, 0] - command[:, 1]
    return _bell((forward.square() + left.square()), std)


def track_ang_vel_z_world_exp(
    env: ManagerBasedRlEnv, command_name: str, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-(w_z - c_z)^2 / std^2) with w_z about the world's z, (N,) in (0, 1]; `std` in rad/s."""
    error = env.scene[asset_cfg.name].data.root_ang_vel_w[:, 2] - _command(env, command_name)[:, 2]
    return _bell(error.square(), std)


def flat_orientation_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns g_x^2 + g_y^2, (N,): the squared sine of the tilt."""
    return _sum_of_squares(env.scene[asset_cfg.name].data.projected_gravity_b[:, :2])


def upright_exp(env: ManagerBasedRlEnv, std: float, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns exp(-|g - (0, 0, -1)|^2 / std^2), (N,) in (0, 1]; of a small tilt the distance is its angle, rad."""
    # For a unit vector |g - (0, 0, -1)|^2 is 2 (1 + g_z).
    lean = env.scene[asset_cfg.name].data.projected_gravity_b[:, 2] + 1.0
    check_positive(std=std)
    return torch.exp(lean * (-2.0 / std**2))


def body_orientation_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> torch.Tensor:
    """Returns the sum over the bodies or sites of `asset_cfg` of the squared sine of their z axis' tilt, (N,)."""
    w, x, y, z = frames(env, asset_cfg).quat_w.unbind(dim=-1)
    # The last row of the rotation matrix: the world's z axis in the frame of the body.
    tilt = (2.0 * (x * z - w * y)).square() + (2.0 * (y * z + w * x)).square()
    return tilt.sum(dim=1)


def base_height_l2(
    env: ManagerBasedRlEnv, target_height: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns (z - target_height)^2 of the root frame's origin in the world, (N,) m^2; `target_height` in m."""
    return (env.scene[asset_cfg.name].data.root_pos_w[:, 2] - target_height).square()


def base_height_exp(
    env: ManagerBasedRlEnv, target_height: float, std: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns exp(-(z - target_height)^2 / std^2), (N,) in (0, 1]; heights and `std` in m."""
    return _bell(base_height_l2(env, target_height, asset_cfg), std)


def lin_vel_z_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns v_z^2, (N,) m^2/s^2."""
    return env.scene[asset_cfg.name].data.root_lin_vel_b[:, 2].square()


def ang_vel_xy_l2(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
    """Returns w_x^2 + w_y^2, (N,) rad^2/s^2."""
    return _sum_of_squares(env.scene[asset_cfg.name].data.root_ang_vel_b[:, :2])


def action_rate_l2(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the sum over actions of (a - a of the step before)^2, (N,); the step before a first one had a = 0."""
    return _sum_of_squares(env.action_manager.action - env.action_manager.prev_action)


def is_alive(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 1 where this step did not terminate the episode, else 0, (N,); see `is_terminated`."""
    return (~env.state.terminated).float()


def is_terminated(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 1 where this step terminated the episode, 0 where it goes on or was cut by a time limit, (N,).

    As `env.state.terminated` says, so a time limit counts if `is_finite_horizon`, and so does a state that the engine
    calls bad.
    """
    return env.state.terminated.float()


def terminated_by(env: ManagerBasedRlEnv, term_names: tuple[str, ...]) -> torch.Tensor:
    """Returns how many of some termination terms fired in this step, (N,).

    Raises:
        UnknownNameError: There is no such term; the message lists the nearest.
        ValueError: No names.
    """
    if not term_names:
        raise ValueError("term_names is empty, expected at least one termination term")
    fired = [env.termination_manager.get_term(name) for name in term_names]
    return torch.stack(fired, dim=1).sum(dim=1).float()


class joint_pos_limits:
    """How far joints are beyond the soft part of their range: the sum over joints of the excess, (N,) m or rad.

    The soft part is the middle of the range, `soft_factor` times as wide. Unlimited joints give 0.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_soft_factor", "_soft_half")

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Works out the middle and the half width of every range."""
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        entity = env.scene[asset_cfg.name]
        self._ids = entity.joint_ids(asset_cfg)
        low, high = entity.data.joint_pos_limits[0, self._ids].unbind(dim=-1)
        self._half = 0.5 * (high - low)
        # Without limits the middle would be NaN; any number will do, for no joint is infinitely far from it.
        self._middle = torch.where(torch.isfinite(self._half), low + self._half, 0.0)
        self._soft_factor, self._soft_half = 1.0, self._half

    def __call__(
        self, env: ManagerBasedRlEnv, soft_factor: float, asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the sum of max(|q - middle| - soft_factor x half width, 0), (N,).

        Raises:
            ValueError: `soft_factor` is not in (0, 1].
        """
        if not 0.0 < soft_factor <= 1.0:
            raise ValueError(f"soft_factor is {soft_factor}, expected 0 < soft_factor <= 1")
        if soft_factor != self._soft_factor:  # the first call, or a curriculum has set another
            self._soft_half, self._soft_factor = soft_factor * self._half, soft_factor
        distance = (chosen(env.scene[asset_cfg.name].data.joint_pos, self._ids) - self._middle).abs_()
        return distance.sub_(self._soft_half).clamp_(min=0.0).sum(dim=-1)


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
