"""Measures policies of one run, on an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import torch

from unilab_core import (
    Cfg,
    ConfigError,
    TorchEnv,
    TorchEnvCfg,
    UnknownNameError,
    get_task,
    import_object,
    make_env,
)
from unilab_rl.checkpoint import Checkpoint, CheckpointError
from unilab_rl.contracts.algorithm import LearnerState, Policy
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.registry import get_algorithm
from unilab_rl.run_config import MAX_SEED, RunConfig
from unilab_rl.runtime.evaluate import Episodes, Evaluation, run_episodes, split_episodes
from unilab_rl.runtime.pairing import PairedEvaluation, Starts, pair
from unilab_rl.runtime.policies import ZeroPolicy

__all__ = [
    "Evaluator",
    "evaluation_cfg",
    "evaluation_seed",
    "import_training_state",
    "learner_state",
    "load_policy",
]


def evaluation_cfg(task: str, cfg: Cfg) -> tuple[Cfg, str]:
    """Returns the config to measure on, and the import string of the function that made it of `cfg`.

    A task without such a function is measured on `cfg` itself; the string is then empty.

    Raises:
        UnknownNameError: The task is not registered here, so nobody knows.
        ConfigError: The function can't be found, or returns no environment config.
    """
    try:
        function = get_task(task).evaluation
    except UnknownNameError as error:
        raise UnknownNameError(f"{error}; without the task only --as-trained can be measured") from error
    if not function:
        return cfg, ""
    measured = import_object(function)(cfg)
    if not isinstance(measured, TorchEnvCfg):
        raise ConfigError(
            f"task {task!r}: {function} returned a {type(measured).__name__}, expected a TorchEnvCfg"
        )
    return measured, function


def evaluation_seed(seed: int) -> int:
    """Returns the seed that a run of `seed` is measured with: clear of those that training and its resumes use."""
    return (seed + 1_000_000) % (MAX_SEED + 1)


def learner_state(checkpoint: Checkpoint) -> LearnerState:
    """Returns the learner's part of a checkpoint."""
    return LearnerState(checkpoint.learner, checkpoint.optimizer, checkpoint.normalizer, checkpoint.rng)


def import_training_state(env: EnvProtocol, source: Path | str, checkpoint: Checkpoint) -> None:
    """Lets `env`, about to be reset, follow its curricula from where they were in `checkpoint`, from `source`.

    Raises:
        CheckpointError: Its training state is none that this version knows.
    """
    try:
        env.import_training_state(checkpoint.env_training_state)
    except ValueError as error:
        raise CheckpointError(f"{source}: the entry 'env_training_state' can't be used: {error}") from error


def load_policy(env: EnvProtocol, config: RunConfig, source: Path | str, checkpoint: Checkpoint) -> Policy:
    """Builds the deterministic policy of a checkpoint, which came from `source`.

    Raises:
        CheckpointError: It doesn't fit the environment.
        CapabilityError: The run's algorithm needs what isn't installed.
    """
    algorithm = get_algorithm(config.algorithm)
    algorithm.require()
    try:
        return algorithm.make_policy(env, config.learner, learner_state(checkpoint))
    except ValueError as error:
        raise CheckpointError(f"{source}: doesn't fit the environment: {error}") from error


