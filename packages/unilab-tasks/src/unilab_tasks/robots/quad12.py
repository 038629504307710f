"""A four-legged robot with twelve joints, built from a table: joints FR, FL, RR, RL x hip, thigh, calf.

`quad12` is Go1-like; the table `go2_like` is the heavier sibling. Masses and dimensions follow the makers' published
descriptions, shapes are spheres, capsules and one box.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import mujoco

from unilab_tasks.robots.quad12_tables import QUAD12_TABLES, Link, Quad12Table, Range, Vector
from unisim import EntityCfg
from unisim.errors import nearest

__all__ = ["FEET", "LEGS", "Collision", "build_quad12", "quad12"]

LEGS = ("FR", "FL", "RR", "RL")
"""Front or rear, right or left, in the order of the joints."""
FEET = tuple(f"{leg}_foot" for leg in LEGS)
"""Names of the feet's geoms and sites."""

Collision = Literal["feet", "terrain", "full"]
"""What touches: only the feet the terrain, everything the terrain, or everything everything."""

_SELF = 2
"""Collision bit of the robot against itself; bit 1 is the terrain's."""


def quad12(table: str = "go1_like", **options: Any) -> EntityCfg:  # noqa: ANN401 - as `build_quad12` has them
    """Returns the robot in its home pose as an entity; `options` are those of `build_quad12`."""
    return EntityCfg(spec=build_quad12, params={"table": table, **options}, joint_pos=_table(table).home)


def build_quad12(
    table: str = "go1_like",
    collision: Collision = "terrain",
    kp: float = 35.0,
    kd: float = 1.0,
    foot_friction: float = 0.8,
    foot_condim: int = 3,
) -> Any:  # noqa: ANN401 - mujoco ships no types
    """Returns a new `mujoco.MjSpec`.

    Body `trunk` with a free joint and the site `imu`; per leg the bodies `<leg>_hip`, `<leg>_thigh`, `<leg>_calf` with
    joints and position actuators of the same names, and geom and site `<leg>_foot`. All geoms are in group 3.

    Args:
        table: A name in `QUAD12_TABLES`.
        collision: What touches what. With `"feet"`, a robot that has fallen sinks through the floor.
        kp: Stiffness of the position actuators, N m/rad.
        kd: Their damping, N m s/rad.
        foot_friction: Sliding friction of the feet; it replaces that of what they touch.
        foot_condim: Dimensions of a foot's contact: 1 no friction, 3 sliding, 4 torsion, 6 rolling as well.

    Raises:
        ValueError: No such table or collision level.
    """
    numbers = _table(table)
    if collision not in get_args(Collision):
        raise ValueError(f"collision is {collision!r}; {nearest(collision, get_args(Collision))}")
    spec = mujoco.MjSpec()
    spec.compiler.degree = False  # the default, degrees, would turn joint ranges into a hundredth of a radian
    trunk = _add_trunk(spec, numbers, collision)
    for leg in LEGS:
        _add_leg(spec, trunk, leg, numbers, collision)
        _add_foot(spec.body(f"{leg}_calf"), leg, numbers, foot_friction, foot_condim, collision)
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
            _add_actuator(spec, joint, numbers, kp, kd)
    return spec


def _table(name: str) -> Quad12Table:
    if name not in QUAD12_TABLES:
        raise ValueError(f"table is {name!r}; {nearest(name, QUAD12_TABLES)}")
    return QUAD12_TABLES[name]


def _add_trunk(spec: Any, table: Quad12Table, collision: Collision) -> Any:  # noqa: ANN401 - mujoco ships no types
    trunk = spec.worldbody.add_body(name="trunk", pos=[0, 0, table.home_height])
    trunk.add_freejoint(name="root")
    _set_inertia(trunk, table.trunk_mass, table.trunk_com, table.trunk_inertia)
    trunk.add_site(name="imu")
    _add_geom(
        trunk,
        collision,
        name="trunk",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=list(table.trunk_half_size),
        rgba=[0.25, 0.3, 0.4, 1],
    )
    x, radius = table.head
    _add_geom(
        trunk, collision, name="head", type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=[x, 0, 0], size=[radius, 0, 0],
        rgba=[0.9, 0.6, 0.2, 1],
    )  # fmt: skip
    return trunk


