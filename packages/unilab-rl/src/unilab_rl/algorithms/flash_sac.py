"""FlashSAC: SAC that stays stable with large batches by bounding weights, features and values (the authors' code).

What it changes of SAC (Haarnoja et al. 2018): blocks with batch normalisation whose weights keep unit norm; critics
that predict distributions over scaled returns, with the clipped double target of the whole distribution of the lower
mean; prediction and target share the statistics of one batch; exploration noise is held for some steps; the target
entropy follows from a wanted deviation. Actions are learned in [-1, 1], whatever the bounds of the environment;
log-densities are those of its actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import nn

from unilab_rl.algorithms.agent import OffPolicyAgent
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.config import OffPolicyCfg
from unilab_rl.algorithms.distributional import cross_entropy
from unilab_rl.algorithms.explorer import NoisyExplorer
from unilab_rl.algorithms.flash_networks import FlashActorBody, FlashCritic, project_weights
from unilab_rl.algorithms.networks import adam, frozen_copy, polyak_update
from unilab_rl.algorithms.optimizing import anneal, cosine_annealed, minimize
from unilab_rl.algorithms.squashed_normal import squashed_sample
from unilab_rl.algorithms.temperature import Temperature
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import RewardScaler
from unilab_rl.targets import lower_mean_distribution, project_c51

__all__ = ["FlashSacAgent", "FlashSacCfg", "FlashSacExplorer"]


class FlashSacCfg(OffPolicyCfg):
    """FlashSAC with the authors' settings, published for 1,024 environments on one GPU.

    Defaults are those of the authors' code unless a field says otherwise; it computes in float16, this in float32.
    """

    iterations: int = Field(default=1000, ge=1)
    """Budget of a run that names none: 50,000 vector steps, 50 an iteration."""

    updates_per_step: PositiveInt = 2
    """Updates after each vector step."""

    batch_size: PositiveInt = 2048
    """Transitions of one update."""

    buffer_size: PositiveInt = 10_000_000
    """Transitions that the replay holds."""

    warmup_steps: int = Field(default=10, ge=0)
    """Vector steps before the first update: 10,240 transitions of 1,024 environments, the authors wait for 10,000. They
    act with the untrained policy meanwhile, here actions are uniform."""

    gamma: float = Field(default=0.97, ge=0.0, le=1.0)
    """Discount per step. Default: for MuJoCo Playground; 0.99 with 3 steps for Isaac Lab, 0.95 for Genesis."""

    tau: float = Field(default=0.01, gt=0.0, le=1.0)
    """Share of the way that the target critics' parameters move to the learned ones in one update."""

    actor_width: PositiveInt = 128
    """Width of the actor's blocks, whose insides are 4 times as wide."""

    actor_num_blocks: PositiveInt = 2
    """Number of the actor's blocks."""

    critic_width: PositiveInt = 256
    """Width of the blocks of each critic, whose insides are 4 times as wide."""

    critic_num_blocks: PositiveInt = 2
    """Number of blocks of each critic."""

    num_atoms: int = Field(default=101, ge=2)
    """Number of values that a return may have."""

    v_max: float = Field(default=5.0, gt=0.0)
    """Highest value in units of the scaled return, and minus the lowest. Rewards are divided by the deviation of
    returns, or by what makes the largest return seen so far this value, if that is more."""

    log_std_min: float = -10.0
    """Lowest logarithm of the policy's deviation before the squashing."""

    log_std_max: float = 2.0
    """Highest; a tanh keeps it in between."""

    noise_exponent: float = Field(default=2.0, ge=0.0)
    """Exploration noise is held for k steps with a probability proportional to k to the minus this (Zeta)."""

    noise_max_steps: PositiveInt = 16
    """Largest k."""

    init_temperature: float = Field(default=0.01, gt=0.0)
    """Temperature at the start: the worth of a nat of entropy, in units of scaled reward."""

    target_std: float = Field(default=0.15, gt=0.0)
    """The temperature is adjusted for the entropy of a Gaussian of this deviation in each action, in units of half its
    range."""

    actor_interval: PositiveInt = 2
    """Updates of the critics for one of actor and temperature, which comes first."""

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Step size of Adam at the first update, for actor, critics and temperature."""

    learning_rate_end: float = Field(default=1.5e-4, gt=0.0)
    """Step size after `learning_rate_updates`, approached along a cosine."""

    learning_rate_updates: PositiveInt = 100_000
    """Updates during which the step size falls: 50 million steps of 1,024 environments, 2 updates each. The authors let
    that of actor and temperature fall by the updates of these, half as far; here all fall together."""

    @classmethod
    def cpu_preset(cls) -> FlashSacCfg:
        """Returns settings for `cartpole-swingup` with 16 environments on a few cores, 200,000 steps of these: small
        networks and batches, larger steps, and one update for eight transitions."""
        return cls(
            iterations=250,
            batch_size=256,
            buffer_size=250_000,
            warmup_steps=100,
            gamma=0.99,
            n_step=3,
            actor_width=32,
            critic_width=64,
            critic_num_blocks=1,
            learning_rate=1e-3,
            learning_rate_end=5e-4,
            learning_rate_updates=25_000,
        )

    @model_validator(mode="after")
    def _fits_the_networks(self) -> FlashSacCfg:
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min is {self.log_std_min:g} and log_std_max {self.log_std_max:g}, expected the "
                "first below the second"
            )
        if self.obs_normalization:
            raise ValueError(
                "obs_normalization is true, expected false: the networks begin with batch normalisation"
            )
        return self


class FlashSacActor(nn.Module):
    """From raw observations (N, O) to the deterministic actions (N, A) of the environment, by running statistics."""

    def __init__(
        self, width: int, bounds: ActionBounds, cfg: FlashSacCfg, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.body = FlashActorBody(
            width,
            bounds.num_actions,
            width=cfg.actor_width,
            num_blocks=cfg.actor_num_blocks,
            log_std_bounds=(cfg.log_std_min, cfg.log_std_max),
            generator=generator,
        )
        self.bounds = bounds

    def sample(
        self, obs: torch.Tensor, noise: torch.Tensor, *, batch_statistics: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions in [-1, 1], (N, A), and the log-density of the environment's, (N,) in nats.

        Args:
            obs: Raw observations (N, O).
            noise: Standard normal (N, A).
            batch_statistics: Whether `obs` is normalised by its own statistics, which the running ones follow.
        """
        mean, log_std = self.body(obs, batch_statistics=batch_statistics)
        squashed, log_density = squashed_sample(mean, log_std, noise)
        return squashed, log_density - self.bounds.log_volume

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions of the environment at the mean."""
        actions: torch.Tensor = self.bounds(self.body(obs)[0].tanh())
        return actions


class FlashSacExplorer(NoisyExplorer):
    """Samples the policy with noise that each row holds for k steps, k ~ Zeta, or until its episode ends.

    The authors draw one k for all environments; here each row has its own, so that rows stay independent.

    Args:
        actor: Shared with the agent.
        num_envs: Number of rows, N.
        cfg: The distribution of k.
        device: Of the observations and actions.
        seed: Of the noise and of k.
    """

    def __init__(
        self, actor: FlashSacActor, num_envs: int, cfg: FlashSacCfg, device: torch.device, *, seed: int
    ) -> None:
        super().__init__(actor, device, seed)
        self._actor = actor
        weights = torch.arange(1, cfg.noise_max_steps + 1, dtype=torch.float64) ** -cfg.noise_exponent
        cumulative = (weights.cumsum(0) / weights.sum()).float()
        cumulative[-1] = 1.0  # above every draw, whatever the rounding
        self._cumulative = cumulative.to(device)
        self._noise = torch.zeros(num_envs, actor.bounds.num_actions, device=device)
        self._remaining = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""
        self._hold()
        with torch.no_grad():
            squashed, _ = self._actor.sample(obs["obs"], self._noise)
            actions: torch.Tensor = self._actor.bounds(squashed)
        return actions

    def episodes_ended(self, done: torch.Tensor) -> None:
        """Lets the noise of the rows (N,) bool that start a new episode go."""
        self._remaining.masked_fill_(done, 0)

    def held_noise(self) -> dict[str, torch.Tensor]:
        """Returns the noise (N, A), and for how many more steps each row (N,) holds it."""
        return {"noise": self._noise, "remaining": self._remaining}

    def _hold(self) -> None:
        """Draws for the rows whose noise is used up; every row draws, so that nothing waits to count them."""
        draw, device = self.generator, self._noise.device
        noise = torch.randn(self._noise.shape, generator=draw, device=device)
        unit = torch.rand(self._remaining.shape, generator=draw, device=device)
        steps = torch.searchsorted(self._cumulative, unit, right=True) + 1
        used_up = self._remaining == 0
        self._noise.copy_(torch.where(used_up.unsqueeze(1), noise, self._noise))
        self._remaining.copy_(torch.where(used_up, steps, self._remaining) - 1)


class FlashSacAgent(OffPolicyAgent):
    """Learns by FlashSAC.

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
        cfg: FlashSacCfg,
        obs_groups_spec: Mapping[str, int],
        bounds: ActionBounds,
        *,
        seed: int,
        num_envs: int,
    ) -> None:
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        self.actor = FlashSacActor(self.actor_width, bounds, cfg, self.init_generator).to(self.device)
        critic = FlashCritic(
            self.critic_width,
            bounds.num_actions,
            width=cfg.critic_width,
            num_blocks=cfg.critic_num_blocks,
            num_atoms=cfg.num_atoms,
            v_max=cfg.v_max,
            generator=self.init_generator,
        )
        self.critic = critic.to(self.device)
        self.critic_target = frozen_copy(self.critic)
        self.reward_normalizer = RewardScaler(num_envs, gamma=cfg.gamma, bound=cfg.v_max, device=self.device)
        self.temperature = Temperature(cfg.init_temperature).to(self.device)
        gaussian = 0.5 * math.log(2.0 * math.pi * math.e * cfg.target_std**2)
        self.target_entropy = gaussian * bounds.num_actions + bounds.log_volume
        """What the temperature is adjusted for, 0-d, in nats of the environment's action."""

        self._optimizers = {
            name: adam(network.parameters(), cfg.learning_rate)
            for name, network in (
                ("actor", self.actor),
                ("critic", self.critic),
                ("temperature", self.temperature),
            )
        }

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The policy, the critics, their targets, the temperature, and the scale of rewards."""
        return {
            **{"actor": self.actor, "critic": self.critic, "critic_target": self.critic_target},
            **{"temperature": self.temperature, "reward_normalizer": self.reward_normalizer},
        }

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Those of actor, critics and temperature."""
        return self._optimizers

    def explorer(self, num_envs: int) -> FlashSacExplorer:
        """Returns what acts for `num_envs` rows and goes along with later updates."""
        return FlashSacExplorer(self.actor, num_envs, self.cfg, self.device, seed=self.explorer_seed)

    def observe(self, obs: Mapping[str, torch.Tensor]) -> None:
        """Does nothing: batch normalisation learns from the batches."""

    def observe_rewards(
        self, rewards: torch.Tensor, done: torch.Tensor, *, refused: torch.Tensor | None = None
    ) -> None:
        """Is shown the rewards (N,) and ends (N,) of each step of all rows, for their scale: `RewardScaler.update`."""
        self.reward_normalizer.update(rewards, done, refused=refused)

    def episodes_restart(self) -> None:
        """Lets the returns of the episodes that were interrupted go."""
        self.reward_normalizer.restart()

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates every `actor_interval` times actor and temperature, then the critics, then the target critics."""
        cfg = self.cfg
        anneal(
            self._optimizers.values(),
            cosine_annealed(
                cfg.learning_rate, cfg.learning_rate_end, self.updates, cfg.learning_rate_updates
            ),
        )
        metrics: dict[str, torch.Tensor] = {}
        if self.updates % cfg.actor_interval == 0:
            metrics |= self._learn_actor(batch)
        metrics |= self._learn_critic(batch)
        # Parameters only: the target keeps the running statistics of its own forward passes.
        polyak_update(self.critic_target, self.critic, cfg.tau)
        self.updates += 1
        return metrics

    def _learn_actor(self, batch: Batch) -> dict[str, torch.Tensor]:
        # The statistics are those of the observations before and after, as the critics'; only the first half is learned
        # from.
        both = torch.cat((batch.obs["obs"], batch.next_obs["obs"]))
        actions, log_density = self.actor.sample(both, self._noise(len(both)), batch_statistics=True)
        actions, log_density = actions.chunk(2)[0], log_density.chunk(2)[0]
        logits = self.critic(batch.obs[self.critic_group], actions, batch_statistics=False)
        value = self.critic.values(logits).amin(dim=0)
        alpha = self.temperature()
        loss = (alpha.detach() * log_density - value).mean()
        minimize(self._optimizers["actor"], loss)
        project_weights(self.actor)
        entropy = -log_density.detach().mean()
        minimize(self._optimizers["temperature"], alpha * (entropy - self.target_entropy))
        return {"actor": loss.detach(), "alpha": alpha.detach(), "entropy": entropy}

    def _learn_critic(self, batch: Batch) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            next_obs = batch.next_obs["obs"]
            next_actions, next_log_density = self.actor.sample(next_obs, self._noise(len(next_obs)))
            # Prediction and target see one batch of both, so that they are normalised alike.
            obs = torch.cat((batch.obs[self.critic_group], batch.next_obs[self.critic_group]))
            actions = torch.cat((self.bounds.squash(batch.actions), next_actions))
            after = self.critic_target(obs, actions, batch_statistics=True).chunk(2, dim=1)[1]
            target = project_c51(
                lower_mean_distribution(after.softmax(dim=-1), self.critic.support),
                self.reward_normalizer(batch.rewards),
                batch.discounts,
                batch.terminated,
                v_min=-self.cfg.v_max,
                v_max=self.cfg.v_max,
                next_bonus=-self.temperature() * next_log_density,
            )
        predicted = self.critic(obs, actions, batch_statistics=True).chunk(2, dim=1)[0]
        loss = cross_entropy(target, predicted).mean()
        minimize(self._optimizers["critic"], loss)
        project_weights(self.critic)
        return {"critic": loss.detach(), "target_value": (target @ self.critic.support).mean()}

    def _noise(self, num_rows: int) -> torch.Tensor:
        shape = (num_rows, self.bounds.num_actions)
        return torch.randn(shape, generator=self.generator, device=self.device)
