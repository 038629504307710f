"""Commands for the tests: terms that count what happens to them, and a watch over what a call asks the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import mujoco
import torch
from manager_support import DT, Feed, calls, layout_of, zeros
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core.env import TorchEnv
from unilab_managers import ManagerBasedRlEnv
from unilab_managers.managers.command_manager import CommandTerm, CommandTermCfg
from unilab_managers.mdp.commands import UniformVelocityCommandCfg


class CountCfg(CommandTermCfg):
    """Every 0.1 s, and where the sensor's last column is above one half if `on_flag`."""

    resampling_time_range: tuple[float, float] = (0.1, 0.1)
    on_flag: bool = False

    def make(self, env: TorchEnv, name: str) -> CountTerm:
        return CountTerm(self, env, name)


class CountTerm(CommandTerm):
    """Its columns: how often a row was redrawn, the steps it has seen since, and how often it was refreshed.

    It measures the sensor's first column, and the first column of the command.
    """

    metric_names: ClassVar[tuple[str, ...]] = ("shown", "redraws")
    cfg: CountCfg

    def __init__(self, cfg: CountCfg, env: TorchEnv, name: str) -> None:
        super().__init__(cfg, env, name)
        self.values = torch.zeros(env.num_envs, 3)
        self.fails = False

    @property
    def command(self) -> torch.Tensor:
        return self.values

    @property
    def labels(self) -> tuple[str, ...]:
        return ("redraws", "steps", "refreshes")

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        calls.append((self.name, reset_mask.tolist()))
        self.values[:, 0] += reset_mask
        self.values[:, 1].masked_fill_(reset_mask, 0.0)
        if self.fails:
            raise KeyError("no such thing")

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        if env_ids is None:
            assert dt == self._env.step_dt
            self.values[:, 1] += 1.0
        else:
            assert dt == 0.0
            self.values[env_ids, 2] += 1.0

    def _update_metrics(self) -> None:
        self.metric_sums[:, 0] += self._env.scene.sensor("probe")[:, 0]
        self.metric_sums[:, 1] += self.values[:, 0]

    def _resample_condition(self) -> torch.Tensor | None:
        return self._env.scene.sensor("probe")[:, 2] > 0.5 if self.cfg.on_flag else None


class BareCfg(CommandTermCfg):
    """A command of the width given that does nothing at all."""

    resampling_time_range: tuple[float, float] = (0.1, 0.1)
    kind: str = "good"

    def make(self, env: TorchEnv, name: str) -> Bare:
        return Bare(self, env, name)


class Bare(CommandTerm):
    """Draws nothing, measures nothing; wrong in the way that `kind` says."""

    cfg: BareCfg

    def __init__(self, cfg: BareCfg, env: TorchEnv, name: str) -> None:
        super().__init__(cfg, env, name)
        self.values = torch.zeros(env.num_envs, 2)

    @property
    def command(self) -> torch.Tensor:
        n = self._env.num_envs
        return {"flat": torch.zeros(n), "double": self.values.double(), "rows": torch.zeros(n + 1, 2)}.get(
            self.cfg.kind, self.values
        )

    @property
    def labels(self) -> tuple[str, ...]:
        return ("only",) if self.cfg.kind == "labels" else super().labels

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        pass

    def _resample_condition(self) -> torch.Tensor | None:
        return torch.zeros(self._env.num_envs) if self.cfg.kind == "condition" else None


class MotionCfg(CommandTermCfg):
    """A reference motion of frames, one a step, from which rows start again after five seconds."""

    resampling_time_range: tuple[float, float] = (5.0, 5.0)

    def make(self, env: TorchEnv, name: str) -> Motion:
        return Motion(self, env, name)


