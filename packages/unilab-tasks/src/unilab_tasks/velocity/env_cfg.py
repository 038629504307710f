"""Environment configs of the velocity tasks: 50 Hz, 20 s episodes, commands in the robot's own frame."""

from __future__ import annotations

import math
from itertools import product

from unilab_core import SceneEntityCfg
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
)
from unilab_managers.mdp import events, observations, randomization, rewards, terminations
from unilab_managers.mdp.actions import JointPositionActionCfg
from unilab_managers.mdp.commands import GaitClockCfg, UniformVelocityCommandCfg
from unilab_managers.mdp.observations_feet import foot_contact, foot_height
from unilab_managers.mdp.rewards_gait import feet_gait
from unilab_tasks.robots.ground import build_ground
from unilab_tasks.robots.quad12 import FEET, LEGS, quad12
from unilab_tasks.robots.quad12_tables import GO1_LIKE
from unisim import ContactSensorCfg, EntityCfg, SceneCfg, SimCfg

__all__ = ["evaluation", "velocity_flat_quadruped"]

_TWIST = {"command_name": "twist"}
_FEET = SceneEntityCfg(site_names=FEET, preserve_order=True)
_FOOT_GEOMS = SceneEntityCfg(geom_names=FEET)
_TRUNK = SceneEntityCfg(body_names=("trunk",))
_CONTACTS = tuple(f"{leg}_contact" for leg in LEGS)
_FOOT_RADIUS = GO1_LIKE.foot_radius
_GRID = tuple((vx, 0.0, wz) for vx, wz in product((-0.5, 0.0, 0.5, 1.0), (-0.5, 0.0, 0.5)))
"""Commands of an evaluation: vx m/s, vy m/s, wz rad/s."""


def velocity_flat_quadruped() -> ManagerBasedRlEnvCfg:
    """Returns the task of walking on flat ground with `quad12`."""
    actor = _observations()
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(
            entities={"ground": EntityCfg(spec=build_ground), "robot": quad12()},
            sensors=tuple(
                ContactSensorCfg(name=sensor, of="geom", target=f"robot/{foot}", data=("found",))
                for sensor, foot in zip(_CONTACTS, FEET, strict=True)
            ),
        ),
        sim=SimCfg(timestep=0.005),
        decimation=4,
        episode_length_s=20.0,
        num_envs=256,
        observations={
            "obs": ObservationGroupCfg(terms=actor),
            "critic": ObservationGroupCfg(terms={**actor, **_privileged()}, enable_corruption=False),
        },
        actions={"joint_pos": JointPositionActionCfg(scale=0.5)},
        commands={
            "twist": UniformVelocityCommandCfg(
                lin_vel_x=(-0.5, 1.0),
                lin_vel_y=(-0.4, 0.4),
                ang_vel_z=(-0.7, 0.7),
                rel_standing_envs=0.1,
                resampling_time_range=(3.0, 7.0),
            ),
            "gait": GaitClockCfg(velocity_command="twist", frequency_hz=2.0),
        },
        rewards=_rewards(),
        # Falling early must never pay: without the floor, penalties make a short episode the best one.
        reward_floor=0.0,
        terminations={
            "time_out": TerminationTermCfg(func=terminations.time_out),
            "tilted": TerminationTermCfg(
                func=terminations.bad_orientation, params={"limit_angle": math.radians(60.0)}
            ),
            "low": TerminationTermCfg(
                func=terminations.root_height_below_minimum, params={"minimum_height": 0.12}
            ),
        },
        events=_events(),
    )


