"""Termination terms: each returns (N,) bool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.by_joint import OfVelocityLimits
from unilab_managers.mdp.contact_sensors import OfContactSensors

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "bad_orientation",
    "illegal_contact",
    "joint_pos_out_of_limits",
    "joint_vel_out_of_limits",
    "non_finite",
    "out_of_bounds",
    "root_height_above_maximum",
    "root_height_below_minimum",
    "time_out",
]

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


def root_height_above_maximum(
    env: ManagerBasedRlEnv, maximum_height: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns where the origin of the root frame is higher than `maximum_height` m in the world, (N,) bool."""
    return env.scene[asset_cfg.name].data.root_pos_w[:, 2] > maximum_height


def out_of_bounds(
    env: ManagerBasedRlEnv,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    z_range: tuple[float, float] | None = None,
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> torch.Tensor:
    """Returns where the origin of the root frame has left a box in the world, (N,) bool; the border is inside.

    Leaving the ground that there is says nothing about the policy: `TerminationTermCfg(time_out=True)` makes it a cut.

    Args:
        env: The environment.
        x_range: Lowest and highest x, m; None: no bounds.
        y_range: Lowest and highest y, m; None: no bounds.
        z_range: Lowest and highest z, m; None: no bounds.
        asset_cfg: The entity.

    Raises:
        ValueError: There are no bounds at all, or a range is inverted.
    """
    position = env.scene[asset_cfg.name].data.root_pos_w
    outside = None
    for axis, bounds in enumerate((x_range, y_range, z_range)):
        if bounds is None:
            continue
        low, high = bounds
        if not low <= high:
            raise ValueError(f"{'xyz'[axis]}_range is {bounds}, expected lowest <= highest")
        beyond = (position[:, axis] < low) | (position[:, axis] > high)
        outside = beyond if outside is None else outside | beyond
    if outside is None:
        raise ValueError("x_range, y_range and z_range are all None; expected at least one")
    return outside


class illegal_contact(OfContactSensors):
    """Where any of some contact sensors feels more than a threshold, (N,) bool."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        threshold: float = 1.0,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns where it does.

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `force`, of the entity or of the scene; read when the environment
                is built. One with `substeps=True` misses no impact between two control steps; of others only the last
                substep is seen.
            threshold: N.
            asset_cfg: The entity.
        """
        return (self._sensors.forces() > threshold).any(dim=1)


def joint_pos_out_of_limits(
    env: ManagerBasedRlEnv, tolerance: float = 0.0, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
    """Returns where a joint is more than `tolerance` m or rad beyond its range, (N,) bool; unlimited ones never are."""
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    low, high = entity.data.joint_pos_limits[:, ids].unbind(dim=-1)
    pos = entity.data.joint_pos[:, ids]
    return ((pos < low - tolerance) | (pos > high + tolerance)).any(dim=1)


class joint_vel_out_of_limits(OfVelocityLimits):
    """Where a joint is faster than it may, (N,) bool."""

    def __call__(
        self, env: ManagerBasedRlEnv, max_velocity: Mapping[str, float], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns where one is; parameters as of `joint_vel_limits`."""
        return (env.scene[asset_cfg.name].data.joint_vel.abs() > self._limits).any(dim=1)


def non_finite(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns where a position or velocity of the model is not finite, (N,) bool.

    Rows that the engine itself calls bad terminate without any term. What is not finite in observations and rewards is
    for `NanGuardCfg`: without one it raises `NonFiniteError`, whatever ends the episode.
    """
    # Zero times anything finite is 0, and otherwise NaN: one sum per row tells.
    state = torch.cat([env.state_column("qpos"), env.state_column("qvel")], dim=1)
    return ~torch.isfinite((state * 0.0).sum(dim=1))