class Motion(CommandTerm):
    """Its frame counts the steps since a row's last redraw, which puts the joints where the motion starts."""

    def __init__(self, cfg: MotionCfg, env: TorchEnv, name: str) -> None:
        super().__init__(cfg, env, name)
        self.frame = torch.zeros(env.num_envs, 1)

    @property
    def command(self) -> torch.Tensor:
        return self.frame

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        self.frame.masked_fill_(reset_mask[:, None], 0.0)
        rows = reset_mask.nonzero().flatten()
        calls.append(("write", rows.tolist()))
        start = torch.full((rows.numel(), len(self.entity.joint_names)), 0.25)
        self.entity.data.write_joint_state(start, torch.zeros_like(start), rows)

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        rows = slice(None) if env_ids is None else env_ids
        self.frame[rows] += dt / DT


def velocity_cfg(**changes: Any) -> UniformVelocityCommandCfg:
    """Returns a velocity command whose every range is one point, (0.5, -0.25, 0.125), kept for 0.1 s."""
    fields: dict[str, Any] = {
        "resampling_time_range": (0.1, 0.1),
        "lin_vel_x": (0.5, 0.5),
        "lin_vel_y": (-0.25, -0.25),
        "ang_vel_z": (0.125, 0.125),
    }
    return UniformVelocityCommandCfg(**(fields | changes))


def floating(**options: Any) -> dict[str, Any]:
    """Returns options of `fake_env` for a robot with a free root and one joint."""
    return {"layout": layout_of("leg", free_root=True), **options}


def pose(yaw: float = 0.0, x: float = 0.0) -> list[float]:
    """Returns qpos of a floating robot, (8,)."""
    half = torch.tensor(yaw / 2.0, dtype=torch.float64)
    return [x, 0.0, 0.0, float(half.cos()), 0.0, 0.0, float(half.sin()), 0.0]


def place(feed: Feed, qpos: Sequence[Sequence[float]], qvel: Sequence[Sequence[float]] | None = None) -> None:
    """Sets what the state becomes in every later step."""
    feed.now["qpos"] = torch.tensor(qpos, dtype=torch.float64)
    if qvel is not None:
        feed.now["qvel"] = torch.tensor(qvel, dtype=torch.float64)


def steps(env: ManagerBasedRlEnv, count: int) -> Any:
    """Steps with actions of zero; returns the last state."""
    for _ in range(count):
        state = env.step(zeros(env))
    return state


def same(a: Any, b: Any) -> bool:
    """Whether two states hold equal values."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class Asked(TorchDispatchMode):
    """Counts operators, and by name those that make the host wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        self.operators.append(name)
        by_mask = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if by_mask or name in ("_local_scalar_dense", "nonzero", "masked_select", "unique"):
            self.waits[name] += 1
        return func(*args, **(kwargs or {}))


class _Reads(TorchFunctionMode):
    """Counts reads that need no operator where the tensor is on the host."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu):
            self.waits[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def asked(call: Callable[[], object]) -> Asked:
    """Returns which operators a call used."""
    seen = Asked()
    with _Reads(seen.waits), seen:
        call()
    return seen


def episodes(log: Mapping[str, torch.Tensor], key: str) -> list[float]:
    """Returns sum and count of a log entry."""
    return [float(log[f"{key}/sum"]), float(log[f"{key}/count"])]


def redrawn(name: str) -> list[list[bool]]:
    """Returns the masks with which a counting command was redrawn."""
    return [call[1] for call in calls if call[0] == name]


def build_hand() -> Any:
    """Returns a new `mujoco.MjSpec`: a free trunk with a hand on a hinge, 0.3 m ahead."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    trunk = spec.worldbody.add_body(name="trunk", pos=[0, 0, 1])
    trunk.add_freejoint(name="root")
    trunk.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.2, 0.1], pos=[0.02, 0, 0], mass=2.0)
    hand = trunk.add_body(name="hand", pos=[0.3, 0, 0])
    hand.add_joint(name="wrist", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1])
    hand.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.05, 0, 0], mass=0.1, contype=0, conaffinity=0)
    spec.add_actuator(name="wrist", target="wrist", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    return spec
