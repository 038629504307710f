"""The tanh-Normal distribution: a Normal sample u squashed to tanh(u) in (-1, 1) (Haarnoja et al. 2018, appendix C)."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

__all__ = ["squashed_sample"]

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)


def squashed_sample(
    mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a sample and its log-density, differentiable in `mean` and `log_std` (the reparameterisation trick).

    With u = mean + exp(log_std) * noise the sample is tanh(u), and log |d tanh(u) / du| is computed as
    2 (log 2 - u - softplus(-2u)): exact for every u, while log(1 - tanh(u)^2) is lost to rounding from |u| = 9 on.

    Args:
        mean: (..., A), of u.
        log_std: (..., A), logarithm of the standard deviation of u.
        noise: (..., A), standard normal.

    Returns:
        The squashed sample (..., A) in [-1, 1], and its log-density (...) in nats, summed over the actions. The density
        is that of the squashed sample; `ActionBounds.log_volume` less is that of the environment's action.
    """
    unsquashed = torch.addcmul(mean, log_std.exp(), noise)
    normal = -0.5 * noise.square() - log_std - _HALF_LOG_2_PI
    log_slope = 2.0 * (_LOG_2 - unsquashed - functional.softplus(-2.0 * unsquashed))
    return torch.tanh(unsquashed), (normal - log_slope).sum(-1)
