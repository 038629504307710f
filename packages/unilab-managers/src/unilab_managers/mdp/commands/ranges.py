"""Ranges that commands are drawn from, and that a curriculum may change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import AfterValidator

from unilab_core.errors import UnknownNameError, nearest
from unilab_core.rng import EnvRng

__all__ = ["Range", "UniformRanges"]


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError(f"{value} is inverted; expected (low, high)")
    return value


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
"""Lowest and highest value of a uniform draw."""


class UniformRanges:
    """Named ranges side by side, one column each. What they are now is state, kept on the device.

    Attributes:
        low: (W,) float32 lowest values.
        high: (W,) float32 highest values.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]], device: torch.device, owner: str) -> None:
        """Starts from `ranges`, in this order; `owner` is whose they are, for error messages."""
        self._owner = owner
        self._columns = {name: column for column, name in enumerate(ranges)}
        self.low, self.high = torch.tensor(list(ranges.values()), device=device).unbind(dim=1)
        self.low, self.high = self.low.clone(), self.high.clone()
        # What `set` was given last, so that a curriculum may say the same in every step for nothing.
        self._given: dict[str, float] = {}

    def draw(self, rng: EnvRng, num_rows: int) -> torch.Tensor:
        """Returns (N, W) float32 draws."""
        return rng.uniform(self.low, self.high, (num_rows, len(self._columns)))

    def set(self, ranges: Mapping[str, Sequence[float]]) -> None:
        """Replaces the ranges that are named; asks the device nothing.

        Raises:
            UnknownNameError: No such range; the message lists the nearest.
            ValueError: Not two finite numbers, or inverted; nothing has changed.
        """
        for name, pair in ranges.items():
            self._column(name)
            if len(pair) != 2 or not all(math.isfinite(value) for value in pair):
                raise ValueError(f"{self._owner}: {name} is {pair}; expected two finite numbers (low, high)")
            if pair[0] > pair[1]:
                raise ValueError(f"{self._owner}: {name} {pair} is inverted; expected (low, high)")
        for name, (low, high) in ranges.items():
            column, keys = self._columns[name], _keys(name)
            if (self._given.get(keys[0]), self._given.get(keys[1])) != (low, high):
                self.low[column] = low
                self.high[column] = high
                self._given |= {keys[0]: low, keys[1]: high}

    def widen(self, name: str, by: float, limits: tuple[float, float], where: torch.Tensor) -> None:
        """Moves both ends of a range outwards by `by`, where 0-d bool `where` holds, but not beyond `limits`.

        An end that is at its limit, or beyond it, stays where it is.

        Raises:
            UnknownNameError: No such range; the message lists the nearest.
        """
        column = self._column(name)
        low, high = self.low[column], self.high[column]
        low.copy_(torch.where(where, torch.minimum(low, (low - by).clamp(min=limits[0])), low))
        high.copy_(torch.where(where, torch.maximum(high, (high + by).clamp(max=limits[1])), high))
        for key in _keys(name):
            self._given.pop(key, None)

    def ends(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the lowest and the highest value of a range now, 0-d views.

        Raises:
            UnknownNameError: No such range; the message lists the nearest.
        """
        column = self._column(name)
        return self.low[column], self.high[column]

    def read(self) -> dict[str, tuple[float, float]]:
        """Returns the ranges as numbers; waits for the device."""
        lows, highs = self.low.tolist(), self.high.tolist()
        return {name: (lows[column], highs[column]) for name, column in self._columns.items()}

    def _column(self, name: str) -> int:
        if name not in self._columns:
            raise UnknownNameError(f"{self._owner}: unknown range {name!r}; {nearest(name, self._columns)}")
        return self._columns[name]


def _keys(name: str) -> tuple[str, str]:
    return f"{name}_min", f"{name}_max"
