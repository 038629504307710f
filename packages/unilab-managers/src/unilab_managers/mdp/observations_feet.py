"""Observation terms of feet, F of them: each returns (N, F) float32, columns in the order of the names given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import OfContactSensors
from unilab_managers.mdp.feet_terms import OfFeetContacts, OfFeetSwing
from unilab_managers.mdp.frames import frames
from unilab_managers.mdp.gait_phases import FootPhases
from unilab_managers.mdp.labels import columns, frame_columns, sensor_columns

if TYPE_CHECKING:
    from unilab_managers.cfg.observations import ObservationTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "foot_air_time",
    "foot_contact",
    "foot_contact_time",
    "foot_height",
    "foot_swing_peak",
    "gait_phase",
]

_ROBOT = SceneEntityCfg()


@columns(unit="", names=sensor_columns)
class foot_contact(OfContactSensors):
    """Whether a foot touched something in the last substep: 1, else 0."""

    needed = ("found",)

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the contacts, (N, F).

        Args:
            env: The environment.
            sensor_names: Contact sensors that report `found`, one per foot, of the entity or of the scene.
            asset_cfg: The entity.
        """
        return self._sensors.flags()


@columns(unit="s", names=sensor_columns)
class foot_air_time(OfFeetContacts):
    """For how long a foot has been in the air; 0 in contact. See `FeetContacts.air_time`."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the times, (N, F) s; parameters as of `foot_contact`."""
        return self.feet.air_time


@columns(unit="s", names=sensor_columns)
class foot_contact_time(OfFeetContacts):
    """For how long a foot has been in contact; 0 in the air. See `FeetContacts.contact_time`."""

    def __call__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg = _ROBOT
    ) -> torch.Tensor:
        """Returns the times, (N, F) s; parameters as of `foot_contact`."""
        return self.feet.contact_time


@columns(unit="m", names=frame_columns())
def foot_height(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, radius: float = 0.0) -> torch.Tensor:
    """Returns how high feet are above the plane z = 0 of the world, (N, F) m.

    Args:
        env: The environment.
        asset_cfg: The entity, and the sites or bodies that are its feet.
        radius: How far the lowest point of a foot lies below its frame, m: that of a spherical foot.
    """
    return frames(env, asset_cfg).pos_w[..., 2] - radius


@columns(unit="m", names=frame_columns())
class foot_swing_peak(OfFeetSwing):
    """How high a foot has been lifted in its present swing, in contact in its last one. See `FeetSwing.peak`."""

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        sensor_names: tuple[str, ...],
        asset_cfg: SceneEntityCfg,
        radius: float = 0.0,
    ) -> torch.Tensor:
        """Returns the heights above the plane z = 0, (N, F) m; parameters as of `foot_contact` and `foot_height`."""
        return self.feet.peak - radius


def _phase_columns(env: ManagerBasedRlEnv, offsets: tuple[float, ...], **params: object) -> tuple[str, ...]:
    return tuple(f"{part}({offset:g})" for part in ("sin", "cos") for offset in offsets)


@columns(unit="", names=_phase_columns)
class gait_phase:
    """Sine and cosine of the phase of each foot, of a `GaitClock`; all 0 where the robot is to stand."""

    def __init__(self, cfg: ObservationTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the clock.

        Raises:
            UnknownNameError: There is no such command; the message lists the nearest.
            ValueError: It is no `GaitClock`, or there are no offsets.
        """
        params = cfg.all_params()
        self._phases = FootPhases(env, params["clock"], params["offsets"])

    def __call__(self, env: ManagerBasedRlEnv, clock: str, offsets: tuple[float, ...]) -> torch.Tensor:
        """Returns the F sines, then the F cosines, (N, 2 F).

        Args:
            env: The environment.
            clock: Name of the `GaitClock` among the commands.
            offsets: Of each foot's phase, in turns; read when the environment is built.
        """
        return torch.cat([self._phases.sines(), self._phases.cosines()], dim=1)
