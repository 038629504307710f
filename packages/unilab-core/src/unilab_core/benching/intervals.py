"""Medians with intervals that assume nothing of a distribution, and straight lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["FEWEST", "Line", "Median", "fit_line", "median_of"]

FEWEST = 6
"""Fewer values have no 95 % interval: both ends of five lie on one side of the median in one case of 16."""


@dataclass(frozen=True)
class Median:
    """A median and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2.0


def median_of(values: Sequence[float]) -> Median:
    """Returns the median and the interval between two order statistics that covers it in at least 95 % of cases.

    How many values lie below the true median is binomial with p = 1/2, whatever the values are distributed like; the
    interval leaves out as many on each side as it can.

    Raises:
        ValueError: Fewer than `FEWEST` values.
    """
    n, ordered = len(values), sorted(values)
    if n < FEWEST:
        raise ValueError(f"median_of: got {n} values, expected at least {FEWEST}")
    left_out, below = 0, 1  # the number of outcomes, of 2 ** n, with at most `left_out` values on one side
    while 40 * (below + math.comb(n, left_out + 1)) <= 2**n:
        left_out += 1
        below += math.comb(n, left_out)
    return Median(median(ordered), ordered[left_out], ordered[n - 1 - left_out])


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x."""

    intercept: float
    slope: float

    def at(self, x: float) -> float:
        """Returns y at x."""
        return self.intercept + self.slope * x


def fit_line(x: Sequence[float], y: Sequence[float], errors: Sequence[float]) -> Line:
    """Returns the line of least squares, each value weighed by its error: sum(((y - line(x)) / error) ** 2).

    Raises:
        ValueError: Fewer than two different x, or an error that is not positive.
    """
    if len(set(x)) < 2 or min(errors) <= 0.0:
        raise ValueError(
            f"fit_line: got x = {list(x)} with errors {list(errors)}, expected two different x and errors above 0"
        )
    weights = [error**-2 for error in errors]
    total = sum(weights)
    x_mean = sum(w * v for w, v in zip(weights, x, strict=True)) / total
    y_mean = sum(w * v for w, v in zip(weights, y, strict=True)) / total
    spread = sum(w * (v - x_mean) ** 2 for w, v in zip(weights, x, strict=True))
    slope = sum(w * (a - x_mean) * (b - y_mean) for w, a, b in zip(weights, x, y, strict=True)) / spread
    return Line(y_mean - slope * x_mean, slope)
