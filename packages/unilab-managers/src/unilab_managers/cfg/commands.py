"""What a config says about when a command is replaced."""

from __future__ import annotations

from unilab_managers.cfg.term import TermCfg

__all__ = ["ResampleConditionCfg"]


class ResampleConditionCfg(TermCfg):
    """Which rows need a new command, whatever their timers say. The function returns (N,) bool.

    It is asked in every step, after events and before the command is brought up to date, so it sees the command that
    the step was rewarded for. Any function `f(env, **params)` will do, a termination's too.
    """
