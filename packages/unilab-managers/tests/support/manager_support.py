"""Terms, configs and environments for the tests: exact values on a fake backend, and a small MuJoCo model.

A fake has a sensor `probe` of three columns; what it shows is put into the `Feed` of the environment. Terms that note
how they were called append to `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mujoco
import torch

from unilab_core import SceneEntityCfg
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unisim import EntityCfg, ModelLayout, SceneCfg, SimCfg
from unisim.testing import FakeBackend, make_layout

MakeEnv = Callable[..., ManagerBasedRlEnv]
Run = Callable[..., tuple[int, str, str]]
"""Runs the command line: exit code, output and errors."""
calls: list[Any] = []
DT = 0.02
WIDTH = 3


class Feed:
    """The script of a fake: copies `now` into the state after every substep."""

    def __init__(self) -> None:
        self.now: dict[str, torch.Tensor] = {}

    def __call__(self, step: int, state: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self.now

    def probe(self, rows: Sequence[Sequence[float]]) -> None:
        """Sets what the sensor shows from the next step on, (N, 3)."""
        self.now["sensor:probe"] = torch.tensor(rows, dtype=torch.float64)


def layout_of(*joints: str, **options: Any) -> ModelLayout:
    """Returns a layout with the sensor, the joints actuated in the order given unless `actuated` says otherwise."""
    names = [f"robot/{joint}" for joint in joints or ("slider", "hinge")]
    defaults: dict[str, Any] = {"actuated": names, "sensors": {"probe": (WIDTH, "position")}, "timestep": DT}
    return make_layout(joints=names, **(defaults | options))


def with_default(layout: ModelLayout, *qpos: float) -> ModelLayout:
    """Returns the layout with another default state."""
    return replace(layout, default_qpos=qpos)


def base_cfg(**changes: Any) -> ManagerBasedRlEnvCfg:
    """Returns a config that shows the sensor, pays 1 per second and never ends but by its time limit of 100 s."""
    fields: dict[str, Any] = {
        "sim": SimCfg(timestep=DT),
        "episode_length_s": 100.0,
        "observations": {"obs": group(probe=ObservationTermCfg(func=probe))},
        "actions": {"effort": mdp.JointEffortActionCfg()},
        "rewards": {"one": RewardTermCfg(func=ones, weight=1.0)},
        "terminations": {},
    }
    return ManagerBasedRlEnvCfg(**(fields | changes))


def group(*, enable_corruption: bool = True, **terms: ObservationTermCfg) -> ObservationGroupCfg:
    """Returns an observation group of the terms in the order given."""
    return ObservationGroupCfg(terms=terms, enable_corruption=enable_corruption)


def fake_env(
    num_envs: int = 3,
    *,
    feed: Feed | None = None,
    layout: ModelLayout | None = None,
    seed: int = 0,
    autoreset: bool = True,
    reset: bool = True,
    **cfg: Any,
) -> ManagerBasedRlEnv:
    """Returns an environment on a fake backend, reset unless `reset` is false; `cfg` as in `base_cfg`."""
    settings = base_cfg(**cfg)
    layout = replace(layout or layout_of(), timestep=settings.sim.timestep)
    backend = FakeBackend(layout, num_envs, script=feed)
    env = ManagerBasedRlEnv(settings, backend=backend, seed=seed, autoreset=autoreset)
    if reset:
        env.reset()
    return env


def zeros(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns actions of zero."""
    return torch.zeros(env.num_envs, env.num_actions)


def ids(*rows: int) -> torch.Tensor:
    """Returns row ids."""
    return torch.tensor(rows, dtype=torch.int64)


# ---------------------------------------------------------------- terms


