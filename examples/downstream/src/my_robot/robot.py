"""The robot: a trunk on an axle with two driven wheels; built in code, without meshes."""

from __future__ import annotations

from typing import Any

import mujoco

__all__ = ["WHEELS", "WHEEL_RADIUS", "build_ground", "build_robot"]

WHEELS = ("left_wheel", "right_wheel")
"""Joints, and the motors that drive them."""
WHEEL_RADIUS = 0.1
"""m; also the height of the trunk's frame, whose origin is the middle of the axle."""
_TRUNK_MASS, _WHEEL_MASS = 3.0, 0.3
"""kg"""
_TORQUE = 2.0
"""Greatest torque of each motor, N m."""


def build_robot() -> Any:
    """Returns a new `mujoco.MjSpec`: joints and motors `left_wheel` and `right_wheel`, x forward, standing on z = 0."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    trunk = spec.worldbody.add_body(name="trunk", pos=[0.0, 0.0, WHEEL_RADIUS])
    trunk.add_freejoint(name="root")
    trunk.add_geom(
        name="trunk",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[0.05, 0.12, 0.2],
        pos=[0.0, 0.0, 0.22],
        mass=_TRUNK_MASS,
        contype=0,  # an episode ends long before the trunk touches anything
        conaffinity=0,
        rgba=[0.3, 0.4, 0.6, 1.0],
    )
    for name, y in zip(WHEELS, (0.15, -0.15), strict=True):
        _add_wheel(spec, trunk, name, y)
    return spec


def _add_wheel(spec: Any, trunk: Any, name: str, y: float) -> None:
    wheel = trunk.add_body(name=name, pos=[0.0, y, 0.0])
    wheel.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0.0, 1.0, 0.0], damping=0.01)
    wheel.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        fromto=[0.0, -0.02, 0.0, 0.0, 0.02, 0.0],
        size=[WHEEL_RADIUS, 0.0, 0.0],
        mass=_WHEEL_MASS,
        condim=3,
        contype=0,
        conaffinity=1,  # touches the ground, and nothing of the robot
        rgba=[0.15, 0.15, 0.15, 1.0],
    )
    motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.ctrlrange, motor.ctrllimited = [-_TORQUE, _TORQUE], True


def build_ground() -> Any:
    """Returns a new `mujoco.MjSpec`: the plane z = 0."""
    spec = mujoco.MjSpec()
    ground = spec.worldbody.add_body(name="ground")
    ground.add_geom(
        name="ground",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0.0, 0.0, 1.0],
        contype=1,
        conaffinity=0,
        rgba=[0.45, 0.5, 0.47, 1.0],
    )
    return spec
