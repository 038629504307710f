"""FastTD3: TD3 for many parallel environments, with large batches and distributional critics (Seo et al. 2025).

What it changes of TD3 (Fujimoto et al. 2018): critics predict distributions and the clipped double target is the whole
distribution of the lower mean; there is no target actor; every environment explores with a deviation of its own;
weights decay; targets move fast. Actions are learned in [-1, 1], whatever the bounds of the environment.
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
from unilab_rl.algorithms.optimizing import adamw, anneal, cosine_annealed, minimize
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import RewardScaler
from unilab_rl.targets import lower_mean_distribution

__all__ = ["FastTd3Agent", "FastTd3Cfg", "FastTd3Explorer"]


class FastTd3Cfg(CategoricalCfg):
    """FastTD3 with the authors' settings for MuJoCo Playground, published for 1,024 environments on one GPU.

    Defaults are those of the authors' code unless a field says otherwise; it computes in bfloat16, this in float32.
    """

    updates_per_step: PositiveInt = 2
    """Updates after each vector step."""

    batch_size: PositiveInt = 32_768
    """Transitions of one update."""

    buffer_size: PositiveInt = 10_485_760
    """Transitions that the replay holds: 10,240 steps of 1,024 environments."""

    warmup_steps: int = Field(default=10, ge=0)
    """Vector steps before the first update. The authors act with the untrained policy meanwhile, here actions are
    uniform."""

    gamma: float = Field(default=0.97, ge=0.0, le=1.0)
    """Discount per step; 0.99 for the other suites."""

    tau: float = Field(default=0.1, gt=0.0, le=1.0)
    """Share of the way that the target critics move to the learned ones in one update."""

    obs_normalization: bool = True
    """Normalise observations with running mean and deviation, in actor and critic separately."""

    reward_normalization: bool = False
    """Divide rewards by the spread of the returns seen so far, so that one range of values fits all tasks."""

    actor_hidden_dims: tuple[PositiveInt, ...] = Field(default=(512, 256, 128), min_length=1)
    """Widths of the actor's hidden layers, with ReLU."""

    critic_hidden_dims: tuple[PositiveInt, ...] = Field(default=(1024, 512, 256), min_length=1)
    """Widths of the hidden layers of each critic, with ReLU."""

    actor_init_std: float = Field(default=0.01, ge=0.0)
    """Standard deviation of the initial weights of the actor's last layer, whose biases begin at 0: it begins still."""

    use_clipped_double_q: bool = True
    """Whether the critics learn the distribution of the lower mean and the actor the lower value; otherwise each critic
    learns its own and the actor the mean."""

    exploration_std_min: float = Field(default=0.001, ge=0.0)
    """Lowest standard deviation of the exploration noise of an environment, in units of half the action's range."""

    exploration_std_max: float = Field(default=0.4, ge=0.0)
    """Highest; each environment draws its own uniformly in between, anew for each episode."""

    target_noise: float = Field(default=0.001, ge=0.0)
    """Standard deviation of the noise on target actions, in units of half the action's range."""

    target_noise_clip: float = Field(default=0.5, ge=0.0)
    """Largest noise on a target action, in the same units."""

    actor_interval: PositiveInt = 2
    """Updates of the critics for one of the actor."""

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Step size of AdamW at the first update, for actor and critics."""

    learning_rate_end: float = Field(default=3e-4, gt=0.0)
    """Step size after `learning_rate_updates`, approached along a cosine. Default: the authors' constant."""

    learning_rate_updates: PositiveInt = 200_000
    """Updates during which the step size changes: 100,000 vector steps of 2 updates, the authors' budget."""

    weight_decay: float = Field(default=0.1, ge=0.0)
    """Decoupled decay of every weight and bias per update, as a share of the step size."""

    @classmethod
    def cpu_preset(cls) -> FastTd3Cfg:
        """Returns settings for `cartpole-swingup` with 16 environments on a few cores, 200,000 steps of these: small
        networks and batches, larger steps, one update for four transitions, much exploration, and values for rewards
        of 0 to 1 a step."""
        return cls(
            iterations=250,
            updates_per_step=4,
            batch_size=256,
            buffer_size=250_000,
            warmup_steps=100,
            gamma=0.99,
            n_step=3,
            tau=0.02,
            v_min=0.0,
            v_max=100.0,
            actor_hidden_dims=(128, 64),
            critic_hidden_dims=(128, 128),
            learning_rate=1e-3,
            learning_rate_end=1e-3,
            weight_decay=0.01,
            exploration_std_min=0.2,
            exploration_std_max=0.8,
            target_noise=0.1,
        )

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> FastTd3Cfg:
        if self.exploration_std_min > self.exploration_std_max:
            raise ValueError(
                f"exploration_std_min is {self.exploration_std_min:g} and exploration_std_max "
                f"{self.exploration_std_max:g}, expected the first not above the second"
            )
        if self.reward_normalization and not self.v_min < 0.0 < self.v_max:
            raise ValueError(
                f"reward_normalization is true, v_min {self.v_min:g} and v_max {self.v_max:g}, expected 0 between "
                "them, since returns are scaled about 0"
            )
        return self


