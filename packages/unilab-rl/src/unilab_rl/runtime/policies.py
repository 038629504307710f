"""Policies that nobody trained: what a trained one is compared with, or shown before there is one."""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["RandomPolicy", "ZeroPolicy"]


class ZeroPolicy:
    """Always does nothing: the score to beat."""

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns zeros, (N, A) float32."""
        rows = obs["obs"]
        return torch.zeros(rows.shape[0], self._num_actions, device=rows.device)


class RandomPolicy:
    """Draws each action uniformly between its bounds, an infinite bound taken for -1 or 1.

    It has a generator of its own, so equal seeds act equally, and nobody else's random numbers change.
    """

    def __init__(self, bounds: tuple[torch.Tensor, torch.Tensor], seed: int) -> None:
        """Makes a policy.

        Args:
            bounds: Lowest and highest action, each (A,) float32.
            seed: Of the draws.
        """
        low, high = bounds
        self._low = torch.where(low.isfinite(), low, -1.0)
        self._span = torch.where(high.isfinite(), high, 1.0) - self._low
        self._generator = torch.Generator(low.device).manual_seed(seed)

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions, (N, A) float32."""
        shape = (obs["obs"].shape[0], self._low.shape[0])
        drawn = torch.rand(shape, generator=self._generator, device=self._low.device)
        return self._low + self._span * drawn
