"""Distributional critics: categorical values (C51, Bellemare et al. 2017), several critics in one batched network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional

from unilab_rl.algorithms.config import OffPolicyCfg
from unilab_rl.algorithms.networks import EnsembleLinear
from unilab_rl.algorithms.normalizing import AsObserved
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import ObservationNormalizer
from unilab_rl.targets import c51_support, project_c51

__all__ = ["CategoricalCfg", "CategoricalCritic", "CategoricalEnsemble", "cross_entropy", "project_each"]


class CategoricalCfg(OffPolicyCfg):
    """Fields of the algorithms whose critics predict a distribution over fixed values."""

    num_atoms: int = Field(default=101, ge=2)
    """Number of values that a return may have. Default: FastTD3's and FastSAC's (the authors' code)."""

    v_min: float = -10.0
    """Lowest value, in units of the return that the critic learns: of discounted reward, divided by its scale where
    rewards are normalised. Returns below are learned as this one. Default: FastTD3's for MuJoCo Playground."""

    v_max: float = 10.0
    """Highest value; about the largest reward of a step / (1 - gamma). Default: FastTD3's for MuJoCo Playground."""

    @model_validator(mode="after")
    def _values_are_in_order(self) -> CategoricalCfg:
        if not self.v_min < self.v_max:
            raise ValueError(f"v_min is {self.v_min:g} and v_max {self.v_max:g}, expected v_min < v_max")
        return self


class _EnsembleLayerNorm(nn.Module):
    """Layer normalisation (Ba et al. 2016) with a gain and a bias of its own for each of E members."""

    def __init__(self, num_members: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_members, 1, width, device=device))
        self.bias = nn.Parameter(torch.zeros(num_members, 1, width, device=device))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self.bias, functional.layer_norm(inputs, inputs.shape[-1:]), self.weight)


class CategoricalEnsemble(nn.Module):
    """E critics that each give every state and action a distribution over M fixed values.

    Args:
        width: Width of the observation, O.
        num_actions: Width of the action, A.
        hidden_dims: Widths of the hidden layers.
        activation: The module that follows each hidden layer, for example `torch.nn.ReLU`.
        cfg: Number and range of the values.
        generator: Draws the weights; the critics live on its device.
        layer_norm: Whether each hidden layer is normalised before its activation.
        num_critics: Number of critics, E.
    """

    support: torch.Tensor
    """The values, (M,) float32, v_min to v_max in even steps."""

    def __init__(
        self,
        width: int,
        num_actions: int,
        hidden_dims: Sequence[int],
        activation: type[nn.Module],
        cfg: CategoricalCfg,
        generator: torch.Generator,
        *,
        layer_norm: bool,
        num_critics: int = 2,
    ) -> None:
        super().__init__()
        device = generator.device
        self.num_critics = num_critics
        layers: list[nn.Module] = []
        width = width + num_actions
        for hidden in hidden_dims:
            layers.append(EnsembleLinear(num_critics, width, hidden, generator))
            if layer_norm:
                layers.append(_EnsembleLayerNorm(num_critics, hidden, device))
            layers.append(activation())
            width = hidden
        layers.append(EnsembleLinear(num_critics, width, cfg.num_atoms, generator))
        self.layers = nn.Sequential(*layers)
        support = c51_support(cfg.num_atoms, cfg.v_min, cfg.v_max, dtype=torch.float32, device=device)
        self.register_buffer("support", support)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the values, (E, B, M), for normalised obs (B, O) and squashed actions (B, A)."""
        inputs = torch.cat((obs, actions), dim=-1)
        logits: torch.Tensor = self.layers(inputs.expand(self.num_critics, -1, -1))
        return logits

    def values(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the mean of each distribution, (E, B), for logits (E, B, M)."""
        return logits.softmax(dim=-1) @ self.support


class CategoricalCritic(nn.Module):
    """Critics behind the normaliser of their observations; their targets use the same normaliser."""

    def __init__(
        self, obs_normalizer: ObservationNormalizer | AsObserved, ensemble: CategoricalEnsemble
    ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer
        self.ensemble = ensemble


def project_each(
    distributions: torch.Tensor,
    batch: Batch,
    rewards: torch.Tensor,
    *,
    v_min: float,
    v_max: float,
    next_bonus: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the target distribution of each of E critics from its own prediction of what follows, (E, B, M).

    Args:
        distributions: Probabilities (E, B, M) after the window of each transition.
        batch: The transitions; its rewards are not read.
        rewards: (B,), in units of the values.
        v_min: The lowest value.
        v_max: The highest.
        next_bonus: (B,), what is added to every value that follows, in units of the values; `None`: nothing.
    """
    num_critics, rows, num_atoms = distributions.shape
    projected = project_c51(
        distributions.reshape(-1, num_atoms),
        rewards.repeat(num_critics),
        batch.discounts.repeat(num_critics),
        batch.terminated.repeat(num_critics),
        v_min=v_min,
        v_max=v_max,
        next_bonus=None if next_bonus is None else next_bonus.repeat(num_critics),
    )
    return projected.view(num_critics, rows, num_atoms)


def cross_entropy(target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Returns each critic's cross entropy in nats, the mean over the batch, (E,).

    Args:
        target: Probabilities (B, M) for all critics, or (E, B, M).
        logits: Predicted logits (E, B, M).
    """
    return -(target * logits.log_softmax(dim=-1)).sum(dim=-1).mean(dim=-1)
