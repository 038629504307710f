"""The scenes in which every term can be tried, and values for what terms ask for by name.

Nothing here names a term. A parameter without a default that is of a new name and kind gets its values in `NAMED` or
`TYPED`; of several the first is taken with which the environment can be built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unilab_core import SceneEntityCfg
from unilab_managers import (
    CommandTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unisim import BuiltinSensorCfg, ContactSensorCfg, EntityCfg, SceneCfg, SimCfg
from unisim.scene import ContactData

__all__ = ["ACTUATORS", "BESIDE", "NAMED", "TYPED", "scene_cfg"]

ACTUATORS = {
    "position": '<position name="{0}" joint="{0}" kp="20" kv="1" ctrlrange="-1 1"/>',
    "velocity": '<velocity name="{0}" joint="{0}" kv="1" ctrlrange="-9 9"/>',
    "motor": '<motor name="{0}" joint="{0}" ctrlrange="-9 9"/>',
}
"""Kinds of actuators, as MJCF; actions are particular about what they drive."""

_LEG = """
<body name="{0}_leg" pos="0 {1} 0">
  <joint name="{0}_hip" axis="0 1 0" range="-1 1" damping=".3" armature=".02" frictionloss=".1"/>
  <geom name="{0}_leg" type="capsule" fromto="0 0 0 0 0 -.22" size=".025" mass=".5"/>
  <geom name="{0}_foot" type="sphere" pos="0 0 -.22" size=".04" mass=".1"/>
  <site name="{0}_foot" pos="0 0 -.22"/>
</body>
"""
_BIPED = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="trunk" pos="0 0 .4">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".12 .09 .06" mass="4"/>
      <site name="imu"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{actuators}</actuator>
</mujoco>
"""
_SIDES = {"left": 0.1, "right": -0.1}
_ALL_DATA: tuple[ContactData, ...] = ("found", "force", "torque", "dist", "pos", "normal", "tangent")


def biped(actuator: str) -> Any:
    """Returns a new `mujoco.MjSpec`: a trunk that floats on two driven legs."""
    import mujoco

    legs = "".join(_LEG.format(side, offset) for side, offset in _SIDES.items())
    driven = "".join(ACTUATORS[actuator].format(f"{side}_hip") for side in _SIDES)
    return mujoco.MjSpec.from_string(_BIPED.format(legs=legs, actuators=driven))


# ---------------------------------------------------------------- what a term finds beside itself


class Quiet(mdp.UniformVelocityCommand):
    """A velocity command that reads nothing, so that reads are those of the term that is tried."""

    def _update_metrics(self) -> None:
        """Measures nothing."""


class QuietCfg(mdp.UniformVelocityCommandCfg):
    """Makes it."""

    def make(self, env: Any, name: str) -> Quiet:
        """Returns the term."""
        return Quiet(self, env, name)


def scaled_ones(env: ManagerBasedRlEnv, factor: float = 1.0) -> torch.Tensor:
    """Returns `factor`, (N,): a reward that a curriculum may change."""
    return torch.full((env.num_envs,), factor, device=env.device)


def below(env: ManagerBasedRlEnv, factor: float = 1.0) -> torch.Tensor:
    """Returns False for every row, (N,): a termination that a curriculum may change."""
    return torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)


def no_event(env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float = 1.0) -> None:
    """Does nothing: an event that a curriculum may change."""


def one_column(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns zeros, (N, 1)."""
    return torch.zeros(env.num_envs, 1, device=env.device)


def scene_cfg(actuator: str, substeps: bool, commands: Mapping[str, CommandTermCfg]) -> ManagerBasedRlEnvCfg:
    """Returns a task of two rows with one reward, termination, event and observation that read nothing.

    Args:
        actuator: What drives the joints, a key of `ACTUATORS`.
        substeps: Whether the sensors keep their values of every substep.
        commands: Those that there are beside `velocity`.
    """
    contacts = [
        ContactSensorCfg(
            name=f"{side}_foot",
            of="geom",
            target=f"robot/{side}_foot",
            data=_ALL_DATA,
            reduce="maxforce",
            substeps=substeps,
        )
        for side in _SIDES
    ]
    velocity = QuietCfg(
        resampling_time_range=(5.0, 5.0), lin_vel_x=(0.5, 1.0), lin_vel_y=(0.0, 0.0), ang_vel_z=(0.0, 0.0)
    )
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(
            entities={
                "robot": EntityCfg(spec=biped, params={"actuator": actuator}),
            },
            sensors=(*contacts, BuiltinSensorCfg(name="gyro", kind="gyro", target="robot/imu")),
        ),
        sim=SimCfg(timestep=0.005, num_threads=1),
        decimation=2,
        num_envs=2,
        observations={"obs": ObservationGroupCfg(terms={"zero": ObservationTermCfg(func=one_column)})},
        actions={"other": mdp.JointEffortActionCfg()},
        commands={"velocity": velocity, **commands},
        rewards={"other": RewardTermCfg(func=scaled_ones, weight=1.0)},
        terminations={"other": TerminationTermCfg(func=below)},
        events={"other": EventTermCfg(func=no_event, mode="reset")},
    )


BESIDE: tuple[Mapping[str, CommandTermCfg], ...] = (
    {},
    {"clock": mdp.GaitClockCfg(velocity_command="velocity", frequency_hz=2.0)},
    {
        "pose": mdp.UniformPoseCommandCfg(
            resampling_time_range=(5.0, 5.0),
            body_name="trunk",
            pos_x=(0.0, 1.0),
            pos_y=(0.0, 1.0),
            pos_z=(0.0, 1.0),
        )
    },
)
"""Commands that some terms need beside them, those with little first."""

# ---------------------------------------------------------------- what terms ask for

_FEET = tuple(f"{side}_foot" for side in _SIDES)
NAMED: Mapping[str, tuple[Any, ...]] = {
    "angle_range": ({"roll": (0.0, 0.1)},),
    "asset_cfg": (
        SceneEntityCfg(site_names=_FEET),
        SceneEntityCfg(body_names=("trunk",)),
        SceneEntityCfg(joint_names=(".*",)),
    ),
    "body_name": ("trunk",),
    "clock": ("clock",),
    "command_name": ("velocity", "pose"),
    "event_name": ("other",),
    "folder": ("episodes",),
    "limits": ({"lin_vel_x": (-2.0, 2.0)},),
    "offsets": ((0.0, 0.5),),
    "reward_name": ("other",),
    "sensor_names": (_FEET,),
    "stages": (
        ({"step": 0, "weight": 2.0},),
        ({"step": 0, "params": {"factor": 2.0}},),
        ({"step": 0, "lin_vel_x": (0.0, 1.0)},),
    ),
    "term": ("other",),
    "term_names": (("other",),),
    "termination_name": ("other",),
    "velocity_command": ("velocity",),
    "velocity_range": ({"x": (0.0, 0.1), "yaw": (0.0, 0.1)}, (0.5, 1.0)),  # of a root, both parts; of joints
    "widen": ({"lin_vel_x": 0.1},),
}
"""Values by the name of a parameter."""
TYPED: Mapping[str, tuple[Any, ...]] = {
    "Mapping[str, Range]": ({"x": (0.0, 0.1)},),
    "Mapping[str, float]": ({".*": 1.0},),
    "PerJoint": (1.0,),
    "Range": ((0.5, 1.0),),
    "float": (0.5,),
    "tuple[float, float]": ((0.5, 1.0),),
}
"""Values by what a parameter is annotated with, of those that `NAMED` does not have."""
