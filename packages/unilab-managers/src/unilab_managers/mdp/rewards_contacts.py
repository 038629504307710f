"""Reward terms of contacts that are not those of feet in a gait: each returns (N,) float32, before its weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import OfContactSensors

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["contact_forces", "undesired_contacts"]

_ROBOT = SceneEntityCfg()


class undesired_contacts(OfContactSensors):
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


class contact_forces(OfContactSensors):
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
