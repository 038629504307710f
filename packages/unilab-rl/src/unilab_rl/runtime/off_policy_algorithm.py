"""Off-policy algorithms as entries of the algorithm registry; importing it brings no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unilab_core import ConfigError, import_object
from unilab_rl.algorithms.config import OffPolicyCfg

if TYPE_CHECKING:
    import torch

    from unilab_core import EnvFactory
    from unilab_rl.algorithms.agent import OffPolicyAgent
    from unilab_rl.contracts.algorithm import LearnerCfg, LearnerState
    from unilab_rl.contracts.env import EnvProtocol
    from unilab_rl.runtime.actor_policy import ActorPolicy
    from unilab_rl.runtime.collector import Collector, TransitionSource
    from unilab_rl.runtime.off_policy_learner import OffPolicyLearner

__all__ = ["ALGORITHMS", "FAST_SAC", "FAST_TD3", "FLASH_SAC", "SAC", "TD3", "OffPolicyAlgorithm"]

# Streams of one seed that must not be the same: the agent derives its own from the seed itself.
_REPLAY_STREAM = 1
_WARMUP_STREAM = 2


@dataclass(frozen=True)
class OffPolicyAlgorithm:
    """An algorithm that learns from a replay, collected in this process or in another; plain data, so picklable."""

    name: str
    """The short lower-case name."""

    config: str
    """Import string of its config, an `OffPolicyCfg`."""

    agent: str
    """Import string of its agent, an `OffPolicyAgent` made as `agent(cfg, obs_groups_spec, bounds, seed=...)`."""

    scales_rewards: bool = False
    """Whether the agent keeps a return of each row for a scale of rewards, so that it is made with `num_envs=N` too."""

    @property
    def config_type(self) -> type[OffPolicyCfg]:
        """The class of its config."""
        found: type[OffPolicyCfg] = import_object(self.config)
        return found

    def require(self) -> None:
        """Does nothing: it needs nothing but torch."""

    def make_learner(
        self, env: EnvProtocol, cfg: LearnerCfg, *, seed: int, factory: EnvFactory | None = None
    ) -> OffPolicyLearner:
        """Builds a learner on `env`, whose rows it resets; where the config says `collectors=1`, on one of `factory`.

        Raises:
            ConfigError: `cfg` is of another type, the replay is too small or too large, an action has no bounds, or a
                collector of its own is wanted without a `factory`, or with one that can't be sent.
            CapabilityError: A collector of its own is wanted for an environment that lives on a device, or there is
                not enough shared memory.
        """
        own = self._own(cfg)
        from unilab_rl.replay import Replay
        from unilab_rl.runtime.off_policy_learner import OffPolicyLearner

        agent = self.make_agent(env, own, seed=seed)
        replay = Replay(
            env.num_envs,
            own.buffer_steps(env.num_envs),
            env.obs_groups_spec,
            env.num_actions,
            n_step=own.n_step,
            gamma=own.gamma,
            device=env.device,
            seed=_stream(seed, _REPLAY_STREAM),
        )
        source: TransitionSource
        if own.collectors:
            from unilab_rl.runtime.spawned import SpawnedCollector

            source = SpawnedCollector(self, env, own, agent, factory, seed=seed)
        else:
            env.reset()
            source = self.make_collector(env, own, agent, seed=seed)
        return OffPolicyLearner(own, agent, replay, source, resumes_exactly=not own.collectors)

    def make_policy(self, env: EnvProtocol, cfg: LearnerCfg, state: LearnerState) -> ActorPolicy:
        """Builds the deterministic policy of a saved state.

        Raises:
            ConfigError: `cfg` is of another type, or an action has no bounds.
            ValueError: The state doesn't fit the environment.
        """
        from unilab_rl.runtime.actor_policy import ActorPolicy
        from unilab_rl.state_parts import check_mapping, check_names, join_networks

        agent = self.make_agent(env, self._own(cfg), seed=0)
        actor = agent.modules["actor"]
        saved = check_mapping("checkpoint part 'learner'", state.learner).get("networks", {})
        check_names("checkpoint part 'learner.networks'", saved, agent.modules)
        check_names("checkpoint part 'normalizer'", state.normalizer, agent.modules)
        parts = ({"actor": part["actor"]} for part in (saved, state.normalizer))
        actor.load_state_dict(join_networks({"actor": actor}, *parts)["actor"])
        return ActorPolicy(agent)

    def make_agent(
        self, env: EnvProtocol, cfg: OffPolicyCfg, *, seed: int, device: torch.device | None = None
    ) -> OffPolicyAgent:
        """Builds the agent for the observations and actions of `env`, on `device` (`None`: that of `env`)."""
        from unilab_rl.algorithms.bounds import ActionBounds

        low, high = (bound.to(device or env.device) for bound in env.action_bounds)
        bounds = ActionBounds(low, high, action_limit=cfg.action_limit)
        rows = {"num_envs": env.num_envs} if self.scales_rewards else {}
        agent: OffPolicyAgent = import_object(self.agent)(cfg, env.obs_groups_spec, bounds, seed=seed, **rows)
        return agent

    def make_collector(
        self, env: EnvProtocol, cfg: OffPolicyCfg, agent: OffPolicyAgent, *, seed: int
    ) -> Collector:
        """Builds what steps `env`, whose rows have all been reset, with the explorer of `agent`."""
        import torch

        from unilab_rl.runtime.collector import Collector

        generator = torch.Generator(agent.device).manual_seed(_stream(seed, _WARMUP_STREAM))
        explorer = agent.explorer(env.num_envs)
        return Collector(env, explorer, agent.bounds, generator, warmup_steps=cfg.warmup_steps)

    def _own(self, cfg: LearnerCfg) -> OffPolicyCfg:
        if not isinstance(cfg, self.config_type):
            raise ConfigError(
                f"the algorithm {self.name!r} was given a {type(cfg).__name__}, expected a "
                f"{self.config_type.__name__}"
            )
        return cfg


def _stream(seed: int, number: int) -> int:
    """Returns a seed for one of several streams: hashed by a generator, since neighbouring seeds may be in use."""
    import torch

    source = torch.Generator().manual_seed(seed)
    return int(torch.randint(2**62, (4 + number,), generator=source)[-1])


def _algorithm(name: str, prefix: str, *, scales_rewards: bool = False) -> OffPolicyAlgorithm:
    module = f"unilab_rl.algorithms.{name}"
    return OffPolicyAlgorithm(name, f"{module}:{prefix}Cfg", f"{module}:{prefix}Agent", scales_rewards)


SAC = _algorithm("sac", "Sac")
TD3 = _algorithm("td3", "Td3")
FAST_SAC = _algorithm("fast_sac", "FastSac")
FAST_TD3 = _algorithm("fast_td3", "FastTd3", scales_rewards=True)
FLASH_SAC = _algorithm("flash_sac", "FlashSac", scales_rewards=True)

ALGORITHMS = (SAC, TD3, FAST_SAC, FAST_TD3, FLASH_SAC)
"""All of them."""
