"""The PPO learner: one iteration is a rollout, the returns and an update."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Iterator, Mapping

import torch

from unilab_core import NonFiniteError
from unilab_rl.adapters.rsl_rl.config import PpoCfg
from unilab_rl.adapters.rsl_rl.global_rng import BorrowedGlobalRng
from unilab_rl.adapters.rsl_rl.policy import PpoPolicy
from unilab_rl.adapters.rsl_rl.ppo import FinalObservationPpo
from unilab_rl.adapters.rsl_rl.symmetry import symmetry_settings
from unilab_rl.adapters.rsl_rl.vec_env import RslRlVecEnv
from unilab_rl.contracts.algorithm import Iteration, LearnerState
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.state_parts import (
    check_optimizer,
    copy_to_cpu,
    join_networks,
    load_optimizer,
    split_networks,
)
from unilab_rl.tally import RolloutTally

__all__ = ["PpoLearner"]

_logger = logging.getLogger(__name__)


class PpoLearner:
    """rsl-rl's PPO on one environment, reproducible from one seed.

    Raises:
        ConfigError: The batch of `cfg` is too small for its mini-batches, or its mirror doesn't fit `env`.
    """

    def __init__(self, env: EnvProtocol, cfg: PpoCfg, *, seed: int) -> None:
        cfg.check_batch(env.num_envs)
        symmetry = symmetry_settings(cfg, env)
        self.cfg = cfg
        self.vec_env = RslRlVecEnv(env)
        self._rng = BorrowedGlobalRng(seed, env.device)
        self._started = self._episodes_continue = False
        settings = cfg.to_rsl_rl(env.obs_groups_spec)
        settings["algorithm"]["class_name"] = FinalObservationPpo
        settings["algorithm"]["symmetry_cfg"] = symmetry
        with self._rng.borrowed(), _prints_to_log():
            self.algorithm: FinalObservationPpo = FinalObservationPpo.construct_algorithm(
                self.vec_env.get_observations(), self.vec_env, settings, str(env.device)
            )

    def iterate(self) -> Iteration:
        """Collects `num_steps_per_env` steps of every row and updates actor and critic.

        Raises:
            NonFiniteError: A reward, an observation, a loss or a parameter is not finite; names it. After one of the
                last two the learner should not be used on.
        """
        with self._rng.borrowed():
            if not self._started:
                self._start()
            began = time.perf_counter()
            tally = self._rollout()
            collected = time.perf_counter()
            metrics = self._update()
            learned = time.perf_counter()
        metrics["Policy/learning_rate"] = float(self.algorithm.learning_rate)
        with torch.no_grad():
            metrics["Policy/action_std"] = float(self.algorithm.actor.output_std.mean())
        return Iteration(
            env_steps=self.vec_env.num_envs * self.cfg.num_steps_per_env,
            collect_s=collected - began,
            learn_s=learned - collected,
            metrics=metrics | tally.read(),
        )

    def state(self) -> LearnerState:
        """Returns copies, on the CPU, of networks, optimiser, normalisers and random state."""
        learner, normalizer = split_networks(self._networks())
        return LearnerState(
            learner=learner,
            optimizer=copy_to_cpu(self.algorithm.optimizer.state_dict()),
            normalizer=normalizer,
            rng=self._rng.state(),
        )

    def load_state(self, state: LearnerState, *, episodes_continue: bool, trained: bool = True) -> None:
        """Continues from `state`, learning rate included.

        Args:
            state: What `state` returned.
            episodes_continue: Whether the environment goes on in the middle of its episodes; if it starts new ones,
                they are desynchronised as at the start of a run.
            trained: Whether iterations lie behind the state, so that it must hold the optimiser's statistics.

        Raises:
            ValueError: A name or a shape differs from this learner's; nothing was changed.
        """
        networks = join_networks(self._networks(), state.learner, state.normalizer)
        check_optimizer(self.algorithm.optimizer, state.optimizer, trained=trained)
        self._rng.load_state(state.rng)
        for name, module in self._networks().items():
            module.load_state_dict(networks[name])
        load_optimizer(self.algorithm.optimizer, state.optimizer)
        # The adaptive schedule keeps its own copy and would write the config's rate back over the optimiser's.
        self.algorithm.learning_rate = self.algorithm.optimizer.param_groups[0]["lr"]
        self._episodes_continue = episodes_continue

    def policy(self) -> PpoPolicy:
        """Returns the mean action of the actor, for raw observations."""
        return PpoPolicy(self.algorithm.actor)

    def close(self) -> None:
        """Does nothing: everything that it uses belongs to the environment."""

    def _networks(self) -> dict[str, torch.nn.Module]:
        return {"actor": self.algorithm.actor, "critic": self.algorithm.critic}

    def _start(self) -> None:
        self._started = True
        self.algorithm.train_mode()
        if self.cfg.desynchronize_episodes and not self._episodes_continue:
            ages = self.vec_env.episode_length_buf
            self.vec_env.episode_length_buf = torch.randint_like(ages, high=self.vec_env.max_episode_length)

    def _rollout(self) -> RolloutTally:
        tally = RolloutTally()
        with torch.inference_mode():
            obs = self.vec_env.get_observations()
            for _ in range(self.cfg.num_steps_per_env):
                actions = self.algorithm.act(obs)
                obs, rewards, dones, extras = self.vec_env.step(actions)
                tally.add(extras["log"], extras.get("episode_totals", {}))
                self.algorithm.process_env_step(obs, rewards, dones, extras)
            self.algorithm.compute_returns(obs)
        return tally

    def _update(self) -> dict[str, float]:
        """Learns from the stored rollout and returns the mean losses."""
        storage = self.algorithm.storage
        _check_finite(
            "in the rollout",
            {
                "rewards": storage.rewards,
                **{f"observations {name!r}": group for name, group in storage.observations.items()},
                "returns": storage.returns,
            },
        )
        parameters = {
            f"{network}.{name}": parameter
            for network, module in self._networks().items()
            for name, parameter in module.named_parameters()
        }
        try:
            losses = self.algorithm.update()
        except RuntimeError:
            # A parameter that burst in one mini-batch shows as a sampling error in the next.
            _check_finite("after the update", parameters)
            raise
        _check_finite("after the update", parameters)
        metrics = {f"Loss/{name}": float(value) for name, value in losses.items()}
        _check_finite("after the update", {name: torch.tensor(value) for name, value in metrics.items()})
        return metrics


def _check_finite(when: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises NonFiniteError naming the tensors that hold a NaN or an infinity; asks the device once."""
    finite = torch.stack([tensor.isfinite().all() for tensor in tensors.values()]).tolist()
    bad = [name for name, is_finite in zip(tensors, finite, strict=True) if not is_finite]
    if bad:
        raise NonFiniteError(
            f"PpoLearner: not finite {when}: {', '.join(bad[:6])}{', ...' if len(bad) > 6 else ''}; look for a reward "
            "or an observation that grows without bound; where only the update fails, train with a lower "
            "learner.learning_rate"
        )


@contextlib.contextmanager
def _prints_to_log() -> Iterator[None]:
    """Sends what rsl-rl prints about its networks to the debug log."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        yield
    _logger.debug("rsl-rl: %s", printed.getvalue())
