"""Explorers, agents and configs whose collectors and learners can be checked by hand, in any process."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import torch
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_rl import Checkpoint
from unilab_rl.algorithms.agent import OffPolicyAgent
from unilab_rl.algorithms.config import OffPolicyCfg
from unilab_rl.algorithms.explorer import NoisyExplorer
from unilab_rl.contracts.replay import ReplayContents
from unilab_rl.replay import TransitionLayout
from unilab_rl.replay_file import ReplayFile
from unilab_rl.runtime.off_policy_algorithm import ALGORITHMS, SAC, OffPolicyAlgorithm
from unilab_rl.runtime.weights import WeightReader
from unilab_rl.state_parts import copy_to_cpu

__all__ = ["ALGORITHMS", "SAC"]

_SMALL: dict[str, dict[str, Any]] = {
    "sac": {"hidden_dims": (8, 8)},
    "td3": {"hidden_dims": (8, 8)},
    "fast_sac": {"actor_hidden_dims": (8, 8), "critic_hidden_dims": (8, 8), "num_atoms": 11},
    "fast_td3": {"actor_hidden_dims": (8, 8), "critic_hidden_dims": (8, 8), "num_atoms": 11},
    "flash_sac": {"actor_width": 8, "critic_width": 8, "num_atoms": 11},
}


def small(algorithm: OffPolicyAlgorithm, **changes: Any) -> Any:
    """A config that learns in milliseconds: 7 vector steps an iteration, learning from the sixth on."""
    values: dict[str, Any] = {
        "iterations": 3,
        "save_interval": 2,
        "num_steps_per_env": 7,
        "updates_per_step": 2,
        "batch_size": 8,
        "buffer_size": 80,
        "warmup_steps": 5,
        "n_step": 2,
        "save_replay": True,
    }
    return algorithm.config_type(**(values | _SMALL.get(algorithm.name, {}) | changes))


class EchoModule(torch.nn.Module):
    """Acts with its gain, whatever it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.gain.expand(obs.shape[0], 2).clone()


class EchoExplorer(NoisyExplorer):
    """Acts with the gain plus a little noise, and remembers what it was shown and told."""

    def __init__(self, module: torch.nn.Module, seed: int = 0, noise: float = 0.0) -> None:
        super().__init__(module, torch.device("cpu"), seed)
        self.noise = noise
        self.shown: list[dict[str, torch.Tensor]] = []
        self.ended: list[list[bool]] = []

    def act(self, obs: Any) -> torch.Tensor:
        self.shown.append({name: group.clone() for name, group in obs.items()})
        drawn = torch.randn(obs["obs"].shape[0], 2, generator=self.generator)
        return (self.module(obs["obs"]) + self.noise * drawn).detach()

    def episodes_ended(self, done: torch.Tensor) -> None:
        self.ended.append(done.tolist())


class EchoCfg(OffPolicyCfg):
    """Config of the echo."""

    action_gain: float = 0.5
    noise: float = 0.1
    bad_loss: bool = False
    bad_weight: bool = False


class EchoAgent(OffPolicyAgent):
    """Adds one to its gain's counter in each update, and learns nothing."""

    def __init__(self, cfg: EchoCfg, obs_groups_spec: Any, bounds: Any, *, seed: int) -> None:
        super().__init__(obs_groups_spec, bounds, seed=seed)
        self.cfg = cfg
        self.actor = EchoModule()
        self.actor.gain.data.fill_(cfg.action_gain)
        self.optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.observed: list[torch.Tensor] = []
        self.rewarded: list[tuple[list[float], list[bool], list[bool]]] = []
        self.batches: list[Any] = []

    @property
    def modules(self) -> Any:
        return {"actor": self.actor}

    @property
    def optimizers(self) -> Any:
        return {"actor": self.optimizer}

    def observe(self, obs: Any) -> None:
        self.observed.append(obs["obs"].clone())

    def observe_rewards(self, rewards: Any, done: Any, *, refused: Any = None) -> None:
        self.rewarded.append((rewards.tolist(), done.tolist(), refused.tolist()))

    def learn(self, batch: Any) -> dict[str, torch.Tensor]:
        self.updates += 1
        self.batches.append(batch)
        self.actor.count += 1
        if self.cfg.bad_weight:
            self.actor.gain.data.fill_(float("nan"))
        losses = {"echo": torch.tensor(float(self.updates))}
        if self.updates % 2 == 0:
            losses["even"] = torch.tensor(float("inf") if self.cfg.bad_loss else 4.0)
        return losses

    def explorer(self, num_envs: int) -> EchoExplorer:
        return EchoExplorer(self.actor, self.explorer_seed, noise=self.cfg.noise)


ECHO = OffPolicyAlgorithm("echo", "off_policy_support:EchoCfg", "off_policy_support:EchoAgent")


def echo(env: Any = None, **changes: Any) -> Any:
    """A learner of the echo on a scripted environment."""
    return ECHO.make_learner(env or ScriptedEnv(exact=True), small(ECHO, **changes), seed=0)


