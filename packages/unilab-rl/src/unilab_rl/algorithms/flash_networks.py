"""FlashSAC's networks: inverted-residual blocks with batch normalisation, whose weights keep unit norm.

Every layer works for one network and for an ensemble of E that are evaluated by batched products: `ensemble` is then
`(E,)`, parameters and statistics have that leading dimension, and inputs are (E, B, width).
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from unilab_rl.targets import c51_support

__all__ = ["FlashActorBody", "FlashCritic", "project_weights"]

_BATCH_NORM_MOMENTUM = 0.01  # share of the newest batch in running statistics; the authors' code
_BATCH_NORM_EPS = 1e-5
_RMS_NORM_EPS = 1e-6
_EXPANSION = 4  # width of a block's inside over that of its ends


class UnitLinear(nn.Module):
    """A linear layer without bias whose rows have unit norm; it begins orthogonal."""

    def __init__(
        self, inputs: int, outputs: int, *, generator: torch.Generator, ensemble: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*ensemble, outputs, inputs, device=generator.device))
        for member in self.weight.detach().reshape(-1, outputs, inputs):
            nn.init.orthogonal_(member, generator=generator)
        self.project()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.mT

    @torch.no_grad()
    def project(self) -> None:
        """Divides each row by its norm."""
        self.weight.copy_(functional.normalize(self.weight, dim=-1, eps=1e-8))


class UnitBatchNorm(nn.Module):
    """Batch normalisation whose scale and bias together keep the norm sqrt(width).

    Whether the statistics are those of the batch or the running ones is an argument, not a mode of the module: FlashSAC
    needs both within one update.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, width: int, *, device: torch.device, ensemble: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*ensemble, width, device=device))
        self.bias = nn.Parameter(torch.zeros(*ensemble, width, device=device))
        self.register_buffer("running_mean", torch.zeros(*ensemble, width, device=device))
        self.register_buffer("running_var", torch.ones(*ensemble, width, device=device))

    def forward(self, x: torch.Tensor, *, batch_statistics: bool) -> torch.Tensor:
        """Returns `x` normalised over its rows; with `batch_statistics` the running ones follow those of `x`."""
        if batch_statistics:
            var, mean = torch.var_mean(x, dim=-2, correction=0)
            self._follow(mean.detach(), var.detach(), x.shape[-2])
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight * (var + _BATCH_NORM_EPS).rsqrt()
        return torch.addcmul(self.bias.unsqueeze(-2), x - mean.unsqueeze(-2), scale.unsqueeze(-2))

    @torch.no_grad()
    def project(self) -> None:
        """Scales the parameters of each member to the norm sqrt(width)."""
        norm = torch.linalg.vector_norm(torch.stack((self.weight, self.bias)), dim=(0, -1)).unsqueeze(-1)
        factor = math.sqrt(self.weight.shape[-1]) / norm
        self.weight.mul_(factor)
        self.bias.mul_(factor)

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, var: torch.Tensor, rows: int) -> None:
        self.running_mean.lerp_(mean, _BATCH_NORM_MOMENTUM)
        # The unbiased variance, as torch's own batch normalisation keeps it.
        self.running_var.lerp_(var * (rows / (rows - 1)), _BATCH_NORM_MOMENTUM)


class UnitRmsNorm(nn.Module):
    """Root-mean-square normalisation (Zhang & Sennrich 2019) whose scale keeps the norm sqrt(width)."""

    def __init__(self, width: int, *, device: torch.device, ensemble: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*ensemble, width, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(dim=-1, keepdim=True) + _RMS_NORM_EPS).rsqrt() * self.weight.unsqueeze(-2)

    @torch.no_grad()
    def project(self) -> None:
        """Scales the parameters of each member to the norm sqrt(width)."""
        norm = torch.linalg.vector_norm(self.weight, dim=-1, keepdim=True)
        self.weight.mul_(math.sqrt(self.weight.shape[-1]) / norm)


class _Block(nn.Module):
    """An inverted residual: widen, normalise, rectify, narrow, normalise, rectify, add."""

    def __init__(self, width: int, *, generator: torch.Generator, ensemble: tuple[int, ...]) -> None:
        super().__init__()
        inside = _EXPANSION * width
        self.widen = UnitLinear(width, inside, generator=generator, ensemble=ensemble)
        self.widened = UnitBatchNorm(inside, device=generator.device, ensemble=ensemble)
        self.narrow = UnitLinear(inside, width, generator=generator, ensemble=ensemble)
        self.narrowed = UnitBatchNorm(width, device=generator.device, ensemble=ensemble)

    def forward(self, x: torch.Tensor, *, batch_statistics: bool) -> torch.Tensor:
        inside = self.widened(self.widen(x), batch_statistics=batch_statistics).relu()
        outputs: torch.Tensor = self.narrowed(self.narrow(inside), batch_statistics=batch_statistics).relu()
        return x + outputs