def probe(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the sensor, (N, 3)."""
    return env.scene.sensor("probe")


def column(env: ManagerBasedRlEnv, index: int) -> torch.Tensor:
    """Returns one column of the sensor, (N,)."""
    return env.scene.sensor("probe")[:, index]


def flag(env: ManagerBasedRlEnv, index: int = 2) -> torch.Tensor:
    """Returns where a column of the sensor is above one half, (N,) bool."""
    return env.scene.sensor("probe")[:, index] > 0.5


def ones(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 1 for every row, (N,)."""
    return torch.ones(env.num_envs)


def noted_ones(env: ManagerBasedRlEnv, tag: str = "ones") -> torch.Tensor:
    """Returns 1 for every row, (N,), and notes the call."""
    calls.append(tag)
    return torch.ones(env.num_envs)


def returns(env: ManagerBasedRlEnv, kind: str) -> Any:
    """Returns one of the things that a term must not return."""
    n = env.num_envs
    return {
        "column": torch.ones(n, 1),
        "row": torch.ones(1, n),
        "scalar": torch.ones(()),
        "number": 0,
        "none": None,
        "float": torch.zeros(n),
        "double": torch.zeros(n, dtype=torch.float64),
        "int": torch.zeros(n, dtype=torch.int64),
        "wrong_n": torch.zeros(n - 1, 2),
        "three_d": torch.zeros(n, 1, 1),
        "no_columns": torch.zeros(n, 0),
        "bool_columns": torch.zeros(n, 2, dtype=torch.bool),
    }[kind]


def fails(env: ManagerBasedRlEnv, *leading: torch.Tensor) -> torch.Tensor:
    """Raises."""
    raise KeyError("no such thing")


def noted_event(env: ManagerBasedRlEnv, env_ids: torch.Tensor, tag: str = "event") -> None:
    """Notes the rows it was called with."""
    calls.append((tag, env_ids.dtype, env_ids.ndim, env_ids.tolist()))


class NotedTerm:
    """A class term for rewards that notes its calls and resets."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.num_envs = env.num_envs

    def __call__(
        self, env: ManagerBasedRlEnv, value: float, entity: SceneEntityCfg | None = None
    ) -> torch.Tensor:
        calls.append(("call", value))
        return torch.full((self.num_envs,), value)

    def reset(self, env_ids: torch.Tensor) -> None:
        calls.append(("reset", env_ids.tolist()))


class WithoutCall:
    """A class that forgot `__call__`."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        pass


# ---------------------------------------------------------------- a real model


def build_slider(limit: float = 0.5) -> Any:
    """Returns a new `mujoco.MjSpec`: joint `slider` limited to +-limit m, joint `hinge` unlimited, a motor for each.

    The motor `slider` is limited to +-1 and pushes with 10 N; the motor `hinge` is unlimited.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    cart = spec.worldbody.add_body(name="cart")
    cart.add_joint(name="slider", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0], range=[-limit, limit])
    cart.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.1, 0.1], mass=1.0, contype=0, conaffinity=0)
    arm = cart.add_body(name="arm")
    arm.add_joint(name="hinge", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0])
    arm.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0, 0, 0, 0, 0, 0.5], size=[0.02, 0, 0], mass=0.1,
        contype=0, conaffinity=0,
    )  # fmt: skip
    for joint in ("slider", "hinge"):
        motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        if joint == "slider":
            motor.gear[0] = 10.0
            motor.ctrlrange, motor.ctrllimited = [-1, 1], True
    return spec


def mujoco_cfg(**changes: Any) -> ManagerBasedRlEnvCfg:
    """Returns a config of the real model with every kind of term: 50 Hz, five-step episodes, four rows."""
    robot = EntityCfg(spec=build_slider, joint_pos={"hinge": 2.0})
    fields: dict[str, Any] = {
        "scene": SceneCfg(entities={"robot": robot}),
        "sim": SimCfg(timestep=0.01, num_threads=1),
        "decimation": 2,
        "episode_length_s": 0.1,
        "num_envs": 4,
        "observations": {
            "obs": group(
                position=ObservationTermCfg(func=mdp.joint_pos_rel, clip=(-5.0, 5.0), scale=(2.0, 0.5)),
                velocity=ObservationTermCfg(func=mdp.joint_vel),
                action=ObservationTermCfg(func=mdp.last_action),
            ),
        },
        "actions": {"effort": mdp.JointEffortActionCfg(scale={"slider": 0.5}, clip=(-1.0, 1.0))},
        "rewards": {"one": RewardTermCfg(func=ones, weight=1.0)},
        "terminations": {"time_out": TerminationTermCfg(func=mdp.time_out)},
        "events": {"place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=OFFSETS)},
    }
    return ManagerBasedRlEnvCfg(**(fields | changes))


OFFSETS = {"position_range": (-0.1, 0.1), "velocity_range": (-0.2, 0.2)}
