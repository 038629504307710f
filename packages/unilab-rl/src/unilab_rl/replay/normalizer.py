"""Running statistics that a policy ships with: of observations, and of returns for the scale of rewards."""

from __future__ import annotations

import torch
from torch import nn

from unilab_core import ConfigError

__all__ = ["ObservationNormalizer", "RewardScaler"]


class ObservationNormalizer(nn.Module):
    """Subtracts the running mean of observations and divides by their standard deviation.

    Mean and variance are those of all observations seen, as if computed at once: batches are merged pairwise in double
    precision (Chan, Golub and LeVeque 1979), and the count is an integer, exact beyond the 2^24 where one in float32
    stops. Before the first update the mean is 0 and the variance 1.

    Attributes:
        mean: (D,) float64, a buffer.
        var: (D,) float64, a buffer: the population variance.
        count: 0-d int64, a buffer: rows seen.
        eps: Added to the standard deviation, so that a column that hardly moves isn't blown up.
    """

    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor

    def __init__(self, width: int, *, eps: float = 1e-2, device: torch.device | str | None = None) -> None:
        """Starts without statistics.

        Args:
            width: D, the columns of an observation.
            eps: Default: that of FastTD3 and rsl-rl.
            device: Where the buffers are; `None`: torch's default.

        Raises:
            ConfigError: `width` or `eps` is not positive.
        """
        super().__init__()
        if width < 1:
            raise ConfigError(f"ObservationNormalizer: width is {width}, expected at least 1")
        if not eps > 0.0:
            raise ConfigError(f"ObservationNormalizer: eps is {eps}, expected a positive number")
        self.eps = eps
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64, device=device))
        self.register_buffer("var", torch.ones(width, dtype=torch.float64, device=device))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))

    @torch.no_grad()
    def update(self, obs: torch.Tensor) -> None:
        """Takes observations, (B, D) and finite, into the statistics; does nothing in evaluation mode, or where B is 0.

        Raises:
            ValueError: The shape is not (B, D).
        """
        width = self.mean.shape[0]
        if obs.ndim != 2 or obs.shape[1] != width:
            raise ValueError(
                f"ObservationNormalizer.update: observations have shape {tuple(obs.shape)}, expected (B, {width})"
            )
        if self.training:
            rows = obs.to(torch.float64)
            mean = rows.mean(dim=0)
            squares = (rows - mean).square().sum(dim=0)
            count = torch.full_like(self.count, obs.shape[0])
            _merge(self.mean, self.var, self.count, mean, squares, count)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns `(obs - mean) / (sqrt(var) + eps)` in the dtype of `obs`, (..., D), fresh."""
        return (obs - self.mean.to(obs.dtype)) / (self.var.sqrt().to(obs.dtype) + self.eps)

    def extra_repr(self) -> str:
        """Names the width and eps in the module's repr."""
        return f"{self.mean.shape[0]}, eps={self.eps}"


