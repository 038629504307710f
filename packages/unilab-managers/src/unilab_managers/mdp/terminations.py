"""Termination terms: each returns (N,) bool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["time_out"]


def time_out(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns which episodes have reached the time limit, (N,) bool; a truncation by itself."""
    return env.timed_out


time_out.is_time_out = True  # type: ignore[attr-defined] # what a termination says of itself
