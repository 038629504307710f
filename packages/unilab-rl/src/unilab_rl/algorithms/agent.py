"""What the agents of all algorithms have in common: seeds, observation groups, the deterministic policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import nn

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.contracts.groups import network_groups
from unilab_rl.contracts.off_policy import Batch, Explorer

__all__ = ["OffPolicyAgent"]


class OffPolicyAgent(ABC):
    """The plumbing of an agent; a subclass is the arithmetic.

    A subclass builds its networks from `init_generator`, moves them to `device`, and lists them in `modules`, where
    `"actor"` is a module from raw observations (N, width) of the group `"obs"` to actions (N, A) of the environment.
    What a module's state holds under the prefix `obs_normalizer.` are statistics of observations, not parameters.

    To continue bit for bit, a resume needs the states of `modules`, `optimizers` and `generator`, and `updates`.
    """

    def __init__(self, obs_groups_spec: Mapping[str, int], bounds: ActionBounds, *, seed: int) -> None:
        """Makes the parts that every agent has.

        Args:
            obs_groups_spec: Width of each observation group that the environment publishes.
            bounds: Of the actions; on the device where the agent computes.
            seed: Of the initial parameters and of every later draw, the explorer's too; equal seeds learn equally.

        Raises:
            ConfigError: There is no group `"obs"`, or a group that is read has no columns.
        """
        actor_group, self.critic_group = network_groups(type(self).__name__, obs_groups_spec)
        """The observation group that critics read."""

        self.bounds = bounds
        self.device = bounds.centre.device
        """Where the networks and the batches live."""

        self.actor_width = obs_groups_spec[actor_group]
        self.critic_width = obs_groups_spec[self.critic_group]
        self.updates = 0
        """How often `learn` was called."""

        source = torch.Generator().manual_seed(seed)
        init_seed, learn_seed, explorer_seed = torch.randint(2**62, (3,), generator=source).tolist()
        self.init_generator = torch.Generator().manual_seed(init_seed)
        """What initial parameters come from: on the CPU, so that they are the same on every device."""

        self.generator = torch.Generator(self.device).manual_seed(learn_seed)
        """What every draw of `learn` comes from."""

        self.explorer_seed: int = explorer_seed
        """The seed of the explorer's own generator."""

    @property
    @abstractmethod
    def modules(self) -> Mapping[str, nn.Module]:
        """Every network with its buffers, by name."""

    @property
    @abstractmethod
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Every optimiser, by name."""

    @abstractmethod
    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Is shown the raw observations that were acted on, for the statistics of the normalisers."""

    def observe_rewards(
        self, rewards: torch.Tensor, done: torch.Tensor, *, refused: torch.Tensor | None = None
    ) -> None:
        """Is shown the rewards (N,) of each step of all rows, which of them ended an episode, (N,) bool, and which are
        none to learn from, (N,) bool, for a scale of rewards; does nothing by default."""

    def episodes_restart(self) -> None:
        """Is told that all rows start new episodes though none of the old ones was seen to end: what was summed up of
        them is dropped. Does nothing by default."""

    @abstractmethod
    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates once; returns 0-d tensors by name of what this update computed.

        An update that leaves the actor alone has nothing to say of it. Nothing is read here, so a loss that isn't
        finite raises nothing: it is returned, and stays in the parameters, for whoever reads an iteration's metrics.
        """

    @abstractmethod
    def explorer(self, num_envs: int) -> Explorer:
        """Returns what acts for `num_envs` rows and goes along with later updates."""

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the deterministic actions (N, A) float32 for raw observation groups."""
        with torch.no_grad():
            actions: torch.Tensor = self.modules["actor"](obs["obs"])
        return actions
