"""What a config says about metrics."""

from __future__ import annotations

from typing import Literal

from unilab_managers.cfg.term import TermCfg

__all__ = ["MetricsTermCfg"]


class MetricsTermCfg(TermCfg):
    """One number per episode, for the log only.

    The term returns (N,) float32, or (N, S) float32 with one column per substep of the control step, whose mean over S
    is the step's value.
    """

    reduce: Literal["mean", "sum", "last", "max", "min"] = "mean"
    """How an episode's number follows from the values of its steps."""
