"""Metrics of feet, F of them: each returns (N,) float32, for the log only.

Sensors, sites and bodies are read when the environment is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import ContactSensors
from unilab_managers.mdp.feet import check_feet, feet_contacts, feet_swing
from unilab_managers.mdp.rewards_feet import just_touched, slip_speed_squared

if TYPE_CHECKING:
    from unilab_managers.cfg.metrics import MetricsTermCfg
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


class _OfContacts:
    """A metric of what `FeetContacts` keeps."""

    def __init__(self, cfg: MetricsTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `FeetContacts`."""
        params = cfg.all_params()
        self._feet = feet_contacts(env, params["sensor_names"], params["asset_cfg"])


class feet_duty_factor(_OfContacts):
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
        self._feet.note_reads()
        return self._feet.contact.float().mean(dim=1)


class feet_swing_time(_OfContacts):
    """The mean over feet of how long their last swing took, (N,) s; feet that have not landed yet are left out."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the mean, 0 while no foot has landed; parameters as of `feet_duty_factor`."""
        self._feet.note_reads()
        return _mean_where(self._feet.last_air_time, self._feet.swung)


class feet_swing_peak_height:
    """The mean over feet in contact of how high their last swing was, (N,) m; see `FeetSwing.peak`."""

    def __init__(self, cfg: MetricsTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `FeetSwing`."""
        params = cfg.all_params()
        self._feet = feet_swing(env, params["sensor_names"], params["asset_cfg"])

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
        feet = self._feet
        feet.note_reads()
        return _mean_where(feet.peak - radius, feet.contacts.swung & feet.contacts.contact)


class feet_slip_speed:
    """The mean speed of feet in contact along what they stand on, (N,) m/s; see `feet_slip`."""

    def __init__(self, cfg: MetricsTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `feet_slip`."""
        params = cfg.all_params()
        self._sensors = ContactSensors(env, params["sensor_names"], params["asset_cfg"], "found")
        check_feet(env, params["asset_cfg"], self._sensors.names)
        self._knows_normals = self._sensors.reports("normal")

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg
    ) -> torch.Tensor:
        """Returns the mean, 0 where no foot is in contact; parameters as of `feet_swing_peak_height`."""
        squares = slip_speed_squared(env, self._sensors, asset_cfg, with_normals=self._knows_normals)
        return _mean_where(squares.sqrt(), self._sensors.touching())


class feet_landing_force:
    """The strongest force on a foot that has just touched the ground, (N,) N; 0 in all other steps.

    With `reduce="max"` the hardest step of an episode. See `feet_soft_landing`.
    """

    def __init__(self, cfg: MetricsTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `feet_soft_landing`."""
        params = cfg.all_params()
        names, asset_cfg = params["sensor_names"], params["asset_cfg"]
        self._sensors = ContactSensors(env, names, asset_cfg, "found", "force")
        self._feet = feet_contacts(env, names, asset_cfg)

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the force; sensors report `found` and `force`, otherwise as of `feet_duty_factor`."""
        self._feet.note_reads()
        return (self._sensors.forces() * just_touched(self._sensors, self._feet)).amax(dim=1)
