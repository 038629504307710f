"""Seconds to whole control steps, the same everywhere."""

from __future__ import annotations

import math

__all__ = ["seconds_to_steps"]


def seconds_to_steps(seconds: float, step_dt: float) -> int:
    """Returns how many control steps `seconds` are.

    The nearest integer when the quotient is within 1e-6 of it (binary fractions miss by less), otherwise rounded up;
    at least one.

    Args:
        seconds: A duration, s.
        step_dt: Length of a control step, s.
    """
    quotient = seconds / step_dt
    nearest = round(quotient)
    if abs(quotient - nearest) <= 1e-6:
        return max(1, nearest)
    return max(1, math.ceil(quotient))
