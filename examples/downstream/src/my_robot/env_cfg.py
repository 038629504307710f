"""Configs of the tasks: 50 Hz, episodes of 10 s."""

from __future__ import annotations

import math
from importlib.resources import files

from unilab_core import SceneEntityCfg
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    mdp,
)
from unisim import EntityCfg, SceneCfg, SimCfg

from my_robot.mdp import lean, pitch, rolled_away, upright
from my_robot.robot import WHEELS, build_ground, build_robot

__all__ = ["balance", "balance_pushed"]

_TRUNK = SceneEntityCfg(body_names=("trunk",))
_WHEELS = SceneEntityCfg(joint_names=WHEELS)


def balance() -> ManagerBasedRlEnvCfg:
    """Returns the task of staying upright near the origin."""
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(
            entities={"ground": EntityCfg(spec=build_ground), "robot": EntityCfg(spec=build_robot)}
        ),
        sim=SimCfg(timestep=0.005),
        decimation=4,
        episode_length_s=10.0,
        num_envs=64,
        observations={"obs": ObservationGroupCfg(terms=_observations())},
        actions={"torque": mdp.JointEffortActionCfg(joint_names=WHEELS)},
        rewards={
            "upright": RewardTermCfg(func=upright, weight=1.0, params={"std": 0.3}),
            "alive": RewardTermCfg(func=mdp.is_alive, weight=1.0),
            "rolling": RewardTermCfg(func=mdp.joint_speed, weight=-0.05, params={"asset_cfg": _WHEELS}),
            "action_rate": RewardTermCfg(func=mdp.action_rate_l2, weight=-0.01),
        },
        terminations={
            "time_out": TerminationTermCfg(func=mdp.time_out),
            "tipped": TerminationTermCfg(
                func=mdp.bad_orientation, params={"limit_angle": math.radians(40.0)}
            ),
            "rolled_away": TerminationTermCfg(func=rolled_away, params={"distance": 2.0}),
        },
        events={
            "load": EventTermCfg(
                func=mdp.randomize_body_mass_and_inertia,
                mode="startup",
                params={"mass_range": (0.8, 1.2), "operation": "scale", "asset_cfg": _TRUNK},
            ),
            "lean": EventTermCfg(func=lean, mode="reset", params={"angle": 0.2}),
            "push": EventTermCfg(
                func=mdp.push_root,
                mode="interval",
                interval_range_s=(2.0, 4.0),
                params={"velocity_range": {"x": (-0.2, 0.2)}},
            ),
        },
    )


def _observations() -> dict[str, ObservationTermCfg]:
    """What the robot can measure; noise in the units of the term, before its scale."""
    return {
        "pitch": ObservationTermCfg(func=pitch, noise=UniformNoiseCfg(n_min=-0.01, n_max=0.01)),
        "turning": ObservationTermCfg(
            func=mdp.base_ang_vel, scale=0.2, noise=UniformNoiseCfg(n_min=-0.05, n_max=0.05)
        ),
        "wheel_speed": ObservationTermCfg(func=mdp.joint_vel, scale=0.1, params={"asset_cfg": _WHEELS}),
        "last_action": ObservationTermCfg(func=mdp.last_action),
    }


def balance_pushed() -> ManagerBasedRlEnvCfg:
    """Returns `balance` with the changes that pushed.yaml lists."""
    source = files("my_robot") / "pushed.yaml"
    return balance().with_yaml(source.read_text(), source=source.name)
