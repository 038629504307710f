"""Events for the tests: environments that note when terms fire, a fake with every model field, and a small robot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mujoco
import torch
from manager_support import DT, base_cfg, calls, mujoco_cfg
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core.writes import declared_writes
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from unisim import EntityCfg, ModelLayout, SceneCfg
from unisim.contract import Declared
from unisim.randomization import FieldLayout
from unisim.testing import FakeBackend, make_layout

Events = dict[str, EventTermCfg]


def fired(env: ManagerBasedRlEnv, env_ids: torch.Tensor, tag: str = "event") -> None:
    """Notes the environment step and the rows."""
    calls.append((tag, env.step_counter, env_ids.tolist()))


class Fired:
    """The same as a class term."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, tag: str = "event") -> None:
        fired(env, env_ids, tag)


def interval(low: float, high: float | None = None, *, tag: str = "event", **settings: Any) -> EventTermCfg:
    """Returns an interval event that notes its calls; its time is `low` to `high` (default `low`) seconds."""
    times = (low, low if high is None else high)
    fields: dict[str, Any] = {
        "func": fired,
        "mode": "interval",
        "interval_range_s": times,
        "params": {"tag": tag},
    }
    return EventTermCfg(**(fields | settings))


def steps_of(row: int, tag: str = "event") -> list[int]:
    """Returns the environment steps at which a term fired for a row."""
    return [step for name, step, rows in calls if name == tag and row in rows]


def run(env: ManagerBasedRlEnv, steps: int) -> None:
    """Steps with actions of zero."""
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, env.num_actions))


def distinct(values: torch.Tensor) -> int:
    """Returns how many different numbers there are."""
    return len(set(values.flatten().tolist()))


@contextmanager
def operators() -> Iterator[list[str]]:
    """Lists the torch operators that run inside the block, by name."""
    names: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.__name__.split(".")[0])
            return func(*args, **(kwargs or {}))

    with Mode():  # type: ignore[no-untyped-call]
        yield names


# ---------------------------------------------------------------- model fields on a fake

MASS = 5.0
INERTIA = (0.02083, 0.07083, 0.08333)
KP, KD = 20.0, 0.5


def full_layout() -> ModelLayout:
    """Returns a free body of 5 kg with two joints (position actuators) and two geoms, with all 13 model fields."""
    joints = ("robot/hip", "robot/knee")
    position = (KP, *[0.0] * 9)
    bias = (0.0, -KP, -KD, *[0.0] * 7)
    fields = {
        "body_mass": ((2,), (0.0, MASS)),
        "body_ipos": ((2, 3), (0.0, 0.0, 0.0, 0.01, -0.02, 0.03)),
        "body_iquat": ((2, 4), (1.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.8)),
        "body_inertia": ((2, 3), (0.0, 0.0, 0.0, *INERTIA)),
        "geom_friction": ((2, 3), (0.8, 0.01, 0.001, 1.5, 0.02, 0.002)),
        "geom_size": ((2, 3), (0.1, 0.2, 0.3, 0.05, 0.0, 0.0)),
        "dof_armature": ((8,), (*[0.0] * 6, 0.01, 0.02)),
        "dof_damping": ((8,), (*[0.0] * 6, 0.1, 0.3)),
        "dof_frictionloss": ((8,), (*[0.0] * 6, 0.2, 0.4)),
        "actuator_gainprm": ((2, 10), position * 2),
        "actuator_biasprm": ((2, 10), bias * 2),
        "actuator_forcerange": ((2, 2), (-10.0, 10.0, -30.0, 20.0)),
        "gravity": ((3,), (0.0, 0.0, -9.81)),
    }
    return make_layout(
        joints=joints,
        actuated=joints,
        free_root=True,
        geoms=("robot/trunk", "robot/foot"),
        timestep=DT,
        sensors={"probe": (3, "position")},
        fields={name: FieldLayout(shape, values) for name, (shape, values) in fields.items()},
    )


def fake_model_env(
    events: Events, num_envs: int = 3, *, seed: int = 0, layout: ModelLayout | None = None, **cfg: Any
) -> ManagerBasedRlEnv:
    """Returns an environment on that fake, not reset yet; the fields that the events write are declared."""
    fields = dict.fromkeys(f for term in events.values() for f in declared_writes(term.func))
    backend = FakeBackend(layout or full_layout(), num_envs, declared=Declared(model_fields=tuple(fields)))
    return ManagerBasedRlEnv(base_cfg(events=events, **cfg), backend=backend, seed=seed)


def held(env: ManagerBasedRlEnv, field: str) -> torch.Tensor:
    """Returns what the engine holds of a model field, (N, ...) float64."""
    values = env.state_dict()["backend"][f"field:{field}"]
    assert isinstance(values, torch.Tensor)
    return values


def nominal(env: ManagerBasedRlEnv, field: str) -> torch.Tensor:
    """Returns the model's own values of a field, (...) float64."""
    layout = env.model_layout.fields[field]
    return torch.tensor(layout.nominal, dtype=torch.float64).reshape(layout.shape)


def event(func: Any, mode: Any = "reset", **params: Any) -> EventTermCfg:
    """Returns an event of that function and its parameters."""
    return EventTermCfg(func=func, mode=mode, params=params)


def env_of(
    func: Any, num_envs: int = 3, seed: int = 0, mode: str = "reset", **params: Any
) -> ManagerBasedRlEnv:
    """Returns that fake with one event, `change`, reset once."""
    env = fake_model_env({"change": event(func, mode, **params)}, num_envs, seed=seed)
    env.reset()
    return env


# ---------------------------------------------------------------- the real engine

ROBOT = """
<mujoco><worldbody><body name="base" pos="0 0 1"><freejoint name="root"/>
  <geom name="trunk" type="box" size=".15 .1 .05" mass="2"/>
  <body name="leg" pos=".1 0 -.05"><joint name="hip" axis="0 1 0" damping=".2" armature=".01" frictionloss=".05"/>
    <geom name="thigh" type="capsule" fromto="0 0 0 0 0 -.2" size=".03" mass=".4"/>
    <body name="foot" pos="0 0 -.2"><joint name="knee" axis="0 1 0" damping=".1" armature=".02" frictionloss=".1"/>
      <geom name="toe" size=".04" mass=".1"/></body></body></body>
  <geom name="floor" type="plane" size="20 20 .1" friction=".1"/></worldbody>
<actuator><position name="hip" joint="hip" kp="20" kv=".5" forcerange="-10 10"/>
  <position name="knee" joint="knee" kp="30" kv=".7" forcerange="-20 20"/></actuator></mujoco>"""


def build_robot() -> Any:
    """Returns a new spec of a free trunk on one leg with position actuators."""
    return mujoco.MjSpec.from_string(ROBOT)


def robot_cfg(events: Mapping[str, EventTermCfg], **changes: Any) -> ManagerBasedRlEnvCfg:
    """Returns a config of that robot with the events given."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build_robot)})
    actions = {"target": mdp.JointEffortActionCfg()}  # the control of a position actuator is its target, rad
    return mujoco_cfg(**{"scene": scene, "actions": actions, "events": dict(events)} | changes)
