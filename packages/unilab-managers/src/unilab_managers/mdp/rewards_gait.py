"""Reward terms for keeping time with a gait clock: each returns (N,) float32, before its weight.

Foot f has the phase phi + offset_f and the beat p = sin(2 pi (phi + offset_f)), above 0 in its swing; see `GaitClock`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp._sampling import check_positive
from unilab_managers.mdp.contact_sensors import ContactSensors
from unilab_managers.mdp.feet import check_feet
from unilab_managers.mdp.frames import frame_names, frames
from unilab_managers.mdp.gait_phases import FootPhases

if TYPE_CHECKING:
    from unilab_managers.cfg.rewards import RewardTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["feet_gait", "feet_gait_contact"]

_ROBOT = SceneEntityCfg()


class feet_gait:
    """How well the feet keep time with a clock, (N,) in [0, 1].

    The share of swing of a foot is w = clip(1/2 + 2 p, 0, 1); p and w are 0 where the robot is to stand. With its
    clearance h, the wanted clearance h* = swing_height max(p, 0) and its horizontal velocity v, the reward is the mean
    over feet of

        w (no contact) exp(-((h - h*) / height_std)^2) + (1 - w) (contact) exp(-|v|^2 / slip_std^2)
    """

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds clock and feet.

        Raises:
            ValueError: There are not as many feet, sensors and offsets, or the command is no `GaitClock`.
        """
        params = cfg.all_params()
        asset_cfg: SceneEntityCfg = params["asset_cfg"]
        counts = {
            "asset_cfg": len(frame_names(env, asset_cfg)),
            "sensor_names": len(params["sensor_names"]),
            "offsets": len(params["offsets"]),
        }
        if len(set(counts.values())) > 1:
            raise ValueError(f"feet differ in number: {counts}; expected one of each per foot")
        check_feet(env, asset_cfg, params["sensor_names"])
        self._feet = frames(env, asset_cfg)
        self._sensors = ContactSensors(env, params["sensor_names"], asset_cfg, "found")
        self._phases = FootPhases(env, params["clock"], params["offsets"])
        self._half = torch.tensor(0.5, device=env.device)

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        clock: str,
        offsets: tuple[float, ...],
        asset_cfg: SceneEntityCfg,
        sensor_names: tuple[str, ...],
        radius: float,
        swing_height: float,
        height_std: float,
        slip_std: float,
    ) -> torch.Tensor:
        """Returns the reward. Clock, offsets, feet and sensors are read when the environment is built.

        Args:
            env: The environment.
            clock: Name of the `GaitClock` among the commands.
            offsets: Of each foot's phase, in turns.
            asset_cfg: The entity, and the sites or bodies in the middle of its feet.
            sensor_names: Contact sensors that report `found`, in the order of the feet.
            radius: Of the feet, m.
            swing_height: Highest clearance of a swinging foot, m.
            height_std: Difference of heights that leaves 1/e of the reward, m.
            slip_std: Speed of a foot on the ground that leaves 1/e of the reward, m/s.

        Raises:
            ValueError: `height_std` or `slip_std` is not above 0.
        """
        check_positive(height_std=height_std, slip_std=slip_std)
        beats = self._phases.sines()
        swing = torch.add(self._half, beats, alpha=2.0).clamp_(0.0, 1.0).mul_(self._phases.moving())
        contact = self._sensors.flags()
        wanted = beats.clamp_(min=0.0).mul_(swing_height).add_(radius)
        height = self._feet.pos_w[..., 2] - wanted
        along_x, along_y, _ = self._feet.lin_vel_w.unbind(dim=-1)
        slip = (along_x * along_x).add_(along_y * along_y)
        lifted = height.square_().mul_(-1.0 / height_std**2).exp_().mul_(1.0 - contact)
        planted = slip.mul_(-1.0 / slip_std**2).exp_().mul_(contact)
        return torch.lerp(planted, lifted, swing).mean(dim=-1)


class feet_gait_contact:
    """The share of feet that are in contact when they shall be, and only then, (N,) in [0, 1].

    A foot shall be in the air while p > -cos(pi stance_share): around the middle of its swing, for the share
    1 - stance_share of a turn. Where the robot is to stand, all feet shall be in contact.
    """

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds clock and sensors.

        Raises:
            ValueError: There are not as many sensors and offsets, or the command is no `GaitClock`.
        """
        params = cfg.all_params()
        self._sensors = ContactSensors(env, params["sensor_names"], params["asset_cfg"], "found")
        self._phases = FootPhases(env, params["clock"], params["offsets"])
        counts = {"sensor_names": len(self._sensors.names), "offsets": len(params["offsets"])}
        if len(set(counts.values())) > 1:
            raise ValueError(f"feet differ in number: {counts}; expected one of each per foot")

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        clock: str,
        offsets: tuple[float, ...],
        sensor_names: tuple[str, ...],
        stance_share: float = 0.5,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> torch.Tensor:
        """Returns the share; `stance_share` is the part of a turn that a foot shall stand, others as of `feet_gait`.

        Raises:
            ValueError: `stance_share` is not between 0 and 1.
        """
        if not 0.0 < stance_share < 1.0:
            raise ValueError(f"stance_share is {stance_share}, expected 0 < stance_share < 1")
        lifted = self._phases.sines() > -math.cos(math.pi * stance_share)
        wanted = ~(lifted & (self._phases.moving() > 0.0))
        return (self._sensors.touching() == wanted).float().mean(dim=1)