class FastTd3Actor(nn.Module):
    """From raw observations (N, O) to the actions (N, A) of the environment."""

    def __init__(
        self,
        width: int,
        bounds: ActionBounds,
        cfg: FastTd3Cfg,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.obs_normalizer = obs_normalizer(width, enabled=cfg.obs_normalization)
        self.body = mlp(width, cfg.actor_hidden_dims, None, "relu", generator)
        self.head = linear(cfg.actor_hidden_dims[-1], bounds.num_actions, generator)
        nn.init.normal_(self.head.weight, std=cfg.actor_init_std, generator=generator)
        nn.init.zeros_(self.head.bias)
        self.bounds = bounds

    def squashed(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions (N, A) in [-1, 1]."""
        actions: torch.Tensor = self.head(self.body(self.obs_normalizer(obs)))
        return actions.tanh()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions of the environment."""
        actions: torch.Tensor = self.bounds(self.squashed(obs))
        return actions


class FastTd3Explorer(NoisyExplorer):
    """Adds Gaussian noise whose deviation belongs to an environment's episode: some rows try much, some refine.

    Args:
        actor: Shared with the agent.
        num_envs: Number of rows, N.
        cfg: The range of the deviations.
        device: Of the observations and actions.
        seed: Of the deviations and the noise.
    """

    def __init__(
        self, actor: FastTd3Actor, num_envs: int, cfg: FastTd3Cfg, device: torch.device, *, seed: int
    ) -> None:
        super().__init__(actor, device, seed)
        self._actor = actor
        self._lowest, self._highest = cfg.exploration_std_min, cfg.exploration_std_max
        self._std = torch.empty(num_envs, 1, device=device)
        self._redraw(torch.ones(num_envs, dtype=torch.bool, device=device))

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        with torch.no_grad():
            squashed = self._actor.squashed(obs["obs"])
            noise = normal_like(squashed, self.generator)
            actions: torch.Tensor = self._actor.bounds(torch.addcmul(squashed, self._std, noise))
        return actions

    def episodes_ended(self, done: torch.Tensor) -> None:
        """Draws new deviations for the rows (N,) bool that start a new episode."""
        self._redraw(done)

    def held_noise(self) -> dict[str, torch.Tensor]:
        """Returns the deviation of each row, (N, 1), in units of half the action's range."""
        return {"std": self._std}

    def _redraw(self, rows: torch.Tensor) -> None:
        # Every row draws, whether it needs to or not: which draw a row gets then doesn't depend on the others, and
        # nothing waits to count them.
        unit = torch.rand(self._std.shape, generator=self.generator, device=self._std.device)
        drawn = self._lowest + (self._highest - self._lowest) * unit
        self._std.copy_(torch.where(rows.unsqueeze(1), drawn, self._std))


class FastTd3Agent(OffPolicyAgent):
    """Learns by FastTD3.

    Args:
        cfg: The settings.
        obs_groups_spec: Width of each observation group that the environment publishes.
        bounds: Of the actions; on the device where the agent computes.
        seed: Of the initial parameters and of every later draw.
        num_envs: Rows that rewards come from, N, for their scale.

    Raises:
        ConfigError: There is no group `"obs"`.
    """

    def __init__(
        self,
        cfg: FastTd3Cfg,
        obs_groups_spec: Mapping[str, int],
        bounds: ActionBounds,
        *,
        seed: int,
        num_envs: int,
    ) -> None:
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        init = self.init_generator
        self.actor = FastTd3Actor(self.actor_width, bounds, cfg, init).to(self.device)
        widths = (self.critic_width, bounds.num_actions, cfg.critic_hidden_dims)
        ensemble = CategoricalEnsemble(*widths, nn.ReLU, cfg, init, layer_norm=False)
        self.critic = CategoricalCritic(
            obs_normalizer(self.critic_width, enabled=cfg.obs_normalization), ensemble
        ).to(self.device)
        self.critic_target = frozen_copy(self.critic.ensemble)
        self.reward_normalizer = (
            RewardScaler(num_envs, gamma=cfg.gamma, bound=min(-cfg.v_min, cfg.v_max), device=self.device)
            if cfg.reward_normalization
            else nn.Identity()
        )
        self._optimizers = {
            name: adamw(network.parameters(), cfg.learning_rate, weight_decay=cfg.weight_decay)
            for name, network in (("actor", self.actor), ("critic", self.critic))
        }

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The policy, the critics, their targets, and the scale of rewards."""
        return {
            **{"actor": self.actor, "critic": self.critic, "critic_target": self.critic_target},
            "reward_normalizer": self.reward_normalizer,
        }

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Those of actor and critics."""
        return self._optimizers

    def explorer(self, num_envs: int) -> FastTd3Explorer:
        """Returns what acts for `num_envs` rows and goes along with later updates."""
        return FastTd3Explorer(self.actor, num_envs, self.cfg, self.device, seed=self.explorer_seed)

    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Is shown the raw observations that were acted on, for the statistics of the normalisers."""
        self.actor.obs_normalizer.update(obs["obs"])
        self.critic.obs_normalizer.update(obs[self.critic_group])

    def observe_rewards(
        self, rewards: torch.Tensor, done: torch.Tensor, *, refused: torch.Tensor | None = None
    ) -> None:
        """Is shown the rewards (N,) and ends (N,) of each step of all rows, for their scale: `RewardScaler.update`."""
        if isinstance(self.reward_normalizer, RewardScaler):
            self.reward_normalizer.update(rewards, done, refused=refused)

    def episodes_restart(self) -> None:
        """Lets the returns of the episodes that were interrupted go."""
        if isinstance(self.reward_normalizer, RewardScaler):
            self.reward_normalizer.restart()

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates the critics, every `actor_interval` times the actor, and then the target critics."""
        cfg = self.cfg
        anneal(
            self._optimizers.values(),
            cosine_annealed(
                cfg.learning_rate, cfg.learning_rate_end, self.updates, cfg.learning_rate_updates
            ),
        )
        obs = self.critic.obs_normalizer(batch.obs[self.critic_group])
        metrics = self._learn_critic(batch, obs)
        self.updates += 1
        if self.updates % cfg.actor_interval == 0:
            metrics |= self._learn_actor(batch.obs["obs"], obs)
        polyak_update(self.critic_target, self.critic.ensemble, cfg.tau)
        return metrics

    def _learn_critic(self, batch: Batch, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            target = self._target(batch)
        losses = cross_entropy(target, self.critic.ensemble(obs, self.bounds.squash(batch.actions)))
        loss = losses.sum()
        minimize(self._optimizers["critic"], loss)
        return {"critic": loss.detach(), "target_value": (target @ self.critic_target.support).mean()}

    def _target(self, batch: Batch) -> torch.Tensor:
        """Returns the distributions to learn, (B, M) for both critics or (E, B, M) for each."""
        cfg = self.cfg
        next_obs = self.critic.obs_normalizer(batch.next_obs[self.critic_group])
        squashed = self.actor.squashed(batch.next_obs["obs"])
        noise = cfg.target_noise * normal_like(squashed, self.generator)
        noise = noise.clamp(-cfg.target_noise_clip, cfg.target_noise_clip)
        logits = self.critic_target(next_obs, (squashed + noise).clamp(-1.0, 1.0))
        each = project_each(
            logits.softmax(dim=-1),
            batch,
            self.reward_normalizer(batch.rewards),
            v_min=cfg.v_min,
            v_max=cfg.v_max,
        )
        return lower_mean_distribution(each, self.critic_target.support) if cfg.use_clipped_double_q else each

    def _learn_actor(self, raw_obs: torch.Tensor, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        critic = self.critic.ensemble
        values = critic.values(critic(obs, self.actor.squashed(raw_obs)))
        value = values.amin(dim=0) if self.cfg.use_clipped_double_q else values.mean(dim=0)
        loss = -value.mean()
        minimize(self._optimizers["actor"], loss)
        return {"actor": loss.detach()}
