"""Noise without memory: one number or one per column, added, multiplied, or put in place of the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, final

import torch
from pydantic import model_validator

from unilab_core.errors import ConfigError
from unilab_core.rng import EnvRng
from unilab_managers.noise.model import NoiseModel, NoiseModelCfg

__all__ = ["ColumnNoise", "ConstantNoiseCfg", "GaussianNoiseCfg", "NoiseCfg", "UniformNoiseCfg"]

Numbers = float | tuple[float, ...]
Operation = Literal["add", "scale", "abs"]
Draw = Callable[..., torch.Tensor]


_IN_PLACE: dict[Operation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.Tensor.add_,
    "scale": torch.Tensor.mul_,
    "abs": torch.Tensor.copy_,
}


class NoiseCfg(NoiseModelCfg):
    """Base of noise without memory. A number applies to all columns, a tuple has one number per column."""

    operation: Operation = "add"
    """`value + noise`, `value * noise`, or `noise` alone."""

    def _columns(self, name: str, dim: int, device: torch.device | str) -> torch.Tensor:
        """Returns a field as (dim,) float32."""
        value: Numbers = getattr(self, name)
        if isinstance(value, tuple) and len(value) != dim:
            raise ConfigError(f"{name} has {len(value)} numbers, expected {dim}")
        return torch.tensor(value, dtype=torch.float32, device=device).expand(dim).clone()


@final
class ColumnNoise(NoiseModel):
    """Noise without memory, `offset + width * unit`: columns that do not know of each other.

    So terms whose noise is of one kind can be given theirs by one model, as one block of columns.

    Attributes:
        kind: What models must share to be put side by side: how units are drawn, what is done with the noise, and
            whose draws they are.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("kind", "_offset", "_width")
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, draw: Draw | None, offset: torch.Tensor, width: torch.Tensor, operation: Operation, rng: EnvRng
    ) -> None:
        """Draws nothing yet.

        Args:
            draw: Draws a unit for every value in every call; None: the noise is `offset`, always.
            offset: (D,) float32.
            width: (D,) float32.
            operation: See `NoiseCfg`.
            rng: What to draw from.
        """
        self.kind = (draw, operation, rng)
        self._offset = offset
        self._width = width

    @classmethod
    def side_by_side(cls, models: Sequence[ColumnNoise]) -> ColumnNoise:
        """Returns the noise of the columns of all `models`, which are of one kind, in their order."""
        draw, operation, rng = models[0].kind
        offset = torch.cat([model._offset for model in models])
        return cls(draw, offset, torch.cat([model._width for model in models]), operation, rng)

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the values with noise, fresh; see `NoiseModel`."""
        noisy = values.clone()
        self.apply_in_place(noisy)
        return noisy

    def apply_in_place(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> None:
        """Gives (N, D) or (K, D) float32 their noise; draws row by row."""
        draw, operation, rng = self.kind
        noise = self._offset
        if draw is not None:
            unit = draw(values.shape, generator=rng.generator, dtype=values.dtype, device=values.device)
            # One operator for the shift and the stretch: `EnvRng.uniform` would take three.
            noise = torch.addcmul(self._offset, unit, self._width)
        _IN_PLACE[operation](values, noise)


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
        return ColumnNoise(torch.rand, low, high - low, self.operation, rng)


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
        return ColumnNoise(torch.randn, mean, std, self.operation, rng)


class ConstantNoiseCfg(NoiseCfg):
    """The same offset in every step; draws nothing."""

    bias: Numbers = 0.0

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns constant noise of `dim` columns; see `NoiseModelCfg`."""
        bias = self._columns("bias", dim, device)
        return ColumnNoise(None, bias, torch.zeros_like(bias), self.operation, rng)
