"""Reward terms of contacts that are not those of feet in a gait: each returns (N,) float32, before its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import ContactSensors

if TYPE_CHECKING:
    from unilab_managers.cfg.rewards import RewardTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["contact_forces", "undesired_contacts"]

_ROBOT = SceneEntityCfg()


class _OfForces:
    """A term that looks at the forces of contact sensors."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the sensors.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A sensor does not report `force`.
        """
        params = cfg.all_params()
        self._sensors = ContactSensors(env, params["sensor_names"], params["asset_cfg"], "force")


class undesired_contacts(_OfForces):
    """How many sensors feel more than a threshold, (N,)."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        threshold: float = 0.0,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns the number.

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `force`, of the entity or of the scene. Of one with
                `substeps=True` the strongest force in the control step counts, of others that of the last substep.
            threshold: N; what is not above it is no contact.
            asset_cfg: The entity.
        """
        return (self._sensors.forces() > threshold).sum(dim=1).float()


class contact_forces(_OfForces):
    """How much more than a limit contact sensors feel: the sum of the excess, (N,) N."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        limit: float,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns the sum of max(force - limit, 0); `limit` in N, other parameters as of `undesired_contacts`."""
        return (self._sensors.forces() - limit).clamp(min=0.0).sum(dim=1)
