"""Event terms: each is called with `(env, env_ids)`, env_ids (K,) int64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import Index, SceneEntityCfg
from unilab_core.entity_data import EntityData
from unilab_core.joint_start import JointStart
from unilab_core.rotation import quat_apply, quat_mul
from unilab_core.timing import seconds_to_steps
from unilab_managers.mdp._columns import chosen
from unilab_managers.mdp._sampling import (
    Range,
    check_components,
    check_range,
    quat_from_euler,
    sample_components,
)
from unilab_managers.wrenches import applies_wrench
from unisim.model_layout import find

if TYPE_CHECKING:
    from unilab_managers.cfg.events import EventTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "apply_body_wrench",
    "push_root",
    "reset_joints_by_offset",
    "reset_joints_by_scale",
    "reset_root_state_uniform",
    "reset_to_default",
]

_ROBOT = SceneEntityCfg()
_LINEAR = ("x", "y", "z")
_ANGULAR = ("roll", "pitch", "yaw")
_POSE = (*_LINEAR, *_ANGULAR)


def reset_to_default(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, asset_cfg: SceneEntityCfg = _ROBOT
) -> None:
    """Stages an entity's default state: its joints, and its root where it is free, at rest.

    A reset begins with it, so it is for an entity that an earlier event or the reset owner has put elsewhere, and for
    mode `"interval"` or `"step"`, where it brings an object back in mid-episode.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        asset_cfg: The entity; of its joints, those that are named.
    """
    entity = env.scene[asset_cfg.name]
    ids, data = entity.joint_ids(asset_cfg), entity.data
    if entity.joint_names:
        pos = chosen(data.default_joint_pos.index_select(0, env_ids), ids)
        vel = chosen(data.default_joint_vel.index_select(0, env_ids), ids)
        data.write_joint_state(pos, vel, env_ids, ids)
    root = find(env.model_layout.entities, entity.name, "entity").root_joint
    if root is not None:
        joint = find(env.model_layout.joints, root, "joint")
        pose = env.model_layout.default_qpos[joint.qpos_start : joint.qpos_start + joint.qpos_dim]
        data.write_root_pose(_full(pose, env_ids), env_ids)
        rest = _full((0.0, 0.0, 0.0), env_ids)
        data.write_root_velocity(rest, rest, env_ids)


def _full(row: Sequence[float], env_ids: torch.Tensor) -> torch.Tensor:
    """Returns (K, len(row)) float32, every row the same; column by column, for a list would be copied from the host."""
    columns = [torch.full_like(env_ids, value, dtype=torch.float32) for value in row]
    return torch.stack(columns, dim=1)


def reset_joints_by_offset(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    position_range: Range,
    velocity_range: Range,
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
    ids, start, draws_p, draws_v = _joint_draws(env, env_ids, position_range, velocity_range, asset_cfg)
    pos = draws_p.add_(start.pos).clamp_(start.low, start.high)
    env.scene[asset_cfg.name].data.write_joint_state(pos, draws_v.add_(start.vel), env_ids, ids)


def reset_joints_by_scale(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    position_range: Range,
    velocity_range: Range,
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Stages default joint state times uniform factors; positions are kept within the joint limits.

    Args:
        env: The environment.
        env_ids: (K,) rows being reset.
        position_range: Lowest and highest factor of each joint's default position.
        velocity_range: Lowest and highest factor of each joint's default velocity; a default of zero stays zero.
        asset_cfg: The joints.

    Raises:
        ValueError: A range is inverted.
    """
    ids, start, draws_p, draws_v = _joint_draws(env, env_ids, position_range, velocity_range, asset_cfg)
    pos = draws_p.mul_(start.pos).clamp_(start.low, start.high)
    env.scene[asset_cfg.name].data.write_joint_state(pos, draws_v.mul_(start.vel), env_ids, ids)


