"""PPO as an entry of the algorithm registry; importing it brings neither torch nor rsl-rl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unilab_core import CapabilityError, ConfigError
from unilab_rl.adapters.rsl_rl.config import PpoCfg

if TYPE_CHECKING:
    from unilab_core import EnvFactory
    from unilab_rl.adapters.rsl_rl.learner import PpoLearner
    from unilab_rl.adapters.rsl_rl.policy import PpoPolicy
    from unilab_rl.contracts.algorithm import LearnerCfg, LearnerState
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["PPO_ALGORITHM", "PpoAlgorithm"]


@dataclass(frozen=True)
class PpoAlgorithm:
    """Proximal policy optimisation by rsl-rl."""

    name: str = "ppo"
    config_type: type[PpoCfg] = PpoCfg

    def require(self) -> None:
        """Does nothing where rsl-rl is installed.

        Raises:
            CapabilityError: It, or the tensordict that it works on, is not.
        """
        try:
            import rsl_rl
            import tensordict
        except ImportError as error:
            raise CapabilityError(
                f"the algorithm 'ppo' needs {error.name or 'rsl-rl'}: pip install \"unilab-rl[rsl-rl]>=2.0,<3\""
            ) from error
        del rsl_rl, tensordict

    def make_learner(
        self, env: EnvProtocol, cfg: LearnerCfg, *, seed: int, factory: EnvFactory | None = None
    ) -> PpoLearner:
        """Builds a PPO learner on `env`, whose rows it resets; it collects in this process, without `factory`.

        Raises:
            ConfigError: `cfg` is not a `PpoCfg`, its batch is too small for its mini-batches, or its mirror doesn't
                fit the environment.
            CapabilityError: rsl-rl is not installed.
        """
        del factory
        ppo_cfg = _ppo_cfg(cfg)
        self.require()
        from unilab_rl.adapters.rsl_rl.learner import PpoLearner

        return PpoLearner(env, ppo_cfg, seed=seed)

    def make_policy(self, env: EnvProtocol, cfg: LearnerCfg, state: LearnerState) -> PpoPolicy:
        """Builds the actor of a saved state.

        Raises:
            ConfigError: `cfg` is not a `PpoCfg`.
            ValueError: The state doesn't fit the environment.
            CapabilityError: rsl-rl is not installed.
        """
        ppo_cfg = _ppo_cfg(cfg)
        self.require()
        from unilab_rl.adapters.rsl_rl.policy import load_policy

        return load_policy(env, ppo_cfg, state)


def _ppo_cfg(cfg: LearnerCfg) -> PpoCfg:
    if not isinstance(cfg, PpoCfg):
        raise ConfigError(f"the algorithm 'ppo' was given a {type(cfg).__name__}, expected a PpoCfg")
    return cfg


PPO_ALGORITHM = PpoAlgorithm()
