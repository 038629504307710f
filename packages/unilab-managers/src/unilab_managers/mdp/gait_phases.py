"""The phases of feet that keep time with a gait clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_managers.mdp.commands.gait import GaitClock

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["FootPhases"]


class FootPhases:
    """What a `GaitClock` says to each of F feet, whose phases differ by offsets; 0 where the robot is to stand."""

    row_settings: ClassVar[tuple[str, ...]] = ("_clock", "_to_sines", "_to_cosines")

    def __init__(self, env: ManagerBasedRlEnv, clock: str, offsets: Sequence[float]) -> None:
        """Finds the clock.

        Args:
            env: The environment.
            clock: Name of the command.
            offsets: What is added to the clock's phase, in turns, one per foot.

        Raises:
            UnknownNameError: There is no such command; the message lists the nearest.
            ValueError: It is no `GaitClock`, or there are no offsets.
        """
        self._env = env
        self._clock = clock
        self.clock()
        if not offsets:
            raise ValueError("offsets is empty, expected one per foot")
        angles = torch.tensor(offsets, device=env.device) * (2.0 * math.pi)
        # They turn (sin, cos) of the clock's phase into those of each foot's own.
        self._to_sines = torch.stack([angles.cos(), angles.sin()])
        self._to_cosines = torch.stack([-angles.sin(), angles.cos()])

    def clock(self) -> GaitClock:
        """Returns the clock.

        Raises:
            UnknownNameError: There is no such command; the message lists the nearest.
            ValueError: It is no `GaitClock`.
        """
        term = self._env.command_manager.get_term(self._clock)
        if not isinstance(term, GaitClock):
            raise ValueError(f"clock {self._clock!r} is a {type(term).__name__}, expected a GaitClock")
        return term

    def sines(self) -> torch.Tensor:
        """Returns sin(2 pi (phase + offset)) of each foot, (N, F); a fresh tensor."""
        return self.clock().command @ self._to_sines

    def cosines(self) -> torch.Tensor:
        """Returns cos(2 pi (phase + offset)) of each foot, (N, F); a fresh tensor."""
        return self.clock().command @ self._to_cosines

    def moving(self) -> torch.Tensor:
        """Returns 1 where the robot is to move, 0 where it is to stand, (N, 1) float32."""
        return self.clock().moving
