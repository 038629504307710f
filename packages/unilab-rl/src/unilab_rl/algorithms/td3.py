"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field, PositiveInt
from torch import nn

from unilab_rl.algorithms.agent import OffPolicyAgent
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.config import Activation, OffPolicyCfg
from unilab_rl.algorithms.explorer import NoisyExplorer
from unilab_rl.algorithms.networks import (
    NormalizedCritic,
    TwinQ,
    adam,
    frozen_copy,
    mlp,
    normal_like,
    polyak_update,
)
from unilab_rl.algorithms.normalizing import obs_normalizer
from unilab_rl.algorithms.optimizing import minimize
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.targets import clipped_double_target

__all__ = ["Td3Actor", "Td3Agent", "Td3Cfg", "Td3Explorer"]


class Td3Cfg(OffPolicyCfg):
    """TD3. Defaults are those of the authors' code unless a field says otherwise."""

    warmup_steps: int = Field(default=25_000, ge=0)
    """Vector steps at the start of a run whose actions are uniform within the bounds and that no update follows.
    Published for one environment."""

    hidden_dims: tuple[PositiveInt, ...] = Field(default=(256, 256), min_length=1)
    """Widths of the hidden layers, of actor and critics each."""

    activation: Activation = "relu"
    """What follows each hidden layer."""

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Step size of the two Adam optimisers: actor, critics."""

    actor_interval: PositiveInt = 2
    """Updates of the critics for one of the actor and of all targets: the paper's d."""

    exploration_noise: float = Field(default=0.1, ge=0.0)
    """Standard deviation of the noise on actions that explore, in units of half the width of their bounds."""

    target_noise: float = Field(default=0.2, ge=0.0)
    """Standard deviation of the noise that smooths the target policy, in units of half the width of the bounds."""

    target_noise_clip: float = Field(default=0.5, ge=0.0)
    """Largest such noise, in the same units: the paper's c."""

    @classmethod
    def cpu_preset(cls) -> Td3Cfg:
        """Returns settings for 16 environments on a few cores, which solve `cartpole-swingup`.

        Small networks, larger steps, and one update for four transitions.
        """
        return cls(
            iterations=250,
            updates_per_step=4,
            buffer_size=250_000,
            warmup_steps=100,
            hidden_dims=(128, 128),
            learning_rate=1e-3,
            tau=0.01,
        )


class Td3Actor(nn.Module):
    """The deterministic policy: a network, squashed by tanh, stretched to the bounds of the action."""

    def __init__(
        self,
        width: int,
        bounds: ActionBounds,
        cfg: Td3Cfg,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer(width, enabled=cfg.obs_normalization)
        self.network = nn.Sequential(
            mlp(width, cfg.hidden_dims, bounds.num_actions, cfg.activation, generator), nn.Tanh()
        )
        self.bounds = bounds

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions (N, A) of the environment for raw observations (N, width)."""
        actions: torch.Tensor = self.bounds(self.network(self.obs_normalizer(obs)))
        return actions


class Td3Explorer(NoisyExplorer):
    """Acts with the policy and Gaussian noise, clipped to the bounds."""

    def __init__(self, actor: Td3Actor, noise: float, seed: int) -> None:
        super().__init__(actor, actor.bounds.centre.device, seed)
        self._actor = actor
        self._noise = noise

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        with torch.no_grad():
            squashed = self._actor.network(self._actor.obs_normalizer(obs["obs"]))
            squashed = torch.add(squashed, normal_like(squashed, self.generator), alpha=self._noise)
            actions: torch.Tensor = self._actor.bounds(squashed)  # which also clips
        return actions


class Td3Agent(OffPolicyAgent):
    """The arithmetic of TD3."""

    def __init__(
        self, cfg: Td3Cfg, obs_groups_spec: Mapping[str, int], bounds: ActionBounds, *, seed: int
    ) -> None:
        """Builds the networks; arguments and errors as `OffPolicyAgent`'s."""
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        init = self.init_generator
        self.actor = Td3Actor(self.actor_width, bounds, cfg, init).to(self.device)
        twin = TwinQ(self.critic_width, bounds.num_actions, cfg.hidden_dims, cfg.activation, init)
        self.critic = NormalizedCritic(
            obs_normalizer(self.critic_width, enabled=cfg.obs_normalization), twin
        ).to(self.device)
        self.actor_target = frozen_copy(self.actor.network)
        self.critic_target = frozen_copy(self.critic.twin)

        self._actor_optimizer = adam(self.actor.parameters(), cfg.learning_rate)
        self._critic_optimizer = adam(self.critic.parameters(), cfg.learning_rate)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The policy, the twin critics, and the targets of both."""
        return {
            **{"actor": self.actor, "critic": self.critic},
            **{"actor_target": self.actor_target, "critic_target": self.critic_target},
        }

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """One for each network that learns."""
        return {"actor": self._actor_optimizer, "critic": self._critic_optimizer}

    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Is shown the raw observations that were acted on, for the statistics of the normalisers."""
        self.actor.obs_normalizer.update(obs["obs"])
        self.critic.obs_normalizer.update(obs[self.critic_group])

    def explorer(self, num_envs: int) -> Td3Explorer:
        """Returns what acts with noise; it has no memory, so any number of rows will do."""
        return Td3Explorer(self.actor, self.cfg.exploration_noise, self.explorer_seed)

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates the critics and, every `actor_interval`-th time, the actor and then the targets.

        Returns:
            `critic`: the critics' loss; `q`: their mean value; with the actor also `actor`: its loss.
        """
        self.updates += 1
        obs = self.critic.obs_normalizer(batch.obs[self.critic_group])
        metrics = self._learn_critic(batch, obs)
        if self.updates % self.cfg.actor_interval == 0:
            metrics |= self._learn_actor(batch, obs)
            polyak_update(self.critic_target, self.critic.twin, self.cfg.tau)
            polyak_update(self.actor_target, self.actor.network, self.cfg.tau)
        return metrics

    def _learn_critic(self, batch: Batch, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both Q follow the lower target at a target action that is smoothed by clipped noise."""
        with torch.no_grad():
            next_actions = self.actor_target(self.actor.obs_normalizer(batch.next_obs["obs"]))
            noise = normal_like(next_actions, self.generator).mul_(self.cfg.target_noise)
            limit = self.cfg.target_noise_clip
            next_actions = (next_actions + noise.clamp_(-limit, limit)).clamp_(-1.0, 1.0)
            next_critic_obs = self.critic.obs_normalizer(batch.next_obs[self.critic_group])
            next_q = self.critic_target(next_critic_obs, next_actions)
            target = clipped_double_target(batch.rewards, batch.discounts, batch.terminated, next_q)
        q = self.critic.twin(obs, self.bounds.squash(batch.actions))
        loss = (q - target).square().mean(-1).sum()
        minimize(self._critic_optimizer, loss)
        return {"critic": loss.detach(), "q": q.detach().mean()}

    def _learn_actor(self, batch: Batch, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The deterministic policy gradient, through the first critic alone."""
        actions = self.actor.network(self.actor.obs_normalizer(batch.obs["obs"]))
        loss = -self.critic.twin.first(obs, actions).mean()
        minimize(self._actor_optimizer, loss)
        return {"actor": loss.detach()}