def _joint_draws(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    position_range: Range,
    velocity_range: Range,
    asset_cfg: SceneEntityCfg,
) -> tuple[Index, JointStart, torch.Tensor, torch.Tensor]:
    """Returns the joints, what their resets start from, and draws for positions and velocities, each (K, J')."""
    check_range("position_range", position_range)
    check_range("velocity_range", velocity_range)
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    start = entity.data.joint_starts.of(ids)
    size = (env_ids.numel(), start.pos.numel())
    draws_p = env.rng.uniform(*position_range, size)
    return ids, start, draws_p, env.rng.uniform(*velocity_range, size)


def reset_root_state_uniform(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    pose_range: Mapping[str, Range],
    velocity_range: Mapping[str, Range],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Stages the root's pose and velocity plus uniform offsets.

    They are added to what is staged: the default state, or what an earlier event of this reset has put there.

    Args:
        env: The environment.
        env_ids: (K,) rows being reset.
        pose_range: Lowest and highest offset by component: `x`, `y`, `z` in the world, m, and `roll`, `pitch`, `yaw`,
            rad, a rotation about the root's own axes. What is not named stays.
        velocity_range: Likewise of the velocity, m/s and rad/s along and about the world's axes.
        asset_cfg: The entity.

    Raises:
        ValueError: A component is unknown, a range is inverted, or the entity is fixed to the world.
    """
    check_components("pose_range", pose_range, _POSE)
    check_components("velocity_range", velocity_range, _POSE)
    data = _free_root(env, asset_cfg)
    offsets = sample_components(env.rng, pose_range, _POSE, env_ids.numel())
    quat = data.root_quat_w.index_select(0, env_ids)
    turned = quat_mul(quat, quat_from_euler(offsets[:, 3:]))
    pose = torch.cat([data.root_pos_w.index_select(0, env_ids) + offsets[:, :3], turned], dim=1)
    # The velocity first: writing the pose keeps the world velocity and so changes its numbers.
    linear, angular = _velocity_plus_draws(env, env_ids, velocity_range, data, quat)
    if linear is not None and angular is not None:
        data.write_root_state(pose, linear, angular, env_ids)
        return
    data.write_root_pose(pose, env_ids)
    if velocity_range:
        data.write_root_velocity(linear, angular, env_ids)


def push_root(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    velocity_range: Mapping[str, Range],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Adds uniform draws to the root's present velocity, as a shove would.

    Args:
        env: The environment.
        env_ids: (K,) rows to push.
        velocity_range: Lowest and highest change by component: `x`, `y`, `z`, m/s, and `roll`, `pitch`, `yaw`, rad/s,
            along and about the world's axes. What is not named keeps its velocity.
        asset_cfg: The entity.

    Raises:
        ValueError: A component is unknown, a range is inverted, or the entity is fixed to the world.
    """
    check_components("velocity_range", velocity_range, _POSE)
    data = _free_root(env, asset_cfg)
    linear, angular = _velocity_plus_draws(env, env_ids, velocity_range, data)
    if velocity_range:
        data.write_root_velocity(linear, angular, env_ids)


def _velocity_plus_draws(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    velocity_range: Mapping[str, Range],
    data: EntityData,
    quat: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Returns the root's velocity in the world plus draws, (K, 3) m/s and (K, 3) rad/s; None: no component is named.

    `quat` is the rows' orientation, (K, 4), where it is known already.
    """
    draws = sample_components(env.rng, velocity_range, _POSE, env_ids.numel())
    linear = angular = None
    if not velocity_range.keys().isdisjoint(_LINEAR):
        linear = data.root_lin_vel_w.index_select(0, env_ids) + draws[:, :3]
    if not velocity_range.keys().isdisjoint(_ANGULAR):
        # Of these rows only, for `root_ang_vel_w` would turn the velocities of all.
        quat = data.root_quat_w.index_select(0, env_ids) if quat is None else quat
        angular = quat_apply(quat, data.root_ang_vel_b.index_select(0, env_ids)) + draws[:, 3:]
    return linear, angular


def _free_root(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> EntityData:
    """Returns the data of an entity whose root can be written.

    Raises:
        ValueError: It is fixed to the world.
    """
    entity = env.scene[asset_cfg.name]
    if find(env.model_layout.entities, entity.name, "entity").root_joint is None:
        raise ValueError(f"entity {entity.name!r} is fixed to the world; it has no root state to write")
    return entity.data


@applies_wrench
class apply_body_wrench:
    """Pushes bodies with a constant random force and torque for a while, again and again; for mode `"step"`.

    Each row cools down, is pushed, cools down, and so on. It starts with a cool-down, also after every reset, which
    ends a push. A push that begins in an event of step t acts from the physics of step t + 1 on.
    """

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        """Draws the first cool-down of every row."""
        n, device = env.num_envs, env.device
        self._env = env
        asset_cfg: SceneEntityCfg = cfg.params["asset_cfg"]
        entity = env.scene[asset_cfg.name]
        bodies = torch.arange(len(entity.body_names), device=device)[entity.element_ids(asset_cfg, "body")]
        self._num_bodies = bodies.numel()
        self._cooldown = _step_range("cooldown_range_s", cfg.params["cooldown_range_s"], env.step_dt)
        self._pushed = torch.zeros(n, dtype=torch.bool, device=device)
        self._left = self._draw(self._cooldown, n)
        self._one = torch.ones_like(self._left)
        self._may_fire = True

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: torch.Tensor,
        asset_cfg: SceneEntityCfg,
        force_range: Range,
        torque_range: Range,
        duration_range_s: Range,
        cooldown_range_s: Range,
    ) -> None:
        """Lets one step pass; begins and ends the pushes that are due.

        Args:
            env: The environment.
            env_ids: (K,) rows, in mode `"step"` all of them.
            asset_cfg: The bodies, by `body_names`.
            force_range: Lowest and highest force along each of the world's axes, N, at the body's centre of mass.
            torque_range: Lowest and highest torque about each of the world's axes, N m.
            duration_range_s: Shortest and longest push, s; whole control steps.
            cooldown_range_s: Shortest and longest time between two pushes, s; whole control steps.

        Raises:
            ValueError: A range is inverted, or a time is not positive.
        """
        self._left.index_add_(0, env_ids, self._one[: env_ids.numel()], alpha=-1)
        if not self._may_fire:
            return
        check_range("force_range", force_range)
        check_range("torque_range", torque_range)
        self._cooldown = _step_range("cooldown_range_s", cooldown_range_s, env.step_dt)
        duration = _step_range("duration_range_s", duration_range_s, env.step_dt)
        rows = env_ids[self._left[env_ids] <= 0]
        begins = ~self._pushed[rows]
        size = (rows.numel(), self._num_bodies, 3)
        force, torque = env.rng.uniform(*force_range, size), env.rng.uniform(*torque_range, size)
        acts = begins[:, None, None]
        env.scene[asset_cfg.name].data.write_wrench(force * acts, torque * acts, rows, asset_cfg)
        lasts, cools = self._draw(duration, rows.numel()), self._draw(self._cooldown, rows.numel())
        self._left[rows] = torch.where(begins, lasts, cools)
        self._pushed[rows] = begins

    def reset(self, env_ids: torch.Tensor) -> None:
        """Starts the cool-down of rows anew; their wrench is cleared with their state."""
        self._pushed[env_ids] = False
        self._left[env_ids] = self._draw(self._cooldown, env_ids.numel())
        self._may_fire |= self._cooldown[0] == 1

    def fires_next(self) -> torch.Tensor:
        """Returns (N,) bool: rows whose push begins or ends with the next call."""
        return self._left <= 1

    def timer_judged(self, due: bool) -> None:
        """Takes in whether there is such a row."""
        self._may_fire = due

    def _draw(self, steps: tuple[int, int], count: int) -> torch.Tensor:
        return self._env.rng.integers(steps[0], steps[1] + 1, count)


def _step_range(name: str, seconds: Range, step_dt: float) -> tuple[int, int]:
    """Returns a range of seconds in control steps.

    Raises:
        ValueError: It is inverted, or a time is not positive.
    """
    check_range(name, seconds)
    if seconds[0] <= 0.0:
        raise ValueError(f"{name} is {seconds}, expected positive times in s")
    return seconds_to_steps(seconds[0], step_dt), seconds_to_steps(seconds[1], step_dt)
