"""The learned temperature of entropy-regularised algorithms (Haarnoja et al. 2018, 1812.05905, section 5)."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["Temperature"]


class Temperature(nn.Module):
    """alpha, the worth of a nat of entropy in units of reward; its logarithm is learned, so that it stays positive."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial)))

    def forward(self) -> torch.Tensor:
        """Returns alpha, 0-d, differentiable."""
        return self.log_alpha.exp()
