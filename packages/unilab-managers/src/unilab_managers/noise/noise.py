"""Noise without memory: one number or one per column, added, multiplied, or put in place of the value."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import model_validator

from unilab_core.rng import EnvRng
from unisim.config import Cfg

__all__ = ["ConstantNoiseCfg", "GaussianNoiseCfg", "NoiseCfg", "UniformNoiseCfg"]

Numbers = float | tuple[float, ...]


def _column(value: Numbers, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


class NoiseCfg(Cfg):
    """Base of noise models. A number applies to all columns, a tuple has one number per column."""

    operation: Literal["add", "scale", "abs"] = "add"
    """`value + noise`, `value * noise`, or `noise` alone."""

    def sample(self, values: torch.Tensor, rng: EnvRng) -> torch.Tensor:
        """Returns noise of the shape of `values`, (K, dim) float32."""
        raise NotImplementedError(f"{type(self).__name__} does not implement sample()")

    def apply(self, values: torch.Tensor, rng: EnvRng) -> torch.Tensor:
        """Returns `values`, (K, dim) float32, with noise; a fresh tensor."""
        noise = self.sample(values, rng)
        if self.operation == "add":
            return values + noise
        return values * noise if self.operation == "scale" else noise


class UniformNoiseCfg(NoiseCfg):
    """Uniform in [n_min, n_max)."""

    n_min: Numbers = -1.0
    n_max: Numbers = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> UniformNoiseCfg:
        low, high = torch.as_tensor(self.n_min), torch.as_tensor(self.n_max)
        if low.ndim and high.ndim and low.shape != high.shape:
            raise ValueError(f"n_min has {len(low)} numbers and n_max {len(high)}; expected as many")
        if bool((low > high).any()):
            raise ValueError(f"n_min {self.n_min} is above n_max {self.n_max}")
        return self

    def sample(self, values: torch.Tensor, rng: EnvRng) -> torch.Tensor:
        """Returns uniform noise of the shape of `values`."""
        return rng.uniform(_column(self.n_min, values), _column(self.n_max, values), tuple(values.shape))


class GaussianNoiseCfg(NoiseCfg):
    """Normal with `mean` and standard deviation `std`."""

    mean: Numbers = 0.0
    std: Numbers = 1.0

    @model_validator(mode="after")
    def _positive(self) -> GaussianNoiseCfg:
        if bool((torch.as_tensor(self.std) < 0).any()):
            raise ValueError(f"std is {self.std}, expected std >= 0")
        return self

    def sample(self, values: torch.Tensor, rng: EnvRng) -> torch.Tensor:
        """Returns Gaussian noise of the shape of `values`."""
        return rng.normal(_column(self.mean, values), _column(self.std, values), tuple(values.shape))


class ConstantNoiseCfg(NoiseCfg):
    """The same offset in every step."""

    bias: Numbers = 0.0

    def sample(self, values: torch.Tensor, rng: EnvRng) -> torch.Tensor:
        """Returns the offset in the shape of `values`; draws nothing."""
        return _column(self.bias, values).expand_as(values)
