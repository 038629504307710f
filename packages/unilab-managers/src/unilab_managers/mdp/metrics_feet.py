"""Metrics of feet, F of them: each returns (N,) float32, for the log only.

Sensors, sites and bodies are read when the environment is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.feet_terms import OfFeetContacts, OfFeetSwing, OfLandings, OfSlip

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "feet_duty_factor",
    "feet_landing_force",
    "feet_slip_speed",
    "feet_swing_peak_height",
    "feet_swing_time",
]

_ROBOT = SceneEntityCfg()


def _mean_where(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Returns the mean of (N, F) over the feet that count, (N,); 0 where none does."""
    return (values * counts).sum(dim=1) / counts.sum(dim=1).clamp(min=1)


class feet_duty_factor(OfFeetContacts):
    """The share of feet in contact, (N,) in [0, 1]; its mean over an episode is the gait's duty factor."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the share.

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `found`, one per foot, of the entity or of the scene.
            asset_cfg: The entity.
        """
        return self.feet.contact.float().mean(dim=1)


class feet_swing_time(OfFeetContacts):
    """The mean over feet of how long their last swing took, (N,) s; feet that have not landed yet are left out."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the mean, 0 while no foot has landed; parameters as of `feet_duty_factor`."""
        feet = self.feet
        return _mean_where(feet.last_air_time, feet.swung)


class feet_swing_peak_height(OfFeetSwing):
    """The mean over feet in contact of how high their last swing was, (N,) m; see `FeetSwing.peak`."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        asset_cfg: SceneEntityCfg,
        radius: float = 0.0,
    ) -> torch.Tensor:
        """Returns the mean over feet that have landed in this episode and stand, 0 where none does.

        Args:
            env: The environment.
            sensor_names: As of `feet_duty_factor`.
            asset_cfg: The entity, and the sites or bodies that are its feet, in the order of the sensors.
            radius: How far the lowest point of a foot lies below its frame, m.
        """
        feet = self.feet
        return _mean_where(feet.peak - radius, feet.contacts.swung & feet.contacts.contact)


class feet_slip_speed(OfSlip):
    """The mean speed of feet in contact along what they stand on, (N,) m/s; see `feet_slip`."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg
    ) -> torch.Tensor:
        """Returns the mean, 0 where no foot is in contact; parameters as of `feet_swing_peak_height`."""
        return _mean_where(self.speed_squared(env, asset_cfg).sqrt(), self._sensors.touching())


class feet_landing_force(OfLandings):
    """The strongest force on a foot that has just touched the ground, (N,) N; 0 in all other steps.

    With `reduce="max"` the hardest step of an episode. See `feet_soft_landing`.
    """

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the force; sensors report `found` and `force`, otherwise as of `feet_duty_factor`."""
        return self.impacts().amax(dim=1)