def checkpoint(learner: Any, env: Any) -> Checkpoint:
    """What a runner would save of a learner on an exact scripted environment, and what it observes."""
    state = learner.state()
    return Checkpoint(
        algorithm="any",
        task="scripted",
        iteration=3,
        env_steps=84,
        learner=state.learner,
        optimizer=state.optimizer,
        normalizer=state.normalizer,
        env_training_state={"version": 1, "step_counter": 21},
        env_state={**env.state_dict(), "obs": env.observations()},
        rng=state.rng,
        config={},
        versions={},
    )


def unpack(layout: TransitionLayout, packed: torch.Tensor) -> dict[str, Any]:
    """The named columns of packed rows, by the layout's own description and not by its methods."""
    widths, parts, start = layout.groups, {}, 0
    names = [
        *(f"obs.{name}" for name in widths),
        "actions",
        "rewards",
        *(f"next_obs.{name}" for name in widths),
    ]
    sizes = [*widths.values(), layout.num_actions, 1, *widths.values()]
    for name, size in zip(names, sizes, strict=True):
        parts[name] = packed[:, start : start + size]
        start += size
    flags = packed[:, start:] != 0
    return {**parts, "terminated": flags[:, 0], "truncated": flags[:, 1], "refused": flags[:, 2]}


class DyingCfg(ScriptedEnvCfg):
    """A scripted environment whose process dies, or hangs, in one of its steps."""

    kill_at: int | None = None
    hang_at: int | None = None

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> Any:
        del autoreset
        return DyingEnv(self, device=device, seed=seed, backend=backend)


class DyingEnv(ScriptedEnv):
    """Its environment; see `DyingCfg`."""

    def step(self, actions: torch.Tensor) -> Any:
        state = super().step(actions)
        if self.step_counter == self.cfg.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.step_counter == self.cfg.hang_at:
            threading.Event().wait()
        return state


def dying_cfg() -> DyingCfg:
    """The environment config of the task `scripted-dying`."""
    return DyingCfg(kill_at=20)


def echo_cfg() -> EchoCfg:
    """The learner config of the task `scripted-dying`: one collector of its own."""
    return small(ECHO, collectors=1, save_interval=1000)  # type: ignore[no-any-return]


class CountedModule(torch.nn.Module):
    """Holds one number everywhere: in floats, in a count beyond what float32 can hold, in float64 and in a flag."""

    BASE = 2**40

    def __init__(self, size: int = 2048) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))
        self.register_buffer("count", torch.zeros(7, dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(5, dtype=torch.float64))
        self.register_buffer("is_odd", torch.zeros(3, dtype=torch.bool))

    def hold(self, number: int) -> None:
        self.weight.data.fill_(float(number))
        self.count.fill_(self.BASE + number)
        self.mean.fill_(self.BASE + number / 4)
        self.is_odd.fill_(number % 2 == 1)

    def held(self) -> int:
        """Returns the number, or raises AssertionError where parts hold different ones."""
        number = int(self.count[0]) - self.BASE
        whole = (
            (self.weight == number).all()
            & (self.count == self.BASE + number).all()
            & (self.mean == self.BASE + number / 4).all()
            & (self.is_odd == (number % 2 == 1)).all()
        )
        assert bool(whole), (
            f"torn: {number}, {self.weight.unique()}, {self.count.unique()}, {self.mean.unique()}"
        )
        return number


def read_until(shared: Any, last: int, ready: Any, results: Any) -> None:
    """Reads published weights as fast as it can until version `last`; a process of its own runs it."""
    try:
        torch.set_num_threads(1)
        module = CountedModule()
        reader = WeightReader(module, shared)
        ready.set()
        seen = 0
        before = 0
        while before < last:
            if reader.refresh():
                number = module.held()
                assert number == reader.version > before, (number, reader.version, before)
                before, seen = number, seen + 1
        results.send((seen, reader.retries))
    except BaseException as error:
        results.send(error)
        raise


def with_copied_replay(learner):
    """The learner's part of a state, with copies of the replay's contents in a file's stead."""
    held = learner.get("replay") if isinstance(learner, dict) else None
    if not isinstance(held, ReplayContents):
        return learner
    return {**learner, "replay": ReplayFile(copy_to_cpu(held.restore()))}


def leaves(value, path=""):
    """Every tensor and plain value of a tree, by path."""
    if isinstance(value, ReplayFile):
        value = value.contents
    if isinstance(value, dict):
        return {
            key: leaf for name, part in value.items() for key, leaf in leaves(part, f"{path}/{name}").items()
        }
    if isinstance(value, list | tuple):
        return {
            key: leaf
            for index, part in enumerate(value)
            for key, leaf in leaves(part, f"{path}/{index}").items()
        }
    return {path: value}


def parts(state):
    return leaves(
        {
            "learner": with_copied_replay(state.learner),
            "optimizer": state.optimizer,
            "normalizer": state.normalizer,
            "rng": state.rng,
        }
    )


def differences(first, second):
    """The paths at which two states are not equal bit for bit."""
    own, other = parts(first), parts(second)
    assert own.keys() == other.keys()
    return [
        path
        for path, value in own.items()
        if not (
            value.equal(other[path]) and value.dtype == other[path].dtype
            if isinstance(value, torch.Tensor)
            else value == other[path]
        )
    ]