def evaluation(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Returns the task as it is measured: a fixed grid of commands, 10 s episodes, no noise, no pushes, one model.

    Tracking errors leave out the first second, in which the robot gets under way.
    """
    chance = ("foot_friction", "trunk_mass", "push")
    return cfg.model_copy(
        update={
            "episode_length_s": 10.0,
            "observations": {
                name: group.model_copy(update={"enable_corruption": False})
                for name, group in cfg.observations.items()
            },
            "commands": {
                **cfg.commands,
                "twist": cfg.commands["twist"].model_copy(update={"fixed": _GRID, "metrics_start_s": 1.0}),
            },
            "events": {name: term for name, term in cfg.events.items() if name not in chance},
        }
    )


def _noise(limit: float) -> UniformNoiseCfg:
    return UniformNoiseCfg(n_min=-limit, n_max=limit)


def _observations() -> dict[str, ObservationTermCfg]:
    """What the robot can measure, and what it is asked for; noise in the units of the term, before its scale."""
    return {
        "base_ang_vel": ObservationTermCfg(func=observations.base_ang_vel, noise=_noise(0.2)),
        "projected_gravity": ObservationTermCfg(func=observations.projected_gravity, noise=_noise(0.05)),
        "command": ObservationTermCfg(func=observations.generated_commands, params=_TWIST),
        "joint_pos": ObservationTermCfg(func=observations.joint_pos_rel, noise=_noise(0.01)),
        "joint_vel": ObservationTermCfg(func=observations.joint_vel_rel, noise=_noise(1.5), scale=0.05),
        "last_action": ObservationTermCfg(func=observations.last_action),
        "gait_clock": ObservationTermCfg(
            func=observations.generated_commands, params={"command_name": "gait"}
        ),
        "base_lin_vel": ObservationTermCfg(func=observations.base_lin_vel, noise=_noise(0.1)),
    }


def _privileged() -> dict[str, ObservationTermCfg]:
    """What only the simulation knows."""
    return {
        "foot_contacts": ObservationTermCfg(func=foot_contact, params={"sensor_names": _CONTACTS}),
        "foot_clearances": ObservationTermCfg(
            func=foot_height, params={"asset_cfg": _FEET, "radius": _FOOT_RADIUS}
        ),
    }


def _rewards() -> dict[str, RewardTermCfg]:
    return {
        "track_lin_vel": RewardTermCfg(
            func=rewards.track_lin_vel_xy_exp, weight=1.5, params={**_TWIST, "std": 0.5}
        ),
        "track_ang_vel": RewardTermCfg(
            func=rewards.track_ang_vel_z_exp, weight=1.0, params={**_TWIST, "std": 0.5}
        ),
        "gait": RewardTermCfg(
            func=feet_gait,
            weight=2.0,
            params={
                "clock": "gait",
                "offsets": (0.0, 0.5, 0.5, 0.0),
                "asset_cfg": _FEET,
                "sensor_names": _CONTACTS,
                "radius": _FOOT_RADIUS,
                "swing_height": 0.07,
                "height_std": 0.035,
                "slip_std": math.sqrt(0.1),
            },
        ),
        "posture": RewardTermCfg(
            func=rewards.joint_posture_exp,
            weight=0.5,
            params={"weights": {".*_hip": 1.0, ".*_thigh": 0.5, ".*_calf": 0.1}},
        ),
        "upright": RewardTermCfg(func=rewards.flat_orientation_l2, weight=-2.0),
        "lin_vel_z": RewardTermCfg(func=rewards.lin_vel_z_l2, weight=-0.5),
        "ang_vel_xy": RewardTermCfg(func=rewards.ang_vel_xy_l2, weight=-0.05),
        "action_rate": RewardTermCfg(func=rewards.action_rate_l2, weight=-0.01),
        "joint_limits": RewardTermCfg(
            func=rewards.joint_pos_limits, weight=-1.0, params={"soft_factor": 0.95}
        ),
    }


def _events() -> dict[str, EventTermCfg]:
    still = {axis: (-0.2, 0.2) for axis in ("x", "y", "z", "roll", "pitch", "yaw")}
    return {
        "trunk_mass": EventTermCfg(
            func=randomization.randomize_body_mass_and_inertia,
            mode="startup",
            params={"mass_range": (0.9, 1.1), "operation": "scale", "asset_cfg": _TRUNK},
        ),
        "foot_friction": EventTermCfg(
            func=randomization.randomize_geom_friction,
            mode="reset",
            params={"friction_range": (0.4, 1.2), "asset_cfg": _FOOT_GEOMS},
        ),
        "place_robot": EventTermCfg(
            func=events.reset_root_state_uniform,
            mode="reset",
            params={"pose_range": {"yaw": (-math.pi, math.pi)}, "velocity_range": still},
        ),
        "place_joints": EventTermCfg(
            func=events.reset_joints_by_offset,
            mode="reset",
            params={"position_range": (-0.1, 0.1), "velocity_range": (-0.2, 0.2)},
        ),
        "push": EventTermCfg(
            func=events.push_root,
            mode="interval",
            interval_range_s=(3.0, 7.0),
            params={"velocity_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5)}},
        ),
    }
