"""Networks that the off-policy algorithms build from, initialised from an explicit generator."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import nn

from unilab_rl.algorithms.config import Activation
from unilab_rl.algorithms.normalizing import AsObserved
from unilab_rl.replay.normalizer import ObservationNormalizer

__all__ = [
    "EnsembleLinear",
    "EnsembleMlp",
    "NormalizedCritic",
    "TwinQ",
    "adam",
    "frozen_copy",
    "linear",
    "mlp",
    "normal_like",
    "polyak_update",
]

_Network = TypeVar("_Network", bound=nn.Module)

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def linear(width: int, output_width: int, generator: torch.Generator) -> nn.Linear:
    """Returns a linear layer with torch's usual initial values, U(-1/sqrt(width), 1/sqrt(width)), from `generator`.

    `nn.Linear` itself would draw them from the global generator. The layer lives on the generator's device.
    """
    layer = nn.Linear(width, output_width, device="meta").to_empty(device=generator.device)
    _init_uniform(layer, width, generator)
    return layer


def mlp(
    width: int,
    hidden_dims: Sequence[int],
    output_width: int | None,
    activation: Activation,
    generator: torch.Generator,
    *,
    layer_norm: bool = False,
) -> nn.Sequential:
    """Returns a multi-layer perceptron from (..., width) to (..., output_width).

    Args:
        width: Width of the input.
        hidden_dims: Widths of the hidden layers.
        output_width: Width of the linear layer at the end; `None`: no such layer, a body for heads to follow.
        activation: What follows each hidden layer.
        generator: Where the initial values come from; the network lives on its device.
        layer_norm: Whether each hidden layer is normalised before its activation.
    """
    layers: list[nn.Module] = []
    for hidden in hidden_dims:
        layers.append(linear(width, hidden, generator))
        if layer_norm:
            layers.append(nn.LayerNorm(hidden, device=generator.device))
        layers.append(_ACTIVATIONS[activation]())
        width = hidden
    if output_width is not None:
        layers.append(linear(width, output_width, generator))
    return nn.Sequential(*layers)


class EnsembleLinear(nn.Module):
    """E linear layers as one batched product, from (E, B, width) to (E, B, output_width)."""

    def __init__(self, num_members: int, width: int, output_width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_members, width, output_width, device=generator.device))
        self.bias = nn.Parameter(torch.empty(num_members, 1, output_width, device=generator.device))
        _init_uniform(self, width, generator)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns (E, B, output_width)."""
        return torch.baddbmm(self.bias, inputs, self.weight)


class EnsembleMlp(nn.Module):
    """E multi-layer perceptrons of one shape on one input, from (B, width) to (E, B, output_width).

    Half as many operators as two networks in turn, which small batches and accelerators feel.
    """

    def __init__(
        self,
        num_members: int,
        width: int,
        hidden_dims: Sequence[int],
        output_width: int,
        activation: Activation,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.num_members = num_members
        layers: list[nn.Module] = []
        for hidden in hidden_dims:
            layers += [EnsembleLinear(num_members, width, hidden, generator), _ACTIVATIONS[activation]()]
            width = hidden
        layers.append(EnsembleLinear(num_members, width, output_width, generator))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns (E, B, output_width) for inputs (B, width)."""
        outputs: torch.Tensor = self.layers(inputs.expand(self.num_members, -1, -1))
        return outputs

    def member(self, index: int, inputs: torch.Tensor) -> torch.Tensor:
        """Returns what one member says, (B, output_width), without the work of the others."""
        for layer in self.layers:
            if isinstance(layer, EnsembleLinear):
                inputs = torch.addmm(layer.bias[index], inputs, layer.weight[index])
            else:
                inputs = layer(inputs)
        return inputs


class TwinQ(nn.Module):
    """Two networks from normalised observations and squashed actions to their value, against overestimation.

    Reading actions in units of their half width, they depend on no unit of the environment.
    """

    def __init__(
        self,
        obs_width: int,
        num_actions: int,
        hidden_dims: Sequence[int],
        activation: Activation,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.ensemble = EnsembleMlp(2, obs_width + num_actions, hidden_dims, 1, activation, generator)

    def forward(self, obs: torch.Tensor, squashed: torch.Tensor) -> torch.Tensor:
        """Returns the values (2, B) of observations (B, width) and squashed actions (B, A)."""
        values: torch.Tensor = self.ensemble(torch.cat((obs, squashed), dim=-1))
        return values.squeeze(-1)

    def first(self, obs: torch.Tensor, squashed: torch.Tensor) -> torch.Tensor:
        """Returns the values (B,) that the first of the two gives."""
        return self.ensemble.member(0, torch.cat((obs, squashed), dim=-1)).squeeze(-1)


class NormalizedCritic(nn.Module):
    """Twin values behind the normaliser of the critic's observations; targets use the same normaliser."""

    def __init__(self, obs_normalizer: ObservationNormalizer | AsObserved, twin: TwinQ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer
        self.twin = twin


def frozen_copy(network: _Network) -> _Network:
    """Returns a copy of `network` whose parameters take no gradient: a target network at the start."""
    return copy.deepcopy(network).requires_grad_(False)


def normal_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns standard normal noise of the shape, dtype and device of `tensor`, drawn from `generator`."""
    return torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)


def polyak_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Moves every parameter of `target` by the share `tau` of the way to that of `source`; buffers stay."""
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


def adam(parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    """Returns Adam (Kingma and Ba 2015: betas 0.9 and 0.999, epsilon 1e-8), fused into one kernel where torch can."""
    held = list(parameters)
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in held)
    return torch.optim.Adam(held, lr=learning_rate, fused=fused)


def _init_uniform(layer: nn.Module, width: int, generator: torch.Generator) -> None:
    """Draws the parameters of one linear layer of inputs `width`."""
    bound = 1.0 / math.sqrt(width)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
