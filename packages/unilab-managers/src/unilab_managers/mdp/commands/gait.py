"""A clock to walk by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import torch
from pydantic import Field

from unilab_managers.managers.command_manager import CommandTerm, CommandTermCfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["GaitClock", "GaitClockCfg"]


class GaitClockCfg(CommandTermCfg):
    """A clock to walk or trot by. Declare it after the velocity command, which it looks at."""

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

    row_settings: ClassVar[tuple[str, ...]] = ("_sine", "_cosine")
    cfg: GaitClockCfg

    def __init__(self, cfg: GaitClockCfg, env: TorchEnv, name: str) -> None:
        """Allocates the clock; see `CommandTerm`."""
        super().__init__(cfg, env, name)
        self.phase = torch.zeros(env.num_envs, device=env.device)
        self.moving = torch.zeros(env.num_envs, 1, device=env.device)
        self._angle = torch.zeros_like(self.phase)
        self._command = torch.zeros(env.num_envs, 2, device=env.device)
        self._sine, self._cosine = self._command.unbind(dim=1)  # views, made once

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
        torch.where(reset_mask, drawn, self.phase, out=self.phase)

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        # All rows, also after a reset of some: what follows from the phase is the same for the others as before.
        self.phase.add_(dt * self.cfg.frequency_hz).frac_()
        commands = cast("ManagerBasedRlEnv", self._env).command_manager
        velocity = commands.get_command(self.cfg.velocity_command)
        speed = torch.linalg.vector_norm(velocity, dim=-1, keepdim=True)
        torch.gt(speed, self.cfg.standing_below, out=self.moving)  # as 1 and 0
        torch.mul(self.phase, 2.0 * math.pi, out=self._angle)
        torch.sin(self._angle, out=self._sine)
        torch.cos(self._angle, out=self._cosine)
        self._command.mul_(self.moving)
