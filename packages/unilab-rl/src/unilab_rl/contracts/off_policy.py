"""What off-policy learning is made of: a batch of transitions, and an explorer that acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Explorer"]


@dataclass(frozen=True)
class Batch:
    """B transitions of one to n steps, as a replay returns them.

    A window of n steps is cut short at the first end of an episode and at the newest row, so the effective length k
    differs from sample to sample. The target of a value is `rewards + discounts * ~terminated * V(next_obs)`.
    """

    obs: Mapping[str, torch.Tensor]
    """Raw observations by group, (B, width) float32 each, at the first step of the window."""

    actions: torch.Tensor
    """(B, A) float32, as the environment was given them at that step."""

    rewards: torch.Tensor
    """(B,) float32: the sum of gamma^i r_i over the k steps of the window."""

    next_obs: Mapping[str, torch.Tensor]
    """Raw observations by group after the last step of the window; of an episode that ended there, its final ones."""

    discounts: torch.Tensor
    """(B,) float32: gamma^k."""

    terminated: torch.Tensor
    """(B,) bool: whether the window ends in a true end, from which nothing is bootstrapped; a time-out is none."""


class Explorer(Protocol):
    """Acts with exploration noise, in this process or in a collector of its own."""

    @property
    def module(self) -> torch.nn.Module:
        """What acting depends on: networks and the statistics of their normalisers. Its weights are published."""
        ...

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        ...

    def episodes_ended(self, done: torch.Tensor) -> None:
        """Is told which of the N rows start a new episode, (N,) bool: noise that belongs to an episode is redrawn."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns copies of the noise and of the state of its generator: plain data and tensors."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned; ValueError where it doesn't fit, and nothing has changed."""
        ...
