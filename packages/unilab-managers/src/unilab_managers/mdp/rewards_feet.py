"""Reward terms of feet, F of them: each returns (N,) float32, before its weight.

`h` is the height of a foot's frame above the plane z = 0, `v` its velocity in the world. Where a term takes a
`command_name`, a velocity command (vx m/s, vy m/s, wz rad/s), it is 0 in rows whose command is not longer than
`moving_above`, m/s and rad/s together; with None it counts everywhere. Sensors, sites and bodies are read when the
environment is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.feet_terms import OfFeetContacts, OfFeetSwing, OfLandings, OfSlip
from unilab_managers.mdp.frames import frames

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "feet_air_time",
    "feet_clearance",
    "feet_single_stance",
    "feet_slip",
    "feet_soft_landing",
    "feet_swing_height",
]

_ROBOT = SceneEntityCfg()


def _if_moving(
    env: ManagerBasedRlEnv, value: torch.Tensor, command_name: str | None, moving_above: float
) -> torch.Tensor:
    """Returns `value`, (N,), where the robot is to move, else 0."""
    if command_name is None:
        return value
    command = env.command_manager.get_command(command_name)
    # A product, not a choice: what is not finite must stay so where it counts nothing.
    length: torch.Tensor = torch.linalg.vector_norm(command, dim=-1)
    return value * (length > moving_above)


class feet_air_time(OfFeetContacts):
    """Long steps: the sum over feet that have just landed of their time in the air beyond a threshold, (N,) s.

    Only a swing that began in this episode counts, so that where a reset puts the robot is neither paid nor punished.
    The form is that of Rudin et al., "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement
    Learning", arXiv:2109.11978.
    """

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        threshold: float,
        limit: float | None = None,
        command_name: str | None = None,
        moving_above: float = 0.05,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns the sum of landed x clip(time in the air - threshold, -limit, limit).

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `found`, one per foot, of the entity or of the scene.
            threshold: Time in the air that is worth nothing, s.
            limit: The most that a landing is worth either way, s; None: no limit.
            command_name: See above.
            moving_above: See above.
            asset_cfg: The entity.

        Raises:
            ValueError: `limit` is not above 0.
        """
        feet = self.feet
        gain = feet.last_air_time - threshold
        if limit is not None:
            if not limit > 0.0:
                raise ValueError(f"limit is {limit}, expected seconds above 0, or None")
            gain = gain.clamp(-limit, limit)
        return _if_moving(env, (gain * feet.landed).sum(dim=1), command_name, moving_above)


class feet_single_stance(OfFeetContacts):
    """One foot down at a time, and long: how long the feet have been as they are while exactly one is down, (N,) s.

    The shortest of the feet's times, in contact of the one and in the air of the others; 0 unless exactly one foot is
    in contact. For robots with two legs; the form is known from Isaac Lab's humanoid tasks.
    """

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        limit: float,
        command_name: str | None = None,
        moving_above: float = 0.05,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns min(the shortest time, limit); `limit` in s, other parameters as of `feet_air_time`."""
        feet = self.feet
        times = torch.where(feet.contact, feet.contact_time, feet.air_time).amin(dim=1)
        single = feet.contact.sum(dim=1) == 1
        return _if_moving(env, times.clamp(max=limit) * single, command_name, moving_above)


def feet_clearance(
    env: ManagerBasedRlEnv,
    asset_cfg: SceneEntityCfg,
    target_height: float,
    command_name: str | None = None,
    moving_above: float = 0.05,
) -> torch.Tensor:
    """Returns the sum over feet of (h - target)^2 |v_xy|, (N,) m^3/s: feet that move fast shall be lifted.

    After Ji et al., "Concurrent Training of a Control Policy and a State Estimator for Dynamic and Robust Legged
    Locomotion", arXiv:2202.05481, whose root of the speed is left out, for its slope has no bound at rest.

    Args:
        env: The environment.
        asset_cfg: The entity, and the sites or bodies that are its feet.
        target_height: Wanted height of a moving foot's frame, m.
        command_name: See above.
        moving_above: See above.
    """
    feet = frames(env, asset_cfg)
    error = (feet.pos_w[..., 2] - target_height).square()
    speed = torch.linalg.vector_norm(feet.lin_vel_w[..., :2], dim=-1)
    return _if_moving(env, (error * speed).sum(dim=1), command_name, moving_above)


class feet_swing_height(OfFeetSwing):
    """Swings of the right height: the sum over feet that have just landed of (peak / target - 1)^2, (N,).

    The peak is that of `FeetSwing`; as with `feet_air_time`, only swings count that began in this episode.
    """

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        asset_cfg: SceneEntityCfg,
        target_height: float,
        radius: float = 0.0,
        command_name: str | None = None,
        moving_above: float = 0.05,
    ) -> torch.Tensor:
        """Returns the sum.

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `found`, one per foot, of the entity or of the scene.
            asset_cfg: The entity, and the sites or bodies that are its feet, in the order of the sensors.
            target_height: Wanted height of the lowest point of a foot, m, above 0.
            radius: How far that lies below the foot's frame, m.
            command_name: See above.
            moving_above: See above.

        Raises:
            ValueError: `target_height` is not above 0.
        """
        if not target_height > 0.0:
            raise ValueError(f"target_height is {target_height}, expected a height above 0")
        feet = self.feet
        error = (feet.peak - radius) / target_height - 1.0
        value = (error.square() * feet.contacts.landed).sum(dim=1)
        return _if_moving(env, value, command_name, moving_above)


class feet_slip(OfSlip):
    """Feet that slide over what they stand on: the sum over feet in contact of |v_t|^2, (N,) m^2/s^2.

    v_t is the velocity along the surface: v without its part along the contact's normal, of sensors that report
    `normal` and choose single contacts (`reduce` other than `"netforce"`); of others the horizontal velocity, which on
    a slope is only part of it.
    """

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        asset_cfg: SceneEntityCfg,
        command_name: str | None = None,
        moving_above: float = 0.05,
    ) -> torch.Tensor:
        """Returns the sum; parameters as of `feet_swing_height`."""
        slip = self.speed_squared(env, asset_cfg).sum(dim=1)
        return _if_moving(env, slip, command_name, moving_above)


class feet_soft_landing(OfLandings):
    """Hard steps: the sum over feet that have just touched the ground of the force on them, (N,) N.

    With sensors that keep their values of all substeps (`substeps=True`) a foot has touched the ground if it was in
    contact in any substep and not at the end of the step before, so that a rebound counts, and the force is the
    strongest in the control step; else both are those of the last substep, by which an impact is mostly over.
    """

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        command_name: str | None = None,
        moving_above: float = 0.05,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns the sum; sensors report `found` and `force`, parameters are otherwise those of `feet_air_time`."""
        return _if_moving(env, self.impacts().sum(dim=1), command_name, moving_above)
