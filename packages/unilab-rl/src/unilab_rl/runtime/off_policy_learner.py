"""The learner of every off-policy algorithm: collect a step, store it, update; an iteration is some of these."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from unilab_core import NonFiniteError
from unilab_rl.algorithms.agent import OffPolicyAgent
from unilab_rl.algorithms.config import OffPolicyCfg
from unilab_rl.contracts.algorithm import Iteration, LearnerState
from unilab_rl.contracts.replay import ReplayContents, ReplayGoneError
from unilab_rl.replay import Replay
from unilab_rl.runtime.actor_policy import ActorPolicy
from unilab_rl.runtime.collector import TransitionSource
from unilab_rl.state_parts import (
    check_generator_state,
    check_names,
    check_optimizer,
    copy_to_cpu,
    join_networks,
    load_optimizer,
    split_networks,
)

__all__ = ["OffPolicyLearner"]


class OffPolicyLearner:
    """Learns from a replay that it fills from one source of transitions.

    After each vector step `updates_per_step` updates follow, so the number of updates per transition is what the config
    says, wherever the transitions come from and however fast either side is.
    """

    def __init__(
        self,
        cfg: OffPolicyCfg,
        agent: OffPolicyAgent,
        replay: Replay,
        source: TransitionSource,
        *,
        resumes_exactly: bool,
    ) -> None:
        """Makes a learner.

        Args:
            cfg: The config that the other parts were made from.
            agent: Learns.
            replay: Is filled and drawn from; on the agent's device.
            source: Where transitions come from.
            resumes_exactly: Whether the source goes on bit for bit once it and its environment are restored.
        """
        self.cfg = cfg
        self.agent = agent
        self.replay = replay
        self.source = source
        self._resumes_exactly = resumes_exactly and cfg.save_replay
        self._stored_steps = 0  # vector steps since the replay was empty

    def iterate(self) -> Iteration:
        """Takes `num_steps_per_env` vector steps, each followed by its updates once the warm-up is over.

        Raises:
            NonFiniteError: A loss or a parameter is not finite any more; names it. The learner should not be used on.
            CollectorError: A collector in another process failed or died.
        """
        losses: list[dict[str, torch.Tensor]] = []
        collect_s = learn_s = 0.0
        for _ in range(self.cfg.num_steps_per_env):
            began = time.perf_counter()
            self._collect()
            collected = time.perf_counter()
            if self._is_warm():
                losses += self._update()
            collect_s += collected - began
            learn_s += time.perf_counter() - collected
        began = time.perf_counter()
        metrics = self._read(losses)
        return Iteration(
            env_steps=self.replay.num_envs * self.cfg.num_steps_per_env,
            collect_s=collect_s,
            learn_s=learn_s + time.perf_counter() - began,
            metrics=metrics,
        )

    def state(self) -> LearnerState:
        """Returns copies, on the CPU, of networks, optimisers, normalisers, generators and counters.

        Where the config says `save_replay`, the replay is among them as `ReplayContents`, which are not copied: loading
        the state, here or into another learner, or saving it takes this learner's replay back to that moment. This one
        can load it once; then, or once an earlier state was loaded, its replay is gone. To keep it, save a checkpoint.
        """
        networks, normalizer = split_networks(self.agent.modules)
        return LearnerState(
            learner={
                "networks": networks,
                "updates": self.agent.updates,
                "stored_steps": self._stored_steps,
                "replay": self.replay.mark() if self.cfg.save_replay else None,
            },
            optimizer={
                name: copy_to_cpu(optimizer.state_dict()) for name, optimizer in self.agent.optimizers.items()
            },
            normalizer=normalizer,
            rng={"agent": self.agent.generator.get_state(), "source": self.source.state()},
            exact=self._resumes_exactly,
        )

    def load_state(self, state: LearnerState, *, episodes_continue: bool, trained: bool = True) -> None:
        """Continues from `state`.

        Without the replay updates wait until as many steps are stored as at the start of a run; the policy acts
        meanwhile, as far as it had begun to.

        Args:
            state: What `state` returned, or what a checkpoint was read to together with its replay.
            episodes_continue: Whether the environment goes on in the middle of its episodes; if it starts new ones,
                no window of the replay runs on into them, returns for a scale of rewards start at 0, and noise that
                belongs to an episode is redrawn.
            trained: Whether iterations lie behind the state.

        Raises:
            ValueError: A name, a shape or a value differs from this learner's, or the state's replay is gone; nothing
                was changed.
        """
        del (
            trained
        )  # a warm-up has no statistics of optimisers, a delayed actor has them later than the critic
        learner = state.learner
        check_names("checkpoint part 'learner'", learner, ("networks", "updates", "stored_steps", "replay"))
        networks = join_networks(self.agent.modules, learner["networks"], state.normalizer)
        check_names("checkpoint part 'optimizer'", state.optimizer, self.agent.optimizers)
        for name, optimizer in self.agent.optimizers.items():
            check_optimizer(optimizer, state.optimizer[name], trained=False)
        updates, stored = (_count(name, learner[name]) for name in ("updates", "stored_steps"))
        check_names("checkpoint part 'rng'", state.rng, ("agent", "source"))
        drawn = check_generator_state(
            "the agent's generator", self.agent.generator.device, state.rng["agent"]
        )
        self._load_source_and_replay(state.rng["source"], learner["replay"])
        self._stored_steps = stored if learner["replay"] is not None else 0
        for name, module in self.agent.modules.items():
            module.load_state_dict(networks[name])
        for name, optimizer in self.agent.optimizers.items():
            load_optimizer(optimizer, state.optimizer[name])
        self.agent.generator.set_state(drawn)
        self.agent.updates = updates
        if not episodes_continue:
            self.replay.interrupt()
            self.agent.episodes_restart()
            self.source.episodes_restart()

    def policy(self) -> ActorPolicy:
        """Returns the deterministic policy for raw observations, which follows later iterations."""
        return ActorPolicy(self.agent)

    def close(self) -> None:
        """Ends the process that collects, if there is one; calling it again does nothing."""
        self.source.close()

    def _collect(self) -> None:
        packed = self.source.step()
        layout = self.replay.layout
        terminated, truncated, refused = (packed[:, -3:] != 0).unbind(dim=1)
        self.agent.observe(layout.split_obs(packed))
        rewards = packed[:, layout.stored_width - 1]
        self.agent.observe_rewards(rewards, terminated | truncated, refused=refused)
        self.replay.add_rows(packed)
        self._stored_steps += 1

    def _is_warm(self) -> bool:
        # Rows may be refused, so a step that was taken need not have left anything to learn from.
        return self._stored_steps > self.cfg.warmup_steps and self.replay.can_sample(1)

    def _update(self) -> list[dict[str, torch.Tensor]]:
        losses = [
            self.agent.learn(self.replay.sample(self.cfg.batch_size))
            for _ in range(self.cfg.updates_per_step)
        ]
        self.source.publish()
        return losses

    def _read(self, losses: Iterable[Mapping[str, torch.Tensor]]) -> dict[str, float]:
        """Returns the iteration's metrics; here, and nowhere else in it, the learner waits for the device."""
        series: dict[str, list[torch.Tensor]] = {}
        for each in losses:
            for name, value in each.items():
                series.setdefault(f"Loss/{name}", []).append(value.detach())
        means = {name: torch.stack(values).double().mean() for name, values in series.items()}
        self._check_finite(means)
        numbers = torch.stack([*means.values(), self.replay.refused.double()]).tolist()
        return {
            **dict(zip([*means, "Replay/refused"], numbers, strict=True)),
            "Replay/transitions": float(self.replay.num_transitions),
            "Replay/updates": float(self.agent.updates),
            **self.source.take_metrics(),
            **self.source.take_totals().means(),
        }

    def _check_finite(self, means: Mapping[str, torch.Tensor]) -> None:
        tensors = {
            f"{network}.{name}": tensor
            for network, module in self.agent.modules.items()
            for name, tensor in module.state_dict().items()
        }
        named = {**means, **tensors}
        finite = torch.stack([tensor.isfinite().all() for tensor in named.values()]).tolist()
        bad = [name for name, is_finite in zip(named, finite, strict=True) if not is_finite]
        if bad:
            raise NonFiniteError(
                f"{type(self.agent).__name__}: not finite after the update: {', '.join(bad[:6])}"
                f"{', ...' if len(bad) > 6 else ''}; look for a reward that grows without bound, or train with a lower "
                "learning rate"
            )

    def _load_source_and_replay(self, source: object, replay: object) -> None:
        """Restores both or none; without a saved replay its own stays as it is: empty, in a run that resumes."""
        if not isinstance(source, Mapping):
            raise ValueError(f"the source's state is a {type(source).__name__}, expected a dict")
        if replay is not None and not isinstance(replay, ReplayContents):
            raise ValueError(_why_no_contents(replay))
        before = self.source.state()
        self.source.load_state(source)
        if replay is None:
            return
        try:
            self.replay.load_state(_restored(replay))
        except ValueError:
            self.source.load_state(before)
            raise


def _restored(replay: ReplayContents) -> Mapping[str, Any]:
    try:
        return replay.restore()
    except ReplayGoneError as error:
        raise ValueError(f"the replay of this state is gone: {error}") from error


def _why_no_contents(replay: object) -> str:
    if isinstance(replay, Mapping) and "rows" in replay:
        return (
            "the replay is inside the checkpoint itself, as unreleased versions wrote it; this one reads a file beside "
            "it: go on with the version that wrote the checkpoint, or start a new run"
        )
    return (
        f"the replay is a {type(replay).__name__}, expected its contents; read the checkpoint together with "
        "its replay: load_checkpoint_with_replay"
    )


def _count(name: str, value: Any) -> int:  # noqa: ANN401 - whatever a file held
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r:.40}, expected a count")
    return value
