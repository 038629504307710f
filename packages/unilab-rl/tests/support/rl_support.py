"""A scripted environment and a counting learner: small, exact and without an engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from unilab_core import (
    CapabilityError,
    ConfigError,
    EnvDescription,
    EnvFaultedError,
    NonFiniteError,
    TorchEnv,
    TorchEnvCfg,
    TorchEnvState,
)
from unilab_rl import BudgetCfg, Iteration, LearnerCfg, LearnerState, RunConfig

Verdict = Callable[[int, torch.Tensor], torch.Tensor]
_FAILURES = {
    kind.__name__: kind for kind in (ValueError, ConfigError, NonFiniteError, EnvFaultedError, OSError)
}


class ScriptedEnvCfg(TorchEnvCfg):
    """Config of the scripted environment."""

    num_envs: int = 4
    steps: int = 5
    critic: bool = True
    gain: float = 1.0
    fail_at: int | None = None
    fails_with: Literal["ValueError", "ConfigError", "NonFiniteError", "EnvFaultedError", "OSError"] = (
        "ValueError"
    )
    exact: bool = False
    fall_at: int | None = None
    metrics: bool = False
    gain_on: dict[str, float] = {}
    place_on: dict[str, float] = {}

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> ScriptedEnv:
        """Builds it; the backend's name is only kept."""
        del autoreset
        if backend not in ("scripted", "mujoco"):
            raise CapabilityError(f"ScriptedEnv: unknown backend {backend!r}")
        return ScriptedEnv(self, device=device, seed=seed, backend=backend)


