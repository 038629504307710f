"""Layouts of models that no engine compiled, for fakes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from unisim.model_layout import (
    ActuatorLayout,
    ContactLayout,
    EntityLayout,
    JointLayout,
    ModelLayout,
    SensorLayout,
    SensorStage,
)
from unisim.randomization import MODEL_FIELDS, FieldLayout

__all__ = ["make_layout"]

_UNLIMITED = (float("-inf"), float("inf"))


def make_layout(
    *,
    joints: Sequence[str] = ("robot/slider", "robot/hinge"),
    actuated: Sequence[str] = ("robot/slider",),
    sensors: Mapping[str, tuple[int, SensorStage]] | None = None,
    contacts: Mapping[str, ContactLayout] | None = None,
    sites: Sequence[str] = (),
    free_root: bool = False,
    limits: Mapping[str, tuple[float, float]] | None = None,
    timestep: float = 0.01,
    geoms: Sequence[str] = (),
    fields: Mapping[str, FieldLayout] | None = None,
) -> ModelLayout:
    """Returns the layout of one entity per prefix of `joints`, hinge joints only, for a fake.

    Args:
        joints: Scalar joints, named `"<entity>/<joint>"`.
        actuated: The joints that have an actuator, of the same name and control range (-1, 1).
        sensors: Sensor name to (dim, stage).
        contacts: Contact sensor name to its layout; placed after `sensors`.
        sites: Site names.
        free_root: Whether the first entity's root body has a free joint, named `"<entity>/root"`.
        limits: Joint name to (low, high).
        timestep: Physics timestep, s.
        geoms: Geom names.
        fields: Model fields in place of or beside `body_mass` (1 kg), `dof_damping` (0), `actuator_gainprm` (gain 1)
            and `gravity` (0).

    Raises:
        ValueError: A field that no model has, or as many values as do not fit its shape.
    """
    entities = list(dict.fromkeys(name.split("/")[0] for name in joints))
    placed_joints = _joints(joints, entities[0] if free_root else None, limits or {})
    placed, start = [], 0
    for name, (dim, stage) in (sensors or {}).items():
        placed.append(SensorLayout(name, start, dim, stage))
        start += dim
    for name, contact in (contacts or {}).items():
        placed.append(SensorLayout(name, start, contact.num * contact.width, "acceleration", contact))
        start += placed[-1].dim
    root = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0) if free_root else ()
    nv = sum(joint.qvel_dim for joint in placed_joints)
    return ModelLayout(
        timestep=timestep,
        joints=placed_joints,
        actuators=tuple(ActuatorLayout(name, name, (-1.0, 1.0)) for name in actuated),
        bodies=("world", *(f"{e}/base" for e in entities)),
        sites=tuple(sites),
        sensors=tuple(placed),
        entities=tuple(
            EntityLayout(e, f"{e}/base", f"{e}/root" if free_root and e == entities[0] else None)
            for e in entities
        ),
        geoms=tuple(geoms),
        fields=_fields(len(entities) + 1, nv, len(actuated)) | _checked(fields or {}),
        default_qpos=(*root, *(0.0 for _ in joints)),
        default_qvel=(0.0,) * nv,
    )


def _joints(
    names: Sequence[str], free: str | None, limits: Mapping[str, tuple[float, float]]
) -> tuple[JointLayout, ...]:
    """Returns the free joint of entity `free`, then the hinges."""
    placed: list[JointLayout] = []
    q = v = 0
    if free is not None:
        placed.append(JointLayout(f"{free}/root", "free", f"{free}/base", 0, 7, 0, 6, _UNLIMITED))
        q, v = 7, 6
    for name in names:
        body = f"{name.split('/')[0]}/base"
        placed.append(JointLayout(name, "hinge", body, q, 1, v, 1, limits.get(name, _UNLIMITED)))
        q, v = q + 1, v + 1
    return tuple(placed)


def _fields(nbody: int, nv: int, nu: int) -> dict[str, FieldLayout]:
    """Returns the fields that a fake's dynamics follow, at values that leave it a double integrator."""
    return {
        "body_mass": FieldLayout((nbody,), (0.0, *[1.0] * (nbody - 1))),
        "dof_damping": FieldLayout((nv,), (0.0,) * nv),
        "actuator_gainprm": FieldLayout((nu, 10), (1.0, *[0.0] * 9) * nu),
        "gravity": FieldLayout((3,), (0.0, 0.0, 0.0)),
    }


def _checked(fields: Mapping[str, FieldLayout]) -> dict[str, FieldLayout]:
    for name, field in fields.items():
        if name not in MODEL_FIELDS:
            raise ValueError(
                f"make_layout: {name!r} is no model field; expected one of {sorted(MODEL_FIELDS)}"
            )
        if math.prod(field.shape) != len(field.nominal):
            raise ValueError(
                f"make_layout: {name!r} has {len(field.nominal)} values, expected {math.prod(field.shape)} for shape "
                f"{field.shape}"
            )
    return dict(fields)
