"""FastSAC: SAC for many parallel environments, with distributional critics (Seo et al. 2025, the code of holosoma).

What it changes of SAC (Haarnoja et al. 2018): critics predict distributions and each learns from its own target, not
from a minimum; the actor follows their mean; layers are normalised; the policy begins still and narrow and never gets
wider than a deviation of 1, and the temperature begins low; targets move fast. Actions are learned in [-1, 1], whatever
the bounds of the environment; log-densities are those of its actions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from unilab_rl.algorithms.agent import OffPolicyAgent
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.distributional import (
    CategoricalCfg,
    CategoricalCritic,
    CategoricalEnsemble,
    cross_entropy,
    project_each,
)
from unilab_rl.algorithms.explorer import NoisyExplorer
from unilab_rl.algorithms.networks import frozen_copy, linear, mlp, normal_like, polyak_update
from unilab_rl.algorithms.normalizing import obs_normalizer
from unilab_rl.algorithms.optimizing import adamw, minimize
from unilab_rl.algorithms.squashed_normal import squashed_sample
from unilab_rl.algorithms.temperature import Temperature
from unilab_rl.contracts.off_policy import Batch

__all__ = ["FastSacAgent", "FastSacCfg", "FastSacExplorer"]

_BETAS = (0.9, 0.95)  # a shorter memory of squared gradients than Adam's .999; the authors' code


class FastSacCfg(CategoricalCfg):
    """FastSAC with the authors' settings, published for 4,096 environments on one GPU.

    Defaults are those of holosoma's code unless a field says otherwise; it computes in bfloat16 and may double the
    batch by mirrored transitions, this computes in float32 and doesn't.
    """

    iterations: int = Field(default=500, ge=1)
    """Budget of a run that names none: 25,000 vector steps, 50 an iteration."""

    updates_per_step: PositiveInt = 8
    """Updates after each vector step."""

    batch_size: PositiveInt = 8192
    """Transitions of one update."""

    buffer_size: PositiveInt = 4_194_304
    """Transitions that the replay holds: 1,024 steps of 4,096 environments."""

    warmup_steps: int = Field(default=10, ge=0)
    """Vector steps before the first update. The authors act with the untrained policy meanwhile, here actions are
    uniform."""

    gamma: float = Field(default=0.97, ge=0.0, le=1.0)
    """Discount per step."""

    tau: float = Field(default=0.125, gt=0.0, le=1.0)
    """Share of the way that the target critics move to the learned ones in one update."""

    obs_normalization: bool = True
    """Normalise observations with running mean and deviation, in actor and critic separately."""

    v_min: float = -20.0
    """Lowest value, in units of discounted reward; returns below are learned as this one."""

    v_max: float = 20.0
    """Highest value; about the largest reward of a step / (1 - gamma)."""

    actor_hidden_dims: tuple[PositiveInt, ...] = Field(default=(512, 256, 128), min_length=1)
    """Widths of the actor's hidden layers, each with layer normalisation and SiLU."""

    critic_hidden_dims: tuple[PositiveInt, ...] = Field(default=(768, 384, 192), min_length=1)
    """Widths of the hidden layers of each critic, each with layer normalisation and SiLU."""

    log_std_min: float = -5.0
    """Lowest logarithm of the policy's deviation before the squashing."""

    log_std_max: float = 0.0
    """Highest; a tanh keeps it in between, and it begins in the middle."""

    init_temperature: float = Field(default=0.001, gt=0.0)
    """Temperature at the start: the worth of a nat of entropy, in units of reward."""

    target_entropy_ratio: float = 0.0
    """The entropy that the temperature is adjusted for is minus this times A, in nats of the environment's action."""

    actor_interval: PositiveInt = 4
    """Updates of the critics and of the temperature for one of the actor."""

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Step size of AdamW, for actor, critics and temperature, with betas 0.9 and 0.95."""

    weight_decay: float = Field(default=1e-3, ge=0.0)
    """Decoupled decay of every weight and bias of the networks per update, as a share of the step size. The temperature
    doesn't decay; holosoma's does by torch's 0.01, to no effect."""

    @classmethod
    def cpu_preset(cls) -> FastSacCfg:
        """Returns settings for `cartpole-swingup` with 16 environments on a few cores, 200,000 steps of these: small
        networks and batches, larger steps, one update for four transitions, and values for rewards of 0 to 1 a step."""
        return cls(
            iterations=250,
            updates_per_step=4,
            batch_size=256,
            buffer_size=250_000,
            warmup_steps=100,
            gamma=0.99,
            n_step=3,
            tau=0.05,
            v_min=0.0,
            v_max=100.0,
            actor_hidden_dims=(128, 64),
            critic_hidden_dims=(128, 128),
            learning_rate=1e-3,
            actor_interval=2,
            init_temperature=0.1,
        )

    @model_validator(mode="after")
    def _deviations_are_in_order(self) -> FastSacCfg:
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min is {self.log_std_min:g} and log_std_max {self.log_std_max:g}, expected the "
                "first below the second"
            )
        return self