class ScriptedEnv:
    """Rows count their steps; nothing is random but the first column's offset after a seeded reset.

    Observation columns of row r in its episode e (from 0) at age t: `obs = [100 e + t, r]`,
    `critic = [100 e + t, r, -1]`. Reward: `gain - mean(action ** 2)`. Time-out at age `cfg.steps`; `terminate(step,
    age) -> (N,) bool` adds terminations, and row 0 falls at age `cfg.fall_at`; with `cfg.is_finite_horizon` a time-out
    is a termination. With `cfg.metrics`, finished episodes
    report their mean length as `Metrics/age` and nothing, with count 0, as `Metrics/none`. Every tensor handed out by
    `step` is rewritten by the next. The position is the row, plus `cfg.place_on` a backend; the velocity is the last
    seed; `cfg.gain_on` a backend is there instead of the gain. A picture is 16 x 24, all of one grey: 10 times row plus
    age.
    """

    def __init__(
        self,
        cfg: ScriptedEnvCfg | None = None,
        *,
        device: str = "cpu",
        seed: int = 0,
        terminate: Verdict | None = None,
        exact: bool = False,
        backend: str = "scripted",
    ) -> None:
        self.cfg = cfg or ScriptedEnvCfg()
        self.backend = backend
        self.num_envs, self.num_actions = self.cfg.num_envs, 2
        self.device = torch.device(device)
        self.step_dt = 0.5
        self.max_episode_length = self.cfg.steps
        self.obs_groups_spec = {"obs": 2} | ({"critic": 3} if self.cfg.critic else {})
        self.action_bounds = (-torch.ones(2), torch.ones(2))
        self.terminate = terminate
        self.exact = exact or self.cfg.exact
        self.seeds = [seed]
        self.num_resets = self.num_closes = self.step_counter = 0
        self.received: list[torch.Tensor] = []
        rows = self.num_envs
        self._age = torch.zeros(rows, dtype=torch.int64)
        self._episode = torch.full((rows,), -1, dtype=torch.int64)
        self._return = torch.zeros(rows)
        self._log = torch.zeros(())
        self._obs = {name: torch.zeros(rows, width) for name, width in self.obs_groups_spec.items()}
        self._final = {name: torch.zeros_like(tensor) for name, tensor in self._obs.items()}
        flags = torch.zeros(rows, dtype=torch.bool)
        self.state = TorchEnvState(
            obs=self._obs,
            reward=torch.zeros(rows),
            terminated=flags.clone(),
            truncated=flags.clone(),
            info={"log": {}, "timing": {}},
        )

    @property
    def episode_length(self) -> torch.Tensor:
        return self._age

    @episode_length.setter
    def episode_length(self, value: torch.Tensor) -> None:
        self._age.copy_(value)
        self._write(self._obs)

    def _write(self, groups: dict[str, torch.Tensor]) -> None:
        for tensor in groups.values():
            tensor.fill_(-1.0)
            tensor[:, 0] = 100 * self._episode + self._age
            tensor[:, 1] = torch.arange(self.num_envs)

    def reset(
        self, env_ids: torch.Tensor | None = None, *, seed: int | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        self.num_resets += 1
        if seed is not None:
            self.seeds.append(seed)
        ids = torch.arange(self.num_envs) if env_ids is None else env_ids
        self._restart(ids)
        self.state.terminated[ids] = False
        self.state.truncated[ids] = False
        return {name: tensor[ids].clone() for name, tensor in self._obs.items()}, {"log": {}, "timing": {}}

    def _restart(self, ids: torch.Tensor) -> None:
        self._age[ids] = 0
        self._episode[ids] += 1
        self._return[ids] = 0.0
        self._write(self._obs)

    def step(self, actions: torch.Tensor) -> TorchEnvState:
        if self.num_closes:
            raise RuntimeError("ScriptedEnv.step: the environment is closed")
        self.received.append(actions)
        actions.clamp_(-1.0, 1.0)  # what a careless action term does
        state = self.state
        self.step_counter += 1
        if self.cfg.fail_at is not None and self.step_counter >= self.cfg.fail_at:
            raise _FAILURES[self.cfg.fails_with](f"boom at step {self.step_counter}")
        self._age += 1
        gain = self.cfg.gain_on.get(self.backend, self.cfg.gain)
        state.reward.copy_(gain - actions.square().mean(-1))
        self._return += state.reward
        state.truncated.copy_(self._age >= self.max_episode_length)
        state.terminated.fill_(False)
        if self.terminate is not None:
            state.terminated.copy_(self.terminate(self.step_counter, self._age))
        if self.cfg.fall_at is not None:
            state.terminated[0] |= self._age[0] == self.cfg.fall_at
        if self.cfg.is_finite_horizon:
            state.terminated |= state.truncated
            state.truncated.fill_(False)
        self._write(self._obs)
        self._log.fill_(float(self.step_counter))
        state.info = {"log": {"Metrics/step": self._log}, "timing": {}}
        state.final_observation = None
        done = state.terminated | state.truncated
        if bool(done.any()):
            for name, tensor in self._obs.items():
                self._final[name].copy_(tensor)
            state.final_observation = self._final
            count = done.sum()
            state.info["episode"] = {
                "return/sum": self._return[done].sum(),
                "return/count": count,
                "length/sum": self._age[done].sum(),
                "length/count": count,
                "Episode_Reward/gain/sum": torch.tensor(2.0) * count,
                "Episode_Reward/gain/count": count,
            }
            if self.cfg.metrics:
                zero = torch.zeros(())
                state.info["episode"] |= {
                    "Metrics/age/sum": self._age[done].sum(),
                    "Metrics/age/count": count,
                    "Metrics/none/sum": zero,
                    "Metrics/none/count": zero,
                }
            self._restart(done.nonzero().flatten())
        return state

    def observations(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self._obs.items()}

    def state_column(self, key: str) -> torch.Tensor:
        place = torch.arange(float(self.num_envs)) + self.cfg.place_on.get(self.backend, 0.0)
        return {"qpos": place, "qvel": torch.full((self.num_envs,), float(self.seeds[-1] % 1000))}[key][
            :, None
        ]

    def export_training_state(self) -> dict[str, int]:
        return {"version": 1, "step_counter": self.step_counter}

    def import_training_state(self, payload: dict[str, Any]) -> None:
        if set(payload) != {"version", "step_counter"} or payload["version"] != 1:
            raise ValueError(f"training state is {payload}")
        self.step_counter = payload["step_counter"]

    def state_dict(self) -> dict[str, Any]:
        if not self.exact:
            raise CapabilityError("ScriptedEnv.state_dict: not available")
        return {"age": self._age.clone(), "episode": self._episode.clone(), "return": self._return.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._age.copy_(state["age"])
        self._episode.copy_(state["episode"])
        self._return.copy_(state["return"])
        self._write(self._obs)

    def describe(self) -> EnvDescription:
        return EnvDescription(
            step_dt=self.step_dt,
            episode_length_s=self.max_episode_length * self.step_dt,
            observations={"obs": ("value",)},
            actions=("action",),
            joints=(),
            capabilities={"execution": "scripted"},
        )

    def render(self, row: int, camera: Any = None) -> torch.Tensor:
        if camera is not None and camera.track is not None:
            raise KeyError(f"unknown body {camera.track!r}")
        return torch.full((16, 24, 3), (10 * row + int(self._age[row])) % 256, dtype=torch.uint8)

    def close(self) -> None:
        self.num_closes += 1


class CountingCfg(LearnerCfg):
    """Config of the counting learner."""

    iterations: int = 3
    save_interval: int = 2
    rate: float = 1.0


@dataclass
class CountingLearner:
    """Adds `rate` to one weight in each iteration, after two steps of the environment."""

    env: Any
    cfg: CountingCfg
    seed: int
    weight: torch.Tensor = field(default_factory=lambda: torch.zeros(2))
    before_iteration: Callable[[int], None] = lambda number: None
    factory: Any = None
    num_closes: int = 0

    def __post_init__(self) -> None:
        self.env.reset()

    def iterate(self) -> Iteration:
        self.before_iteration(int(self.weight[0] / self.cfg.rate) + 1)
        for _ in range(2):
            self.env.step(torch.zeros(self.env.num_envs, 2))
        self.weight += self.cfg.rate
        return Iteration(2 * self.env.num_envs, 0.25, 0.25, {"Loss/value": float(self.weight[0])})

    def state(self) -> LearnerState:
        return LearnerState({"weight": self.weight.clone()}, {"lr": self.cfg.rate}, {}, {})

    def load_state(self, state: LearnerState, *, episodes_continue: bool, trained: bool = True) -> None:
        if state.learner["weight"].shape != (2,):
            raise ValueError(f"weight has shape {tuple(state.learner['weight'].shape)}, expected (2,)")
        self.weight = state.learner["weight"].clone()

    def policy(self) -> Callable[[Any], torch.Tensor]:
        return lambda obs: self.weight.expand(obs["obs"].shape[0], 2)

    def close(self) -> None:
        self.num_closes += 1


@dataclass
class CountingAlgorithm:
    """Makes counting learners, and keeps them for tests to look at."""

    name: str = "counting"
    config_type: type[CountingCfg] = CountingCfg
    made: list[CountingLearner] = field(default_factory=list)
    before_iteration: Callable[[int], None] = lambda number: None

    def require(self) -> None:
        return None

    def make_learner(self, env: Any, cfg: Any, *, seed: int, factory: Any = None) -> CountingLearner:
        learner = CountingLearner(env, cfg, seed, before_iteration=self.before_iteration, factory=factory)
        self.made.append(learner)
        return learner

    def make_policy(self, env: Any, cfg: Any, state: LearnerState) -> Callable[[Any], torch.Tensor]:
        weight = 0.1 * state.learner["weight"]
        return lambda obs: weight.expand(obs["obs"].shape[0], 2).contiguous()


COUNTING = CountingAlgorithm()


def scripted_cfg() -> ScriptedEnvCfg:
    """The environment config of the task `scripted`."""
    return ScriptedEnvCfg()


def counting_cfg() -> CountingCfg:
    """The learner config of the task `scripted` for the algorithm `counting`."""
    return CountingCfg()


def graded_cfg(cfg: ScriptedEnvCfg) -> ScriptedEnvCfg:
    """The config that the task `scripted-graded` is measured on."""
    return cfg.with_({"gain": 2.0, "metrics": True, "fall_at": 2})


def ppo_cfg() -> Any:
    """The learner config of the task `scripted` for PPO."""

    return small_ppo()


def small_ppo(**changes: Any) -> Any:
    """A PPO config that learns in milliseconds."""
    from unilab_rl import PpoCfg

    values: dict[str, Any] = {
        "actor_hidden_dims": (8,),
        "critic_hidden_dims": (8,),
        "num_steps_per_env": 6,
        "num_learning_epochs": 2,
        "num_mini_batches": 2,
        "iterations": 3,
        "save_interval": 2,
    }
    return PpoCfg(**(values | changes))


def register() -> None:
    """Registers the tasks and the algorithms, as entry points of an installed package would."""
    from unilab_core import TaskSpec, register_task
    from unilab_rl import PPO_ALGORITHM, register_algorithm

    register_algorithm(COUNTING)
    register_algorithm(PPO_ALGORITHM)
    for name, evaluation in (("scripted", ""), ("scripted-graded", "rl_support:graded_cfg")):
        register_task(
            TaskSpec(
                name=name,
                env_cfg="rl_support:scripted_cfg",
                learners={"counting": "rl_support:counting_cfg", "ppo": "rl_support:ppo_cfg"},
                default_learner="counting",
                summary="rows that count their steps",
                evaluation=evaluation,
            )
        )


def run_config(**changes: Any) -> RunConfig:
    """The config of a run of the counting learner."""
    values: dict[str, Any] = {
        "task": "scripted",
        "algorithm": "counting",
        "backend": "scripted",
        "device": "cpu",
        "num_envs": 4,
        "seed": 7,
        "budget": BudgetCfg(iterations=3),
        "env": ScriptedEnvCfg(),
        "learner": CountingCfg(),
    }
    return RunConfig(**(values | changes))


def python(*args: str, **changes: Any) -> subprocess.Popen[str]:
    """Starts a real Python process that can import what this one can."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *(entry for entry in sys.path if entry and entry != here)])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, *args],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **changes,
    )


# `make_env` accepts nothing but a TorchEnv.
TorchEnv.register(ScriptedEnv)
