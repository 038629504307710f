"""A scripted environment on the fake backend, a small robot on MuJoCo, and other things that tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from unilab_core import TorchEnv, TorchEnvCfg
from unisim import EntityCfg, ModelLayout, SceneCfg, SimCfg, make_backend
from unisim.testing import FakeBackend, Fault, make_layout

Schedule = Mapping[int, list[int]]
"""Step number (from 1) to rows."""


class ScriptedCfg(TorchEnvCfg):
    """A control step is 2 substeps of 0.01 s, so 0.02 s."""

    sim: SimCfg = SimCfg(timestep=0.01)
    decimation: int = 2
    num_envs: int = 3

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> ScriptedEnv:
        """Builds the scripted environment; the backend is always a fake."""
        del backend
        return ScriptedEnv(self.num_envs, cfg=self, device=device, seed=seed, autoreset=autoreset)


class ScriptedEnv(TorchEnv):
    """Rows count their steps. Observation columns: age + 100 * episode, slider position, last action.

    Every hook is written to `calls` as (name, rows or None); `inject` replaces what a hook does by name.
    """

    num_actions = 1

    def __init__(
        self,
        num_envs: int = 3,
        *,
        terminate: Schedule | None = None,
        truncate: Schedule | None = None,
        episode_steps: int = 1000,
        critic: bool = False,
        spread: float = 0.0,
        layout: ModelLayout | None = None,
        faults: tuple[Fault, ...] = (),
        script: Callable[..., Any] | None = None,
        backend: Any = None,
        cfg: TorchEnvCfg | None = None,
        **options: Any,
    ) -> None:
        script_of = ({**(terminate or {})}, {**(truncate or {})}, [], {})
        self._script = lambda: (
            script_of
        )  # in a closure: no part of what a reset puts back or a checkpoint holds
        self.critic, self.spread = critic, spread
        if backend is None:
            layout = layout or make_layout(sensors={"imu": (3, "acceleration")}, sites=("robot/tip",))
            backend = FakeBackend(layout, num_envs, faults=faults, script=script)
        if cfg is None:
            cfg = ScriptedCfg(num_envs=num_envs, episode_length_s=episode_steps * 0.02)
        super().__init__(backend, cfg, **options)
        self.episode = torch.full((num_envs,), -1)
        self.last_action = torch.zeros(num_envs, self.num_actions)
        self.calls.clear()

    @property
    def terminate(self) -> dict[int, list[int]]:
        """Step number to the rows that terminate in it."""
        return self._script()[0]

    @property
    def truncate(self) -> dict[int, list[int]]:
        """Step number to the rows that are truncated in it."""
        return self._script()[1]

    @property
    def calls(self) -> list[tuple[str, list[int] | None]]:
        """The hooks that ran, with their rows."""
        return self._script()[2]

    @property
    def inject(self) -> dict[str, Callable[..., Any]]:
        """Hook name to what it does instead."""
        return self._script()[3]

    @property
    def backend(self) -> Any:
        """The backend, for tests that look behind the environment."""
        return self._backend

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) -1 and (A,) 1."""
        return -torch.ones(self.num_actions), torch.ones(self.num_actions)

    @property
    def obs_groups_spec(self) -> dict[str, int]:
        """Three columns for the policy, four for the critic."""
        return {"obs": 3} | ({"critic": 4} if self.critic else {})

    def _hook(self, name: str, ids: torch.Tensor | None = None, *arguments: Any) -> Any:
        self.calls.append((name, None if ids is None else ids.tolist()))
        if name in self.inject:
            return self.inject[name](*([] if ids is None else [ids]), *arguments)
        return None

    def _build(self) -> None:
        self.episode = torch.full((self.num_envs,), -1)
        self.last_action = torch.zeros(self.num_envs, self.num_actions)
        self._action = self.last_action.clone()

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        self.calls.append(("_control", None))
        if "_control" in self.inject:
            return self.inject["_control"](actions)
        self._action = actions
        return actions

    def _begin_step(self) -> None:
        self._hook("_begin_step")
        self.last_action.copy_(self._action)

    def _rows(self, schedule: Schedule) -> torch.Tensor:
        mask = torch.zeros(self.num_envs, dtype=torch.bool)
        mask[schedule.get(self.step_counter, [])] = True
        return mask

    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        found = self._hook("_terminations")
        return found or (self._rows(self.terminate), self._rows(self.truncate) | self.timed_out)

    def _rewards(self) -> torch.Tensor:
        found = self._hook("_rewards")
        return self.episode_length.float() if found is None else found

    def _advance(self) -> None:
        self._hook("_advance")

    def _measure(self) -> dict[str, torch.Tensor]:
        return self._hook("_measure") or {"age": self.episode_length.float().mean()}

    def _observe(self, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
        self.calls.append(("_observe", None if ids is None else ids.tolist()))
        if "_observe" in self.inject:
            return self.inject["_observe"](ids)
        age = self.episode_length + 100 * self.episode
        slider = self.scene["robot"].data.joint_pos[:, 0]
        obs = torch.stack([age.float(), slider, self.last_action[:, 0]], dim=-1)
        groups = {"obs": obs}
        if self.critic:
            groups["critic"] = torch.cat([obs, torch.arange(float(self.num_envs))[:, None]], dim=-1)
        return groups if ids is None else {name: rows[ids] for name, rows in groups.items()}

    def _after_step(self) -> None:
        self._hook("_after_step")

    def _on_episodes_end(self, ids: torch.Tensor) -> None:
        self._hook("_on_episodes_end", ids)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        self._hook("_stage_reset", ids)
        if self.spread:
            position = self.rng.uniform(-self.spread, self.spread, (ids.numel(), 1))
            data = self.scene["robot"].data
            data.write_joint_state(position, torch.zeros_like(position), ids, slice(0, 1))

    def _before_commit(self, ids: torch.Tensor) -> None:
        self._hook("_before_commit", ids)

    def _clear_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self._hook("_clear_rows", ids)
        self.episode[ids] += 1
        self.last_action[ids] = 0.0
        return {"rows/sum": torch.tensor(float(ids.numel())), "rows/count": torch.tensor(1)}

    def _after_commit(self, ids: torch.Tensor) -> None:
        self._hook("_after_commit", ids)

    def _after_reset(self, ids: torch.Tensor) -> None:
        self._hook("_after_reset", ids)


def zeros(env: TorchEnv) -> torch.Tensor:
    """(N, A) zero actions."""
    return torch.zeros(env.num_envs, env.num_actions)


def steps(env: TorchEnv, number: int) -> Any:
    """Steps `number` times with zero actions and returns the last outcome."""
    state = None
    for _ in range(number):
        state = env.step(zeros(env))
    return state


def copied(state: Any) -> dict[str, torch.Tensor]:
    """Copies of an outcome's tensors by name, final observations included."""
    values = {f"obs.{name}": rows.clone() for name, rows in state.obs.items()}
    for name, rows in (state.final_observation or {}).items():
        values[f"final.{name}"] = rows.clone()
    for name in ("reward", "terminated", "truncated"):
        values[name] = getattr(state, name).clone()
    return values


def assert_same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> None:
    """The same names with the same bits."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# ---------------------------------------------------------------- a robot on MuJoCo

ROBOT = """
<mujoco><worldbody><body name="base" pos="0 0 1"><freejoint name="root"/><geom type="box" size=".1 .1 .1" mass="2"/>
  <site name="imu" pos=".1 0 0"/>
  <body name="leg" pos="0 0 -.1"><joint name="hip" axis="0 1 0" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5"/>
    <body name="foot" pos="0 0 -.3"><joint name="ankle" axis="0 1 0" damping=".1"/>
      <geom size=".04" mass=".1"/></body></body></body></worldbody>
<actuator><motor name="hip" joint="hip"/><motor name="ankle" joint="ankle"/></actuator>
<sensor><gyro name="gyro" site="imu"/></sensor></mujoco>"""


def robot_spec() -> Any:
    """A free base with two joints in a row."""
    return pytest.importorskip("mujoco").MjSpec.from_string(ROBOT)


def robot_backend(num_envs: int = 2, *, gravity: float = 0.0, num_threads: int = 1) -> Any:
    """MuJoCo rows of the robot."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=robot_spec)})
    sim = SimCfg(timestep=0.01, gravity=(0.0, 0.0, gravity), num_threads=num_threads)
    return make_backend("mujoco", scene, sim, num_envs=num_envs)


class RobotEnv(ScriptedEnv):
    """The scripted environment on MuJoCo; `stage(env, ids)` is its reset event, `look(env)` what it reads."""

    num_actions = 2

    def __init__(
        self,
        num_envs: int = 2,
        *,
        stage: Callable[[RobotEnv, torch.Tensor], None] | None = None,
        look: Callable[[RobotEnv], object] | None = None,
        gravity: float = 0.0,
        num_threads: int = 1,
        **options: Any,
    ) -> None:
        self.stage, self.look = stage, look
        backend = robot_backend(num_envs, gravity=gravity, num_threads=num_threads)
        super().__init__(num_envs, backend=backend, **options)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        if self.stage is not None:
            self.stage(self, ids)

    def _rewards(self) -> torch.Tensor:
        if self.look is not None:
            self.look(self)
        return super()._rewards()


# ---------------------------------------------------------------- tasks


def scripted_task() -> ScriptedCfg:
    """The config of a registered task."""
    return ScriptedCfg(num_envs=5)


def no_config() -> int:
    """What a task must not name."""
    return 3


def describe_env(factory: Callable[[], TorchEnv]) -> tuple[int, float, bool, list[float]]:
    """Makes an environment and tells what it is; for another process."""
    with factory() as env:
        env.reset()
        env.step(torch.zeros(env.num_envs, 1))
        return env.num_envs, env.step_dt, env.autoreset, env.rng.uniform(0.0, 1.0, 3).tolist()
