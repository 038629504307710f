"""Noise without memory: one number or one per column, added, multiplied, or put in place of the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import model_validator

from unilab_core.errors import ConfigError
from unilab_core.rng import EnvRng
from unilab_managers.noise.model import NoiseModel, NoiseModelCfg

__all__ = ["ConstantNoiseCfg", "GaussianNoiseCfg", "NoiseCfg", "UniformNoiseCfg"]

Numbers = float | tuple[float, ...]
Operation = Literal["add", "scale", "abs"]


def _replace(values: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return noise.expand_as(values)


_COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "scale": torch.mul,
    "abs": _replace,
}


class NoiseCfg(NoiseModelCfg):
    """Base of noise without memory. A number applies to all columns, a tuple has one number per column."""

    operation: Operation = "add"
    """`value + noise`, `value * noise`, or `noise` alone."""

    def _columns(self, name: str, dim: int, device: torch.device | str) -> torch.Tensor:
        """Returns a field as () or (dim,) float32."""
        value: Numbers = getattr(self, name)
        if isinstance(value, tuple) and len(value) != dim:
            raise ConfigError(f"{name} has {len(value)} numbers, expected {dim}")
        return torch.tensor(value, dtype=torch.float32, device=device)


class _Constant(NoiseModel):
    """The same noise in every step."""

    row_settings: ClassVar[tuple[str, ...]] = ("_noise",)

    def __init__(self, noise: torch.Tensor, operation: Operation) -> None:
        self._noise = noise
        self._combine = _COMBINE[operation]

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        return self._combine(values, self._noise)


class _Drawn(NoiseModel):
    """`offset + width * unit`, where `unit` is drawn anew for every value in every call."""

    row_settings: ClassVar[tuple[str, ...]] = ("_offset", "_width")

    def __init__(
        self,
        draw: Callable[..., torch.Tensor],
        offset: torch.Tensor,
        width: torch.Tensor,
        operation: Operation,
        rng: EnvRng,
    ) -> None:
        self._draw = draw
        self._offset = offset
        self._width = width
        self._combine = _COMBINE[operation]
        self._rng = rng

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        generator = self._rng.generator
        unit = self._draw(values.shape, generator=generator, dtype=values.dtype, device=values.device)
        # One operator for the shift and the stretch: `EnvRng.uniform` would take three.
        return self._combine(values, torch.addcmul(self._offset, unit, self._width))


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

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns uniform noise of `dim` columns; see `NoiseModelCfg`."""
        low, high = self._columns("n_min", dim, device), self._columns("n_max", dim, device)
        return _Drawn(torch.rand, low, high - low, self.operation, rng)


class GaussianNoiseCfg(NoiseCfg):
    """Normal with `mean` and standard deviation `std`."""

    mean: Numbers = 0.0
    std: Numbers = 1.0

    @model_validator(mode="after")
    def _positive(self) -> GaussianNoiseCfg:
        if bool((torch.as_tensor(self.std) < 0).any()):
            raise ValueError(f"std is {self.std}, expected std >= 0")
        return self

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns Gaussian noise of `dim` columns; see `NoiseModelCfg`."""
        mean, std = self._columns("mean", dim, device), self._columns("std", dim, device)
        return _Drawn(torch.randn, mean, std, self.operation, rng)


class ConstantNoiseCfg(NoiseCfg):
    """The same offset in every step; draws nothing."""

    bias: Numbers = 0.0

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns constant noise of `dim` columns; see `NoiseModelCfg`."""
        return _Constant(self._columns("bias", dim, device), self.operation)