class Evaluator:
    """Measures checkpoints of one run, each on a new environment from the same seed.

    So a result depends on the checkpoint alone, not on what was measured before it; and what a training in the same
    process depends on stays as it is: the learner is read through its checkpoints, and the global random generator
    is given back.

    Attributes:
        env_cfg: The config that is measured on.
        function: Import string of the task's function that made it; empty for the config of the training.
        seed: The seed of every evaluation.

    Raises:
        UnknownNameError: The task is not registered here.
        ConfigError: The task's function for evaluations fails to give a config.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        episodes: int,
        seed: int | None = None,
        as_trained: bool = False,
        backend: str | None = None,
        device: str | None = None,
    ) -> None:
        """Finds what to measure on.

        Args:
            config: The run's config.
            episodes: Whole episodes of one evaluation; see `split_episodes`.
            seed: Of the episodes; by default one that training doesn't use.
            as_trained: Measure on the config of the training even where the task has another one for it.
            backend: By default the run's.
            device: By default the run's.
        """
        self._config = config
        self.seed = evaluation_seed(config.seed) if seed is None else seed
        self._rows, self._episodes_per_env = split_episodes(episodes)
        self._backend, self._device = backend or config.backend, device or config.device
        self.env_cfg, self.function = (
            (config.env, "") if as_trained else evaluation_cfg(config.task, config.env)
        )

    def check(self) -> None:
        """Builds the environment once, so that what is wrong with it shows before a training.

        Raises:
            ConfigError: The config doesn't work.
            CapabilityError: The backend or the device can't do what it needs.
        """
        self._make_env(self._backend).close()

    def measure(self, checkpoint: Checkpoint, source: Path | str = "the run's state") -> Evaluation:
        """Measures the policy of a checkpoint, which came from `source`.

        Raises:
            CheckpointError: It doesn't fit the environment.
            ConfigError, CapabilityError: As from `check`.
        """
        return self._run(self._backend, checkpoint, source, self._policy(checkpoint, source)).summary()

    def measure_zero(self, checkpoint: Checkpoint, source: Path | str = "the run's state") -> Evaluation:
        """Measures a policy that does nothing, under the curricula of a checkpoint; raises what `measure` does."""
        zero = self._run(self._backend, checkpoint, source, lambda env: ZeroPolicy(env.num_actions))
        return zero.summary()

    def measure_beside_own_backend(
        self, checkpoint: Checkpoint, source: Path | str = "the run's state"
    ) -> PairedEvaluation:
        """Measures the policy of a checkpoint on the backend it was trained on and on this evaluator's, in pairs.

        Episode i of both begins in the same state with the same command. Both draw from the same seed on the same
        device, so that noise and pushes are the same too, until a row falls on one of them only.

        Raises:
            CheckpointError: It doesn't fit the environment.
            ConfigError, CapabilityError: As from `check`; or the episodes don't begin alike.
        """
        own, policy = self._config.backend, self._policy(checkpoint, source)
        begun, own_begun = Starts(), Starts()
        # The other one first, for it is the one that may be unable to.
        other = self._run(self._backend, checkpoint, source, policy, begun)
        reference = self._run(own, checkpoint, source, policy, own_begun)
        return pair((own, self._backend), (reference, other), (own_begun, begun))

    def _policy(self, checkpoint: Checkpoint, source: Path | str) -> Callable[[EnvProtocol], Policy]:
        return lambda env: load_policy(env, self._config, source, checkpoint)

    def _make_env(self, backend: str) -> TorchEnv:
        return make_env(
            self.env_cfg, backend=backend, device=self._device, num_envs=self._rows, seed=self.seed
        )

    def _run(
        self,
        backend: str,
        checkpoint: Checkpoint,
        source: Path | str,
        make_policy: Callable[[EnvProtocol], Policy],
        starts: Starts | None = None,
    ) -> Episodes:
        """Runs all episodes on a new environment and returns them; notes in `starts` how they began."""
        with torch.random.fork_rng(devices=[]), closing(self._make_env(backend)) as env:
            # Of CUDA only now: the environment says which device it is, and whether it is there.
            cuda = [env.device.index] if env.device.type == "cuda" else []
            with torch.random.fork_rng(devices=cuda):
                import_training_state(
                    env, source, checkpoint
                )  # before the first reset, which follows curricula
                return run_episodes(
                    env,
                    make_policy(env),
                    episodes_per_env=self._episodes_per_env,
                    seed=self.seed,
                    at_start=None if starts is None else partial(starts.note, env),
                )
