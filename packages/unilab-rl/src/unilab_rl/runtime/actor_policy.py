"""The deterministic policy of an off-policy agent."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from unilab_rl.algorithms.agent import OffPolicyAgent

__all__ = ["ActorPolicy"]


class ActorPolicy:
    """The actor's deterministic action for raw observation groups; follows later updates of the agent."""

    def __init__(self, agent: OffPolicyAgent) -> None:
        self._agent = agent

    @property
    def module(self) -> torch.nn.Module:
        """A copy of normaliser, network and bounds, from (B, O) to (B, A); see `ExportablePolicy`."""
        return copy.deepcopy(self._agent.modules["actor"]).eval()

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32; `obs` holds (N, width) tensors by group."""
        return self._agent.act(obs)