class _Body(nn.Module):
    """From raw inputs to features of unit mean square: batch normalisation, embedding, blocks, RMS normalisation."""

    def __init__(
        self,
        inputs: int,
        width: int,
        num_blocks: int,
        *,
        generator: torch.Generator,
        ensemble: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.input_norm = UnitBatchNorm(inputs, device=generator.device, ensemble=ensemble)
        self.embedding = UnitLinear(inputs, width, generator=generator, ensemble=ensemble)
        self.blocks = nn.ModuleList(
            _Block(width, generator=generator, ensemble=ensemble) for _ in range(num_blocks)
        )
        self.output_norm = UnitRmsNorm(width, device=generator.device, ensemble=ensemble)

    def forward(self, x: torch.Tensor, *, batch_statistics: bool) -> torch.Tensor:
        x = self.embedding(self.input_norm(x, batch_statistics=batch_statistics))
        for block in self.blocks:
            x = block(x, batch_statistics=batch_statistics)
        features: torch.Tensor = self.output_norm(x)
        return features


class FlashActorBody(nn.Module):
    """The actor up to the parameters of its Gaussian.

    Args:
        num_obs: Width of the observation.
        num_actions: Width of the action, A.
        width: Width of the blocks.
        num_blocks: Number of blocks.
        log_std_bounds: Lowest and highest log-deviation, which a tanh keeps.
        generator: Draws the weights; the network lives on its device.
    """

    def __init__(
        self,
        num_obs: int,
        num_actions: int,
        *,
        width: int,
        num_blocks: int,
        log_std_bounds: tuple[float, float],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self._log_std_bounds = log_std_bounds
        self.body = _Body(num_obs, width, num_blocks, generator=generator)
        self.mean = UnitLinear(width, num_actions, generator=generator)
        self.mean_bias = nn.Parameter(torch.zeros(num_actions, device=generator.device))
        self.log_std = UnitLinear(width, num_actions, generator=generator)
        self.log_std_bias = nn.Parameter(torch.zeros(num_actions, device=generator.device))

    def forward(
        self, obs: torch.Tensor, *, batch_statistics: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and log-deviation before the squashing, each (B, A), for raw observations (B, O)."""
        features = self.body(obs, batch_statistics=batch_statistics)
        low, high = self._log_std_bounds
        unbounded = self.log_std(features) + self.log_std_bias
        log_std = low + 0.5 * (high - low) * (1.0 + unbounded.tanh())
        return self.mean(features) + self.mean_bias, log_std


class FlashCritic(nn.Module):
    """E critics that each give every state and action a distribution over Z fixed values.

    Args:
        num_obs: Width of the observation.
        num_actions: Width of the action, A.
        width: Width of the blocks.
        num_blocks: Number of blocks.
        num_atoms: Number of values, Z.
        v_max: Highest value, in units of the scaled return; the lowest is its negative.
        generator: Draws the weights; the network lives on its device.
        num_critics: Number of critics, E.
    """

    support: torch.Tensor
    """The values of the atoms, (Z,) float32."""

    def __init__(
        self,
        num_obs: int,
        num_actions: int,
        *,
        width: int,
        num_blocks: int,
        num_atoms: int,
        v_max: float,
        generator: torch.Generator,
        num_critics: int = 2,
    ) -> None:
        super().__init__()
        self.num_critics = num_critics
        ensemble = (num_critics,)
        self.body = _Body(num_obs + num_actions, width, num_blocks, generator=generator, ensemble=ensemble)
        self.head = UnitLinear(width, num_atoms, generator=generator, ensemble=ensemble)
        self.head_bias = nn.Parameter(torch.zeros(num_critics, 1, num_atoms, device=generator.device))
        self.register_buffer(
            "support", c51_support(num_atoms, -v_max, v_max, dtype=torch.float32, device=generator.device)
        )

    def forward(self, obs: torch.Tensor, actions: torch.Tensor, *, batch_statistics: bool) -> torch.Tensor:
        """Returns the logits of the atoms, (E, B, Z), for raw observations (B, O) and actions (B, A)."""
        x = torch.cat((obs, actions), dim=-1).expand(self.num_critics, -1, -1)
        logits: torch.Tensor = self.head(self.body(x, batch_statistics=batch_statistics)) + self.head_bias
        return logits

    def values(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the mean of each distribution, (E, B), for logits (E, B, Z)."""
        return logits.softmax(dim=-1) @ self.support


def project_weights(network: nn.Module) -> None:
    """Puts the weights of every layer of `network` back on their spheres; after each step of the optimiser."""
    for module in network.modules():
        if isinstance(module, UnitLinear | UnitBatchNorm | UnitRmsNorm):
            module.project()
