"""Soft actor-critic with a tuned temperature (Haarnoja et al. 2018, 1812.05905)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field, PositiveInt, model_validator
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
from unilab_rl.algorithms.squashed_normal import squashed_sample
from unilab_rl.algorithms.temperature import Temperature
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.targets import soft_target

__all__ = ["SacActor", "SacAgent", "SacCfg", "SacExplorer"]


class SacCfg(OffPolicyCfg):
    """Soft actor-critic. Defaults are the paper's (its table 1) unless a field says otherwise."""

    hidden_dims: tuple[PositiveInt, ...] = Field(default=(256, 256), min_length=1)
    """Widths of the hidden layers, of actor and critics each."""

    activation: Activation = "relu"
    """What follows each hidden layer."""

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Step size of the three Adam optimisers: actor, critics, temperature."""

    actor_interval: PositiveInt = 1
    """Updates of the critics for one of actor and temperature. Default: the paper's; 2 saves a third of the time."""

    init_temperature: float = Field(default=1.0, gt=0.0)
    """The temperature alpha at the start, in units of reward per nat. Default: the authors' code."""

    target_entropy_per_action: float = -1.0
    """Entropy in nats that the temperature is tuned to keep, for each of the A actions, of the action in units of half
    the width of its bounds: the paper's -A for bounds of -1 and 1, and the same spread for every other width."""

    log_std_min: float = -5.0
    """Lowest logarithm of the deviation before squashing. Default: CleanRL's, which bounds smoothly, by tanh."""

    log_std_max: float = 2.0
    """Highest logarithm of the deviation before squashing. Default: the authors' code."""

    @model_validator(mode="after")
    def _log_std_has_a_range(self) -> SacCfg:
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min is {self.log_std_min:g} and log_std_max {self.log_std_max:g}, expected the "
                "lower one first"
            )
        return self

    @classmethod
    def cpu_preset(cls) -> SacCfg:
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


