"""What stands before a network and normalises its observations, or doesn't."""

from __future__ import annotations

import torch
from torch import nn

from unilab_rl.replay.normalizer import ObservationNormalizer

__all__ = ["AsObserved", "obs_normalizer"]


class AsObserved(nn.Module):
    """Leaves observations as they are."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns `obs` itself."""
        return obs

    def update(self, obs: torch.Tensor) -> None:
        """Does nothing: there are no statistics to keep."""


def obs_normalizer(width: int, *, enabled: bool) -> ObservationNormalizer | AsObserved:
    """Returns a new normaliser of observations (N, width), or what leaves them as they are."""
    return ObservationNormalizer(width) if enabled else AsObserved()
