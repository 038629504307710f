"""Terms of the velocity tasks: a gait clock, a reward for keeping time with it, and what the feet do.

F below is the number of feet, in the order of the names given.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, cast

import torch
from pydantic import Field

from unilab_core import SceneEntityCfg
from unilab_managers import CommandTerm, CommandTermCfg
from unilab_managers.mdp.labels import columns

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_managers import ManagerBasedRlEnv, RewardTermCfg

__all__ = ["GaitClock", "GaitClockCfg", "foot_clearances", "foot_contacts", "gait"]


class GaitClockCfg(CommandTermCfg):
    """A clock to trot by. Declare it after the velocity command, which it looks at."""

    velocity_command: str
    """Name of the command, (vx m/s, vy m/s, wz rad/s), that says whether there is anything to walk for."""
    frequency_hz: Annotated[float, Field(gt=0)]
    """Steps of each foot per second."""
    standing_below: Annotated[float, Field(ge=0)] = 0.05
    """Length of the velocity command below which the clock stands still in the observation, m/s and rad/s together."""
    resampling_time_range: tuple[float, float] = (1e6, 1e6)
    """A row keeps its phase for its whole episode."""

    def make(self, env: TorchEnv, name: str) -> GaitClock:
        """Returns the term; see `CommandTermCfg`."""
        return GaitClock(self, env, name)


class GaitClock(CommandTerm):
    """Holds sine and cosine of the gait's phase, (N, 2); both 0 where the robot is to stand.

    The phase is drawn on reset. It runs on after the rewards of a step, so a reward judges a state by the very phase
    that the policy saw when it acted.

    Attributes:
        phase: (N,) in turns, [0, 1).
        moving: (N, 1) float32, 1 where the robot is to move, 0 where it is to stand.
    """

    cfg: GaitClockCfg

    def __init__(self, cfg: GaitClockCfg, env: TorchEnv, name: str) -> None:
        """Allocates the clock; see `CommandTerm`."""
        super().__init__(cfg, env, name)
        self.phase = torch.zeros(env.num_envs, device=env.device)
        self.moving = torch.zeros(env.num_envs, 1, device=env.device)
        self._angle = torch.zeros_like(self.phase)
        self._command = torch.zeros(env.num_envs, 2, device=env.device)

    @property
    def command(self) -> torch.Tensor:
        """(N, 2) sine and cosine of the phase: a view that the next step rewrites."""
        return self._command

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns."""
        return ("sin", "cos")

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        drawn = self._env.rng.uniform(0.0, 1.0, self._env.num_envs)
        self.phase.copy_(torch.where(reset_mask, drawn, self.phase))

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        # All rows, also after a reset of some: what follows from the phase is the same for the others as before.
        self.phase.add_(dt * self.cfg.frequency_hz).frac_()
        commands = cast("ManagerBasedRlEnv", self._env).command_manager
        velocity = commands.get_command(self.cfg.velocity_command)
        self.moving.copy_(torch.linalg.vector_norm(velocity, dim=-1, keepdim=True) > self.cfg.standing_below)
        torch.mul(self.phase, 2.0 * math.pi, out=self._angle)
        torch.sin(self._angle, out=self._command[:, 0])
        torch.cos(self._angle, out=self._command[:, 1])
        self._command.mul_(self.moving)


def _sensor_columns(
    env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], **params: object
) -> tuple[str, ...]:
    return sensor_names


def _site_columns(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, **params: object) -> tuple[str, ...]:
    return asset_cfg.site_names or ()


@columns(unit="", names=_sensor_columns)
def foot_contacts(env: ManagerBasedRlEnv, sensor_names: tuple[str, ...]) -> torch.Tensor:
    """Returns 1 where a foot touched something in the last substep, else 0, (N, F).

    Args:
        env: The environment.
        sensor_names: Contact sensors that report `found` and nothing else, one per foot.
    """
    found = torch.cat([env.scene.sensor(name) for name in sensor_names], dim=-1)
    return found.clamp(max=1.0)


@columns(unit="m", names=_site_columns)
def foot_clearances(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, radius: float) -> torch.Tensor:
    """Returns how high the lowest point of each foot is above the plane z = 0, (N, F) m.

    Args:
        env: The environment.
        asset_cfg: The entity, and the sites in the middle of its feet, each by its name.
        radius: Of the feet, m.
    """
    return env.scene[asset_cfg.name].data.sites(asset_cfg).pos_w[..., 2] - radius


class gait:
    """How well the feet keep time with a clock, (N,) in [0, 1].

    Foot f has the phase phi + offset_f, the beat p = sin(2 pi (phi + offset_f)) and the share of swing
    w = clip(1/2 + 2 p, 0, 1); both are 0 where the robot is to stand. With its clearance h, the wanted clearance
    h* = swing_height max(p, 0) and its horizontal velocity v, the reward is the mean over feet of

        w (no contact) exp(-((h - h*) / height_std)^2) + (1 - w) (contact) exp(-|v|^2 / slip_std^2)
    """

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the feet.

        Raises:
            ValueError: There are not as many sites, sensors and offsets.
        """
        params = cfg.params
        asset_cfg: SceneEntityCfg = params["asset_cfg"]
        counts = {
            "asset_cfg.site_names": len(asset_cfg.site_names or ()),
            "sensor_names": len(params["sensor_names"]),
            "offsets": len(params["offsets"]),
        }
        if len(set(counts.values())) > 1:
            raise ValueError(f"feet differ in number: {counts}; expected one of each per foot")
        self._sites = env.scene[asset_cfg.name].data.sites(asset_cfg)
        angles = torch.tensor(params["offsets"], device=env.device) * (2.0 * math.pi)
        # Turns (sin, cos) of the clock's phase into the sine of each foot's own.
        self._beats = torch.stack([angles.cos(), angles.sin()])

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
        """Returns the reward.

        Args:
            env: The environment.
            clock: Name of the `GaitClock` among the commands.
            offsets: Of each foot's phase, in turns; read when the environment is built.
            asset_cfg: The entity, and the sites in the middle of its feet.
            sensor_names: Contact sensors as `foot_contacts` takes them, in the order of the sites.
            radius: Of the feet, m.
            swing_height: Highest clearance of a swinging foot, m.
            height_std: Difference of heights that leaves 1/e of the reward, m.
            slip_std: Speed of a foot on the ground that leaves 1/e of the reward, m/s.
        """
        term = env.command_manager.get_term(clock)
        assert isinstance(term, GaitClock)
        beats = term.command @ self._beats
        swing = (0.5 + 2.0 * beats).clamp_(0.0, 1.0).mul_(term.moving)
        contact = foot_contacts(env, sensor_names)
        height = self._sites.pos_w[..., 2] - beats.clamp(min=0.0).mul_(swing_height).add_(radius)
        slip = self._sites.lin_vel_w[..., :2].square().sum(dim=-1)
        lifted = torch.exp(height.square().mul_(-1.0 / height_std**2)).mul_(1.0 - contact)
        planted = torch.exp(slip.mul_(-1.0 / slip_std**2)).mul_(contact)
        return torch.lerp(planted, lifted, swing).mean(dim=-1)
