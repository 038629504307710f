"""Noise with a bias that stays the same for an episode: how a sensor differs from the next one."""

from __future__ import annotations

import torch
from pydantic import field_validator

from unilab_core.errors import ConfigError
from unilab_core.rng import EnvRng
from unilab_managers.noise.model import NoiseModel, NoiseModelCfg
from unilab_managers.noise.noise import NoiseCfg

__all__ = ["AdditiveBiasNoise", "AdditiveBiasNoiseCfg"]


class AdditiveBiasNoiseCfg(NoiseModelCfg):
    """Noise of every step, plus a bias that each row draws when its episode begins."""

    bias: NoiseCfg
    """What the bias is drawn from; its operation is "add"."""
    noise: NoiseModelCfg | None = None
    """What comes on top of the values in every step, before the bias."""
    per_component: bool = True
    """Whether every column draws its own bias; otherwise one draw per row is added to all its columns."""

    @field_validator("bias")
    @classmethod
    def _additive(cls, bias: NoiseCfg) -> NoiseCfg:
        if bias.operation != "add":
            raise ValueError(
                f"operation is {bias.operation!r}, expected 'add': a bias is added to the values"
            )
        return bias

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns the noise of a term of `dim` columns, all biases zero until rows are reset; see `NoiseModelCfg`."""
        width = dim if self.per_component else 1
        noise = None if self.noise is None else _part("noise", self.noise, num_envs, dim, device, rng)
        source = _part("bias", self.bias, num_envs, width, device, rng)
        return AdditiveBiasNoise(noise, source, torch.zeros(num_envs, width, device=device))


class AdditiveBiasNoise(NoiseModel):
    """See `AdditiveBiasNoiseCfg`.

    Attributes:
        bias: (N, D) float32, or (N, 1) where all columns share it: the bias of each row's episode.
    """

    def __init__(self, noise: NoiseModel | None, source: NoiseModel, bias: torch.Tensor) -> None:
        """Starts with the biases given, which it owns from now on."""
        self._noise = noise
        self._source = source
        self._zero = torch.zeros(1, 1, device=bias.device).expand_as(bias)
        self.bias = bias

    def reset(self, reset_mask: torch.Tensor) -> None:
        """Draws a bias for every row, of which those in `reset_mask`, (N,) bool, take theirs."""
        if self._noise is not None:
            self._noise.reset(reset_mask)
        drawn = self._source.apply(self._zero)
        torch.where(reset_mask.unsqueeze(1), drawn, self.bias, out=self.bias)

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Returns values + noise + bias; see `NoiseModel`."""
        if self._noise is not None:
            values = self._noise.apply(values, env_ids)
        return values + (self.bias if env_ids is None else self.bias[env_ids])


def _part(
    name: str, cfg: NoiseModelCfg, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng
) -> NoiseModel:
    try:
        return cfg.make(num_envs, dim, device, rng)
    except ConfigError as error:
        raise ConfigError(f"{name}.{error}") from error