def _add_leg(
    spec: Any,  # noqa: ANN401 - mujoco ships no types
    trunk: Any,  # noqa: ANN401
    leg: str,
    table: Quad12Table,
    collision: Collision,
) -> None:
    front, left = leg[0] == "F", leg[1] == "L"
    thigh_range = table.front_thigh_range if front else table.rear_thigh_range
    links: tuple[tuple[str, Link, Vector, Range, float, Vector], ...] = (
        ("hip", table.hip, (1, 0, 0), table.hip_range, table.hip_radius, table.thigh.offset),
        ("thigh", table.thigh, (0, 1, 0), thigh_range, table.thigh_radius, table.calf.offset),
        ("calf", table.calf, (0, 1, 0), table.calf_range, table.calf_radius, table.foot_offset),
    )
    parent = trunk
    for i, (kind, link, axis, limits, radius, end) in enumerate(links):
        sign = (-1.0 if kind == "hip" and not front else 1.0, 1.0 if left else -1.0, 1.0)
        body = parent.add_body(name=f"{leg}_{kind}", pos=_signed(link.offset, sign))
        _set_inertia(body, link.mass, _signed(link.com, sign), link.inertia)
        body.add_joint(
            name=f"{leg}_{kind}",
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=list(axis),
            range=list(limits),
            armature=table.armature[i],
        )
        _add_geom(
            body,
            collision,
            name=f"{leg}_{kind}",
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            fromto=[0, 0, 0, *_signed(end, sign)],
            size=[radius, 0, 0],
            rgba=[0.6, 0.6, 0.65, 1],
        )
        parent = body


def _add_foot(
    calf: Any,  # noqa: ANN401 - mujoco ships no types
    leg: str,
    table: Quad12Table,
    friction: float,
    condim: int,
    collision: Collision,
) -> None:
    where = list(table.foot_offset)
    _add_geom(
        calf,
        "full" if collision == "full" else "terrain",
        name=f"{leg}_foot",
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        pos=where,
        size=[table.foot_radius, 0, 0],
        condim=condim,
        priority=1,  # friction and dimensions of the contact are the foot's, whatever it stands on
        friction=[friction, 0.005, 0.0001],
        rgba=[0.1, 0.1, 0.1, 1],
    )
    calf.add_site(name=f"{leg}_foot", pos=where)


def _add_geom(body: Any, collision: Collision, **geom: Any) -> None:  # noqa: ANN401 - mujoco ships no types
    masks = {"feet": (0, 0), "terrain": (0, 1), "full": (_SELF, 1 | _SELF)}
    contype, conaffinity = masks[collision]
    body.add_geom(
        **{"contype": contype, "conaffinity": conaffinity, "condim": 1, "group": 3, "density": 0.0, **geom}
    )


def _add_actuator(spec: Any, joint: Any, table: Quad12Table, kp: float, kd: float) -> None:  # noqa: ANN401
    torque = table.torque[("hip", "thigh", "calf").index(joint.name.split("_")[1])]
    actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.set_to_position(kp=kp, kv=kd)
    actuator.ctrlrange, actuator.ctrllimited = joint.range, True
    actuator.forcerange, actuator.forcelimited = [-torque, torque], True


def _set_inertia(body: Any, mass: float, com: Vector | list[float], inertia: Vector) -> None:  # noqa: ANN401
    body.mass, body.ipos, body.inertia = mass, list(com), list(inertia)
    body.explicitinertial = True  # geoms are shapes only


def _signed(vector: Vector, sign: Vector) -> list[float]:
    return [a * b for a, b in zip(vector, sign, strict=True)]