class SacActor(nn.Module):
    """The policy pi(a | s): a Normal distribution, squashed by tanh, stretched to the bounds of the action."""

    def __init__(
        self,
        width: int,
        bounds: ActionBounds,
        cfg: SacCfg,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer(width, enabled=cfg.obs_normalization)
        self.network = mlp(width, cfg.hidden_dims, 2 * bounds.num_actions, cfg.activation, generator)
        self.bounds = bounds
        self._log_std_middle = (cfg.log_std_max + cfg.log_std_min) / 2
        self._log_std_half = (cfg.log_std_max - cfg.log_std_min) / 2

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the deterministic actions (N, A) of the environment for raw observations (N, width)."""
        mean, _ = self.distribution(self.obs_normalizer(obs))
        actions: torch.Tensor = self.bounds(torch.tanh(mean))
        return actions

    def distribution(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and logarithm of the deviation before squashing, (N, A) each, for normalised observations."""
        mean, free = self.network(obs).chunk(2, dim=-1)
        return mean, self._log_std_middle + self._log_std_half * torch.tanh(free)

    def sample(self, obs: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples for normalised observations (N, width).

        Returns:
            Squashed actions (N, A) in [-1, 1], and the log-density (N,) in nats of the environment's actions.
        """
        mean, log_std = self.distribution(obs)
        squashed, log_prob = squashed_sample(mean, log_std, normal_like(mean, generator))
        return squashed, log_prob - self.bounds.log_volume


class SacExplorer(NoisyExplorer):
    """Acts with samples of the policy."""

    def __init__(self, actor: SacActor, seed: int) -> None:
        super().__init__(actor, actor.bounds.centre.device, seed)
        self._actor = actor

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        with torch.no_grad():
            squashed, _ = self._actor.sample(self._actor.obs_normalizer(obs["obs"]), self.generator)
            actions: torch.Tensor = self._actor.bounds(squashed)
        return actions


class SacAgent(OffPolicyAgent):
    """The arithmetic of soft actor-critic."""

    def __init__(
        self, cfg: SacCfg, obs_groups_spec: Mapping[str, int], bounds: ActionBounds, *, seed: int
    ) -> None:
        """Builds the networks; arguments and errors as `OffPolicyAgent`'s."""
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        init = self.init_generator
        self.actor = SacActor(self.actor_width, bounds, cfg, init).to(self.device)
        twin = TwinQ(self.critic_width, bounds.num_actions, cfg.hidden_dims, cfg.activation, init)
        self.critic = NormalizedCritic(
            obs_normalizer(self.critic_width, enabled=cfg.obs_normalization), twin
        ).to(self.device)
        self.critic_target = frozen_copy(self.critic.twin)
        self.temperature = Temperature(cfg.init_temperature).to(self.device)
        self.target_entropy = cfg.target_entropy_per_action * bounds.num_actions + bounds.log_volume
        """0-d: the entropy to keep, in nats, of the actions in the environment's units, as the log-densities are."""

        self._actor_optimizer = adam(self.actor.parameters(), cfg.learning_rate)
        self._critic_optimizer = adam(self.critic.parameters(), cfg.learning_rate)
        self._temperature_optimizer = adam(self.temperature.parameters(), cfg.learning_rate)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The policy, the twin critics, their targets and the temperature."""
        return {
            **{"actor": self.actor, "critic": self.critic},
            **{"critic_target": self.critic_target, "temperature": self.temperature},
        }

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """One for each network that learns."""
        return {
            **{"actor": self._actor_optimizer, "critic": self._critic_optimizer},
            "temperature": self._temperature_optimizer,
        }

    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Is shown the raw observations that were acted on, for the statistics of the normalisers."""
        self.actor.obs_normalizer.update(obs["obs"])
        self.critic.obs_normalizer.update(obs[self.critic_group])

    def explorer(self, num_envs: int) -> SacExplorer:
        """Returns what samples from the policy; its noise has no memory, so any number of rows will do."""
        return SacExplorer(self.actor, self.explorer_seed)

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates the critics and, every `actor_interval`-th time, actor and temperature; then moves the targets.

        Returns:
            `critic`: the critics' loss; `q`: their mean value; `alpha`. With the actor also `actor`: its loss;
            `entropy`: of the policy, in nats, of the environment's actions; `temperature`: the loss of the temperature.
        """
        self.updates += 1
        alpha = self.temperature().detach()
        obs = self.critic.obs_normalizer(batch.obs[self.critic_group])
        metrics = {"alpha": alpha, **self._learn_critic(batch, obs, alpha)}
        if self.updates % self.cfg.actor_interval == 0:
            metrics |= self._learn_actor(batch, obs, alpha)
        polyak_update(self.critic_target, self.critic.twin, self.cfg.tau)
        return metrics

    def _learn_critic(self, batch: Batch, obs: torch.Tensor, alpha: torch.Tensor) -> dict[str, torch.Tensor]:
        """J_Q: each critic follows the soft value of the next state that the lower of the targets gives."""
        with torch.no_grad():
            next_obs = self.actor.obs_normalizer(batch.next_obs["obs"])
            next_actions, next_log_probs = self.actor.sample(next_obs, self.generator)
            next_critic_obs = self.critic.obs_normalizer(batch.next_obs[self.critic_group])
            next_q = self.critic_target(next_critic_obs, next_actions)
            target = soft_target(
                batch.rewards, batch.discounts, batch.terminated, next_q, next_log_probs, alpha
            )
        q = self.critic.twin(obs, self.bounds.squash(batch.actions))
        loss = 0.5 * (q - target).square().mean(-1).sum()
        minimize(self._critic_optimizer, loss)
        return {"critic": loss.detach(), "q": q.detach().mean()}

    def _learn_actor(self, batch: Batch, obs: torch.Tensor, alpha: torch.Tensor) -> dict[str, torch.Tensor]:
        """J_pi: less divergence from exp(Q / alpha); and J(alpha): the entropy that is wanted."""
        actions, log_probs = self.actor.sample(self.actor.obs_normalizer(batch.obs["obs"]), self.generator)
        q = self.critic.twin(obs, actions).amin(0)
        loss = (alpha * log_probs - q).mean()
        minimize(self._actor_optimizer, loss)

        entropy = -log_probs.detach().mean()
        temperature_loss = self.temperature() * (entropy - self.target_entropy)
        minimize(self._temperature_optimizer, temperature_loss)
        return {"actor": loss.detach(), "entropy": entropy, "temperature": temperature_loss.detach()}
