"""A small task in which `unilab check` finds nothing, and how to put more terms into it."""

from __future__ import annotations

from typing import Any

import torch
from manager_support import build_slider, group

from unilab_core.writes import writes
from unilab_managers import (
    CommandTerm,
    CommandTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    mdp,
)
from unilab_managers.mdp.commands.ranges import UniformRanges
from unilab_managers.testing import CheckReport
from unisim import EntityCfg, SceneCfg, SimCfg

OFFSETS = {"position_range": (-0.1, 0.1), "velocity_range": (-0.2, 0.2)}


def sound() -> ManagerBasedRlEnvCfg:
    """Returns a task in which there is nothing to find: 50 Hz, 50-step episodes, every kind of term."""
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_slider, joint_pos={"hinge": 2.0})}),
        sim=SimCfg(timestep=0.01, num_threads=1),
        decimation=2,
        episode_length_s=1.0,
        observations={
            "obs": group(
                position=ObservationTermCfg(
                    func=mdp.joint_pos_rel, noise=UniformNoiseCfg(n_min=-0.01, n_max=0.01), history_length=2
                ),
                velocity=ObservationTermCfg(func=mdp.joint_vel, delay_max_lag=2),
                action=ObservationTermCfg(func=mdp.last_action),
                place=ObservationTermCfg(func=mdp.generated_commands, params={"command_name": "place"}),
            )
        },
        actions={"effort": mdp.JointEffortActionCfg()},
        commands={"place": PlaceCfg(place=(-0.5, 0.5), resampling_time_range=(0.3, 0.5))},
        rewards={"near": RewardTermCfg(func=near, weight=1.0)},
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out),
            "far": TerminationTermCfg(func=far),
        },
        events={
            "place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=OFFSETS),
            "mass": EventTermCfg(
                func=mdp.randomize_body_mass_and_inertia, mode="startup", params={"mass_range": (0.8, 1.2)}
            ),
            "damping": EventTermCfg(func=damping, mode="reset"),
            "kick": EventTermCfg(func=kick, mode="interval", interval_range_s=(0.2, 0.4)),
        },
    )


def with_terms(kind: str, *, cfg: ManagerBasedRlEnvCfg | None = None, **terms: Any) -> ManagerBasedRlEnvCfg:
    """Returns that task, or another, with more terms of a kind; observations join its group."""
    plain = cfg or sound()
    if kind == "observations":
        shown = plain.observations["obs"]
        shown = shown.model_copy(update={"terms": {**shown.terms, **terms}})
        return plain.model_copy(update={"observations": {"obs": shown}})
    return plain.model_copy(update={kind: {**getattr(plain, kind), **terms}})


def found_in(report: CheckReport) -> set[tuple[str, str, str]]:
    """Returns check, manager and term of each finding."""
    return {(finding.check, finding.manager, finding.term) for finding in report.findings}


def observation(func: Any) -> ObservationTermCfg:
    """Returns an observation of that function or class."""
    return ObservationTermCfg(func=func)


def reward(func: Any, weight: float = 0.1) -> RewardTermCfg:
    """Returns a reward of that function or class."""
    return RewardTermCfg(func=func, weight=weight)


def event(func: Any, mode: Any = "reset", **settings: Any) -> EventTermCfg:
    """Returns an event of that function or class."""
    return EventTermCfg(func=func, mode=mode, **settings)


# ---------------------------------------------------------------- terms without a fault


class PlaceCfg(CommandTermCfg):
    """A place on the rail, and one beside it that nobody draws."""

    place: tuple[float, float]

    def make(self, env: Any, name: str) -> Place:
        return Place(self, env, name)


class Place(CommandTerm):
    """Holds (N, 1) m."""

    cfg: PlaceCfg

    def __init__(self, cfg: PlaceCfg, env: Any, name: str) -> None:
        super().__init__(cfg, env, name)
        self.ranges = UniformRanges({"place": cfg.place}, env.device, self.label)
        self._command = torch.zeros(env.num_envs, 1)

    @property
    def command(self) -> torch.Tensor:
        return self._command

    @property
    def labels(self) -> tuple[str, ...]:
        return ("place",)

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        drawn = self.ranges.draw(self._env.rng, self._env.num_envs)
        self._command.copy_(torch.where(reset_mask[:, None], drawn, self._command))


def near(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns (N,): 1 where the slider is where it should be."""
    place = env.command_manager.get_command("place")[:, 0]
    return torch.exp(-((place - env.scene["robot"].data.joint_pos[:, 0]) ** 2))


def far(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns (N,) bool: the slider is at one of its ends."""
    return env.scene["robot"].data.joint_pos[:, 0].abs() > 0.49


@writes("dof_damping")
def damping(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Draws the damping of both joints."""
    data = env.scene["robot"].data
    data.write_model("dof_damping", env.rng.uniform(0.0, 1.0, (env_ids.numel(), 2)), env_ids)


def kick(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Adds to the velocities of rows."""
    data = env.scene["robot"].data
    speed = data.joint_vel[env_ids] + env.rng.uniform(-0.1, 0.1, (env_ids.numel(), 2))
    data.write_joint_state(data.joint_pos[env_ids], speed, env_ids)


class AirTime:
    """A class term that does as it should: its own sum, advanced once per step, cleared for the rows of a reset."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.total = torch.zeros(env.num_envs)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.total += env.scene["robot"].data.joint_pos[:, 0].abs()
        return self.total

    def reset(self, env_ids: torch.Tensor) -> None:
        self.total[env_ids] = 0.0


class Filtered:
    """A class observation that does as it should: read in `__call__`, advanced in `update`."""

    __unilab_columns__ = staticmethod(mdp.joint_columns)
    __unilab_unit__ = "rad/s"

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.mean = torch.zeros(env.num_envs, 2)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return self.mean

    def update(self, env: ManagerBasedRlEnv) -> None:
        self.mean.lerp_(env.scene["robot"].data.joint_vel, 0.5)

    def reset(self, env_ids: torch.Tensor) -> None:
        self.mean[env_ids] = 0.0