class FastSacActor(nn.Module):
    """From raw observations (N, O) to the deterministic actions (N, A) of the environment."""

    def __init__(
        self,
        width: int,
        bounds: ActionBounds,
        cfg: FastSacCfg,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer(width, enabled=cfg.obs_normalization)
        self.body = mlp(width, cfg.actor_hidden_dims, None, "silu", generator, layer_norm=True)
        self.mean = linear(cfg.actor_hidden_dims[-1], bounds.num_actions, generator)
        self.log_std = linear(cfg.actor_hidden_dims[-1], bounds.num_actions, generator)
        for parameter in (*self.mean.parameters(), *self.log_std.parameters()):
            nn.init.zeros_(parameter)
        self.bounds = bounds
        self._middle = (cfg.log_std_max + cfg.log_std_min) / 2
        self._half = (cfg.log_std_max - cfg.log_std_min) / 2

    def distribution(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns mean and log-deviation before the squashing, (N, A) each."""
        features = self.body(self.obs_normalizer(obs))
        return self.mean(features), self._middle + self._half * self.log_std(features).tanh()

    def sample(self, obs: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns sampled actions in [-1, 1], (N, A), and the log-density of the environment's, (N,) in nats."""
        mean, log_std = self.distribution(obs)
        squashed, log_density = squashed_sample(mean, log_std, normal_like(mean, generator))
        return squashed, log_density - self.bounds.log_volume

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions of the environment at the mean."""
        actions: torch.Tensor = self.bounds(self.distribution(obs)[0].tanh())
        return actions


class FastSacExplorer(NoisyExplorer):
    """Acts by sampling the policy."""

    def __init__(self, actor: FastSacActor, device: torch.device, *, seed: int) -> None:
        super().__init__(actor, device, seed)
        self._actor = actor

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        with torch.no_grad():
            squashed, _ = self._actor.sample(obs["obs"], self.generator)
            actions: torch.Tensor = self._actor.bounds(squashed)
        return actions


class FastSacAgent(OffPolicyAgent):
    """Learns by FastSAC.

    Args:
        cfg: The settings.
        obs_groups_spec: Width of each observation group that the environment publishes.
        bounds: Of the actions; on the device where the agent computes.
        seed: Of the initial parameters and of every later draw.

    Raises:
        ConfigError: There is no group `"obs"`.
    """

    def __init__(
        self, cfg: FastSacCfg, obs_groups_spec: Mapping[str, int], bounds: ActionBounds, *, seed: int
    ) -> None:
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        init = self.init_generator
        self.actor = FastSacActor(self.actor_width, bounds, cfg, init).to(self.device)
        widths = (self.critic_width, bounds.num_actions, cfg.critic_hidden_dims)
        ensemble = CategoricalEnsemble(*widths, nn.SiLU, cfg, init, layer_norm=True)
        self.critic = CategoricalCritic(
            obs_normalizer(self.critic_width, enabled=cfg.obs_normalization), ensemble
        ).to(self.device)
        self.critic_target = frozen_copy(self.critic.ensemble)
        self.temperature = Temperature(cfg.init_temperature).to(self.device)
        self.target_entropy = -cfg.target_entropy_ratio * bounds.num_actions
        self._optimizers = {
            name: adamw(network.parameters(), cfg.learning_rate, weight_decay=decay, betas=_BETAS)
            for name, network, decay in (
                ("actor", self.actor, cfg.weight_decay),
                ("critic", self.critic, cfg.weight_decay),
                ("temperature", self.temperature, 0.0),
            )
        }

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The policy, the critics, their targets and the temperature."""
        return {
            **{"actor": self.actor, "critic": self.critic},
            **{"critic_target": self.critic_target, "temperature": self.temperature},
        }

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Those of actor, critics and temperature."""
        return self._optimizers

    def explorer(self, num_envs: int) -> FastSacExplorer:
        """Returns what acts and goes along with later updates; for any number of rows, so `num_envs` is not needed."""
        return FastSacExplorer(self.actor, self.device, seed=self.explorer_seed)

    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Is shown the raw observations that were acted on, for the statistics of the normalisers."""
        self.actor.obs_normalizer.update(obs["obs"])
        self.critic.obs_normalizer.update(obs[self.critic_group])

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates critics and temperature, every `actor_interval` times the actor, and then the target critics."""
        obs = self.critic.obs_normalizer(batch.obs[self.critic_group])
        metrics, next_log_density = self._learn_critic(batch, obs)
        metrics |= self._learn_temperature(next_log_density)
        self.updates += 1
        if self.updates % self.cfg.actor_interval == 0:
            metrics |= self._learn_actor(batch.obs["obs"], obs)
        polyak_update(self.critic_target, self.critic.ensemble, self.cfg.tau)
        return metrics

    def _learn_critic(self, batch: Batch, obs: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Returns metrics, and the log-densities (B,) of the actions that were sampled after the windows."""
        cfg = self.cfg
        with torch.no_grad():
            next_actions, next_log_density = self.actor.sample(batch.next_obs["obs"], self.generator)
            next_obs = self.critic.obs_normalizer(batch.next_obs[self.critic_group])
            target = project_each(
                self.critic_target(next_obs, next_actions).softmax(dim=-1),
                batch,
                batch.rewards,
                v_min=cfg.v_min,
                v_max=cfg.v_max,
                next_bonus=-self.temperature() * next_log_density,
            )
        losses = cross_entropy(target, self.critic.ensemble(obs, self.bounds.squash(batch.actions)))
        loss = losses.sum()
        minimize(self._optimizers["critic"], loss)
        metrics = {"critic": loss.detach(), "target_value": (target @ self.critic_target.support).mean()}
        return metrics, next_log_density

    def _learn_temperature(self, log_density: torch.Tensor) -> dict[str, torch.Tensor]:
        """Raises the temperature where the entropy is below its target; of actions that the critic step sampled."""
        alpha = self.temperature()
        loss = -alpha * (log_density + self.target_entropy).mean()
        minimize(self._optimizers["temperature"], loss)
        return {"alpha": alpha.detach(), "entropy": -log_density.mean()}

    def _learn_actor(self, raw_obs: torch.Tensor, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        actions, log_density = self.actor.sample(raw_obs, self.generator)
        value = self.critic.ensemble.values(self.critic.ensemble(obs, actions)).mean(dim=0)
        loss = (self.temperature().detach() * log_density - value).mean()
        minimize(self._optimizers["actor"], loss)
        return {"actor": loss.detach()}
