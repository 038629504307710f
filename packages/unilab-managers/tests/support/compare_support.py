"""Fakes that stand for physics backends, and the task that `unilab compare` is tested on.

Two joints of unit gain at 50 Hz: an action a adds 0.02 a to a velocity v, and the position then moves by 0.02 v.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import torch
from manager_support import DT, base_cfg, group, layout_of

from unilab_core import TorchEnv, TorchEnvCfg
from unilab_managers import (
    EventTermCfg,
    GaussianNoiseCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unisim import SimCfg, TensorExecution, make_backend
from unisim.testing import FakeBackend, Fault

PUSH = 0.01
"""What the fake `pushed` adds to every velocity in each step."""


def host(scene: Any, sim: Any, *, num_envs: int, device: str, **_: Any) -> FakeBackend:
    """A host bridge."""
    return FakeBackend(layout_of(), num_envs, device=device)


def resident(scene: Any, sim: Any, *, num_envs: int, **_: Any) -> FakeBackend:
    """The same physics in float32, as live views."""
    return FakeBackend(layout_of(), num_envs, execution=TensorExecution.DEVICE_RESIDENT)


def pushed(scene: Any, sim: Any, *, num_envs: int, **_: Any) -> FakeBackend:
    """Adds `PUSH` to every velocity in each step."""

    def push(step: int, state: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return {"qvel": state["qvel"] + PUSH}

    return FakeBackend(layout_of(), num_envs, script=push)


def failing(scene: Any, sim: Any, *, num_envs: int, **_: Any) -> FakeBackend:
    """Gives NaN for row 1 in the step after three."""
    return FakeBackend(layout_of(), num_envs, faults=(Fault("nan", at=3, row=1),))


def without_wrenches(scene: Any, sim: Any, **_: Any) -> FakeBackend:
    """Can't be made."""
    from unisim import CapabilityError

    raise CapabilityError("NoWrenches: wrenches are not available")


_BACKENDS = {one.__name__: one for one in (host, resident, pushed, failing, without_wrenches)}


def entry_points(*, group: str) -> list[EntryPoint]:
    """Returns the fakes, as if they were installed."""
    return [EntryPoint(name, f"{__name__}:{name}", group) for name in _BACKENDS]


def cfg(**changes: Any) -> ManagerBasedRlEnvCfg:
    """Returns the task `pair`: noisy velocities, random starts, episodes of 10 steps."""
    fields: dict[str, Any] = {
        "num_envs": 3,
        "episode_length_s": 10 * DT,
        "observations": {
            "obs": group(
                position=ObservationTermCfg(func=mdp.joint_pos),
                velocity=ObservationTermCfg(func=mdp.joint_vel, noise=GaussianNoiseCfg(std=0.1)),
            )
        },
        "rewards": {"speed": RewardTermCfg(func=forward_speed, weight=50.0)},  # 50 x dt = 1
        "terminations": {"time_out": TerminationTermCfg(func=mdp.time_out)},
        "events": {
            "place": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={"position_range": (-0.5, 0.5), "velocity_range": (0.0, 0.0)},
            )
        },
    }
    return base_cfg(**(fields | changes))


def fast() -> ManagerBasedRlEnvCfg:
    """Returns the task `pair` whose episodes also end where the slider is faster than 0.035 m/s."""
    return cfg(
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out),
            "fast": TerminationTermCfg(func=faster_than, params={"limit": 0.035}),
        }
    )


def drawing() -> ManagerBasedRlEnvCfg:
    """Returns the task `pair` with a reward that draws a number if a slider is faster than 0.015 m/s."""
    return cfg(rewards={"luck": RewardTermCfg(func=luck, weight=1.0)})


def forward_speed(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the slider's velocity, (N,)."""
    return env.scene["robot"].data.joint_vel[:, 0].clone()


def faster_than(env: ManagerBasedRlEnv, limit: float) -> torch.Tensor:
    """Returns where the slider is faster than `limit`, (N,) bool."""
    return env.scene["robot"].data.joint_vel[:, 0] > limit


def luck(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns 0, (N,), and draws a number where it should not."""
    if bool(faster_than(env, 0.015).any()):
        env.rng.uniform(0.0, 1.0, 1)
    return torch.zeros(env.num_envs)


class PlainCfg(TorchEnvCfg):
    """Config of an environment without managers."""

    sim: SimCfg = SimCfg(timestep=DT)
    decimation: int = 1
    episode_length_s: float = 10 * DT

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> PlainEnv:
        """Returns the environment."""
        made = make_backend(backend, self.scene, self.sim, num_envs=self.num_envs, device=device)
        return PlainEnv(made, self, device=device, seed=seed, autoreset=autoreset)


class PlainEnv(TorchEnv):
    """Shows and pays the velocity of the slider; actions are controls."""

    num_actions = 2
    obs_groups_spec = {"obs": 1}

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(2,) -1 and (2,) 1."""
        return -torch.ones(2), torch.ones(2)

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        return actions.clone()

    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(self.num_envs, dtype=torch.bool), self.timed_out

    def _rewards(self) -> torch.Tensor:
        return self.scene["robot"].data.joint_vel[:, 0].clone()

    def _observe(self, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
        velocity = self.scene["robot"].data.joint_vel[:, :1]
        return {"obs": velocity.clone() if ids is None else velocity[ids]}

    def _stage_reset(self, ids: torch.Tensor) -> None:
        pass
