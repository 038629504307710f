"""Velocity commands of a root body, in its own frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field, field_validator

from unilab_managers.managers.command_manager import CommandTerm, CommandTermCfg
from unilab_managers.mdp.commands.ranges import Range, UniformRanges

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["UniformVelocityCommand", "UniformVelocityCommandCfg"]

Share = Annotated[float, Field(ge=0, le=1)]
_YAW_RATE = 2


class UniformVelocityCommandCfg(CommandTermCfg):
    """A forward, a sideward and a turning velocity of the root body, in its frame, drawn uniformly."""

    lin_vel_x: Range
    """Forward velocity, m/s."""
    lin_vel_y: Range
    """Velocity to the left, m/s."""
    ang_vel_z: Range
    """Yaw rate, rad/s; also what bounds the rate that a heading asks for."""
    heading: Range | None = None
    """Heading in the world, rad, towards which rows turn instead of keeping a drawn yaw rate; None: no row does."""
    heading_control_stiffness: Annotated[float, Field(gt=0)] = 1.0
    """Yaw rate per angle that is missing to the heading, 1/s."""
    rel_heading_envs: Share = 1.0
    """Chance that a drawn command has a heading, if there is a range of headings."""
    rel_standing_envs: Share = 0.0
    """Chance that a drawn command is to stand still."""
    fixed: tuple[tuple[float, float, float], ...] | None = None
    """Commands (lin_vel_x, lin_vel_y, ang_vel_z) that rows hold in turn instead of drawn ones: an evaluation's grid.
    Nothing is drawn then, and neither headings nor standing play a part."""

    @field_validator("fixed")
    @classmethod
    def _not_empty(
        cls, value: tuple[tuple[float, float, float], ...] | None
    ) -> tuple[tuple[float, float, float], ...] | None:
        if value is not None and not value:
            raise ValueError("fixed is empty; expected commands, or None to draw them")
        return value

    def make(self, env: TorchEnv, name: str) -> UniformVelocityCommand:
        """Returns the term; see `CommandTermCfg`."""
        return UniformVelocityCommand(self, env, name)


class UniformVelocityCommand(CommandTerm):
    """Holds (N, 3): lin_vel_x, lin_vel_y in m/s and ang_vel_z in rad/s, in the root body's frame."""

    metric_names: ClassVar[tuple[str, ...]] = ("error_lin_vel_x", "error_lin_vel_y", "error_ang_vel_z")
    cfg: UniformVelocityCommandCfg

    def __init__(self, cfg: UniformVelocityCommandCfg, env: TorchEnv, name: str) -> None:
        """Allocates the commands; see `CommandTerm`."""
        super().__init__(cfg, env, name)
        n, device = env.num_envs, env.device
        ranges = {"lin_vel_x": cfg.lin_vel_x, "lin_vel_y": cfg.lin_vel_y, "ang_vel_z": cfg.ang_vel_z}
        if cfg.heading is not None:
            ranges["heading"] = cfg.heading
        self._ranges = UniformRanges(ranges, device, self.label)
        self._command = torch.zeros(n, 3, device=device)
        self._heading = torch.zeros(n, device=device)
        self._turns = torch.zeros(n, dtype=torch.bool, device=device)
        if cfg.fixed is not None:
            table = torch.tensor(cfg.fixed, device=device)
            self._command.copy_(table[torch.arange(n, device=device) % len(cfg.fixed)])

    @property
    def command(self) -> torch.Tensor:
        """(N, 3) current command: a view that the next step rewrites."""
        return self._command

    @property
    def labels(self) -> tuple[str, ...]:
        """The velocities' names."""
        return ("lin_vel_x", "lin_vel_y", "ang_vel_z")

    @property
    def ranges(self) -> UniformRanges:
        """What commands are drawn from now, by name: the velocities, and `heading` if the config has one."""
        return self._ranges

    def set_ranges(self, **ranges: tuple[float, float]) -> None:
        """Replaces ranges that later commands are drawn from; the config and the current commands stay.

        Raises:
            UnknownNameError: No such range; the message lists the nearest.
            ValueError: Not two finite numbers, or inverted; nothing has changed.
        """
        self._ranges.set(ranges)

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        if self.cfg.fixed is not None:
            return
        n = self._env.num_envs
        drawn = self._ranges.draw(self._env.rng, n)
        turns, stands = self._env.rng.uniform(0.0, 1.0, (n, 2)).unbind(dim=1)
        stands = stands < self.cfg.rel_standing_envs
        velocity = drawn[:, :3].masked_fill_(stands[:, None], 0.0)
        torch.where(reset_mask[:, None], velocity, self._command, out=self._command)
        if self.cfg.heading is not None:
            turns = (turns < self.cfg.rel_heading_envs) & ~stands
            torch.where(reset_mask, turns, self._turns, out=self._turns)
            torch.where(reset_mask, drawn[:, 3], self._heading, out=self._heading)

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        if self.cfg.heading is None or self.cfg.fixed is not None:
            return
        missing = torch.remainder(self._heading - self.entity.data.heading_w + math.pi, 2 * math.pi) - math.pi
        rate = missing * self.cfg.heading_control_stiffness
        rate = torch.clamp(rate, *self._ranges.ends("ang_vel_z"))
        now = self._command[:, _YAW_RATE]
        rate = torch.where(self._turns, rate, now)
        if env_ids is None:
            now.copy_(rate)
        else:
            now[env_ids] = rate[env_ids]

    def _update_metrics(self) -> None:
        data = self.entity.data
        moves = torch.cat([data.root_lin_vel_b[:, :2], data.root_ang_vel_b[:, 2:]], dim=1)
        self.metric_sums += torch.sub(self._command, moves, out=moves).abs_()
