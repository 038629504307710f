"""What class terms of feet have in common: whose feet they look at, found when the environment is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import ContactSensors
from unilab_managers.mdp.feet import FeetContacts, FeetSwing, check_feet
from unilab_managers.mdp.frames import frames

if TYPE_CHECKING:
    from unilab_managers.cfg.term import TermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["OfFeetContacts", "OfFeetSwing", "OfLandings", "OfSlip"]


class OfFeetContacts:
    """A term that looks at when feet touched something: at `FeetContacts` of its `sensor_names` and `asset_cfg`."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `FeetContacts`."""
        params = cfg.all_params()
        self._feet = env.trackers.share(FeetContacts, params["sensor_names"], params["asset_cfg"].name)

    @property
    def feet(self) -> FeetContacts:
        """What is known of the feet, read."""
        self._feet.note_reads()
        return self._feet


class OfFeetSwing:
    """A term that looks at how high feet are lifted: at `FeetSwing` of its `sensor_names` and `asset_cfg`."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet; see `FeetSwing`."""
        params = cfg.all_params()
        self._feet = env.trackers.share(FeetSwing, params["sensor_names"], params["asset_cfg"])

    @property
    def feet(self) -> FeetSwing:
        """What is known of the feet, read."""
        self._feet.note_reads()
        return self._feet


class OfLandings(OfFeetContacts):
    """A term that looks at how hard feet touch the ground."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A sensor does not report `found` and `force`.
        """
        params = cfg.all_params()
        self._sensors = ContactSensors(env, params["sensor_names"], params["asset_cfg"], "found", "force")
        super().__init__(cfg, env)

    def impacts(self) -> torch.Tensor:
        """Returns the force on each foot that has just touched the ground, 0 on others, (N, F) N.

        It was off the ground at the end of the step before. With sensors that keep their values of all substeps it has
        touched the ground if it was in contact in any of them, so that a rebound counts.
        """
        feet = self.feet
        return self._sensors.forces() * (self._sensors.touched() & ~feet.contact_before)


class OfSlip:
    """A term that looks at how fast feet slide over what they stand on."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A name matches nothing, there are not as many sensors as feet, or one does not report `found`.
        """
        params = cfg.all_params()
        asset_cfg: SceneEntityCfg = params["asset_cfg"]
        self._sensors = ContactSensors(env, params["sensor_names"], asset_cfg, "found")
        check_feet(env, asset_cfg, self._sensors.names)
        self._knows_normals = self._sensors.reports("normal")

    def speed_squared(self, env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> torch.Tensor:
        """Returns |v_t|^2 of each foot in contact, 0 of others, (N, F) m^2/s^2; see `feet_slip`."""
        velocity = frames(env, asset_cfg).lin_vel_w
        if self._knows_normals:
            normal = self._sensors.normals()
            velocity = velocity - (velocity * normal).sum(dim=-1, keepdim=True) * normal
        else:
            velocity = velocity[..., :2]
        return velocity.square().sum(dim=-1) * self._sensors.touching()