class RewardScaler(nn.Module):
    """Divides rewards by the spread of the returns that they add up to, so that one range of values fits all tasks.

    Every environment has a running return `G = gamma G + r`; rewards are divided by `max(sd(G), max|G| / 5)`, sd over
    all G seen and max|G| the largest of them, so that values lie within about -5 to 5 (FlashSAC, after SimbaV2,
    2502.15280). G is set to 0 after the last reward of an episode was added and counted: where that comes first, as
    in their code, the next episode is credited with the reward of the end.

    Attributes:
        running_returns: (N,) float64, a buffer: G.
        mean: 0-d float64, a buffer: of all G.
        var: 0-d float64, a buffer: the population variance of all G.
        count: 0-d int64, a buffer: G seen.
        largest: 0-d float64, a buffer: max|G|.
        gamma: The discount factor of a step.
        bound: What max|G| is divided by.
        eps: Added to the variance, so that nothing is divided by 0.
    """

    running_returns: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor
    largest: torch.Tensor

    def __init__(
        self,
        num_envs: int,
        *,
        gamma: float,
        bound: float = 5.0,
        eps: float = 1e-8,
        device: torch.device | str | None = None,
    ) -> None:
        """Starts without statistics.

        Args:
            num_envs: N.
            gamma: The discount factor of a step, 0 to 1.
            bound: Default: FlashSAC's, whose critic has its atoms in -5 to 5.
            eps: Default: FastTD3's.
            device: Where the buffers are; `None`: torch's default.

        Raises:
            ConfigError: A number is out of range.
        """
        super().__init__()
        if num_envs < 1:
            raise ConfigError(f"RewardScaler: num_envs is {num_envs}, expected at least 1")
        if not 0.0 <= gamma <= 1.0:
            raise ConfigError(f"RewardScaler: gamma is {gamma}, expected 0 <= gamma <= 1")
        if not (bound > 0.0 and eps > 0.0):
            raise ConfigError(f"RewardScaler: bound is {bound} and eps {eps}, expected positive numbers")
        self.gamma, self.bound, self.eps = gamma, bound, eps
        self.register_buffer("running_returns", torch.zeros(num_envs, dtype=torch.float64, device=device))
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64, device=device))
        self.register_buffer("var", torch.ones((), dtype=torch.float64, device=device))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64, device=device))

    @torch.no_grad()
    def update(
        self, rewards: torch.Tensor, done: torch.Tensor, *, refused: torch.Tensor | None = None
    ) -> None:
        """Takes the rewards of one step into the statistics; does nothing in evaluation mode.

        Args:
            rewards: (N,).
            done: (N,) bool, `terminated | truncated`.
            refused: (N,) bool: rows that nothing is to be learned from, whose return starts anew; `None`: none. A row
                with a reward that is not finite is one too.

        Raises:
            ValueError: A shape is not (N,).
        """
        shape = tuple(self.running_returns.shape)
        for name, tensor in (("rewards", rewards), ("done", done), ("refused", refused)):
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ValueError(
                    f"RewardScaler.update: {name} has shape {tuple(tensor.shape)}, expected {shape}"
                )
        if not self.training:
            return
        counted = rewards.isfinite() if refused is None else rewards.isfinite() & ~refused
        zero = torch.zeros_like(self.running_returns)
        returns = self.gamma * self.running_returns + rewards.to(torch.float64)
        returns = torch.where(counted, returns, zero)
        count = counted.sum()
        mean = returns.sum() / count.clamp(min=1)
        squares = torch.where(counted, returns - mean, zero).square().sum()
        _merge(self.mean, self.var, self.count, mean, squares, count)
        self.largest.copy_(torch.maximum(self.largest, returns.abs().max()))
        self.running_returns.copy_(torch.where(done, zero, returns))

    def restart(self) -> None:
        """Sets every running return to 0, where all rows start new episodes without an end; the statistics stay."""
        self.running_returns.zero_()

    def forward(self, rewards: torch.Tensor) -> torch.Tensor:
        """Returns rewards, of any shape, or sums of them, divided by the present scale; fresh.

        Before the first update the scale is 1.
        """
        return rewards / self.scale().to(rewards.dtype)

    def scale(self) -> torch.Tensor:
        """Returns what rewards are divided by, 0-d float64: `max(sqrt(var + eps), largest / bound)`."""
        return torch.maximum((self.var + self.eps).sqrt(), self.largest / self.bound)

    def extra_repr(self) -> str:
        """Names the settings in the module's repr."""
        return f"{self.running_returns.shape[0]}, gamma={self.gamma}, bound={self.bound}, eps={self.eps}"


def _merge(
    mean: torch.Tensor,
    var: torch.Tensor,
    count: torch.Tensor,
    new_mean: torch.Tensor,
    new_squares: torch.Tensor,
    new_count: torch.Tensor,
) -> None:
    """Merges a sample, given by mean, sum of squared deviations and size (0: nothing changes), in place."""
    total = count + new_count
    divisor = total.clamp(min=1).to(mean.dtype)
    delta = new_mean - mean
    share = new_count / divisor
    # The first sample replaces what stands for none: with a count of 0 neither the old mean nor the variance counts.
    squares = var * count + new_squares + delta.square() * count * share
    var.copy_(torch.where(new_count > 0, squares / divisor, var))
    mean.add_(torch.where(new_count > 0, delta * share, torch.zeros_like(delta)))
    count.copy_(total)
