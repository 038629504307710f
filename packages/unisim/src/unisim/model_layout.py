"""What a compiled model looks like from outside: names, indices, ranges, defaults. No engine objects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import torch

from unisim.errors import nearest
from unisim.randomization import FieldLayout
from unisim.scene import ContactReduce

__all__ = [
    "CONTACT_WIDTHS",
    "ActuatorKind",
    "ActuatorLayout",
    "ContactLayout",
    "EntityLayout",
    "JointKind",
    "JointLayout",
    "ModelLayout",
    "SensorLayout",
    "SensorStage",
    "find",
    "layout_digest",
]

JointKind = Literal["free", "ball", "slide", "hinge"]
SensorStage = Literal["position", "velocity", "acceleration"]
ActuatorKind = Literal["motor", "servo", "other"]
"""How force follows from control: `"motor"`, gain x control at once; `"servo"`, besides on position and velocity, or
behind a filter, all by the first three numbers of gain and bias; `"other"`, as a muscle does."""

CONTACT_WIDTHS = {"found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3}
"""Columns of each quantity that a contact sensor can report, in their order; see `scene.ContactData`."""


@dataclass(frozen=True)
class JointLayout:
    """One joint and the columns it owns in `qpos` and `qvel`."""

    name: str
    kind: JointKind
    body: str
    qpos_start: int
    qpos_dim: int
    qvel_start: int
    qvel_dim: int
    limits: tuple[float, float]
    """Lower and upper bound in m or rad; (-inf, inf) when the joint is unlimited."""


@dataclass(frozen=True)
class ActuatorLayout:
    """One actuator; its index in `ModelLayout.actuators` is its control column."""

    name: str
    joint: str | None
    ctrl_range: tuple[float, float]
    """Lower and upper bound of the control; (-inf, inf) when it is unlimited."""
    kind: ActuatorKind = "motor"
    gear: float = 1.0
    """Force or torque on the joint per unit of the actuator's force."""


@dataclass(frozen=True)
class ContactLayout:
    """How the columns of a contact sensor are laid out: `num` slots of one contact each, one after the other.

    With sensor values (N, num * width), quantity q of all slots is `values.view(N, num, width)[..., columns[q]]`.

    Attributes:
        data: What is reported, in the order of `CONTACT_WIDTHS` whatever the order given here.
        num: Slots; those without a contact hold zeros.
        reduce: How contacts are chosen or summed; see `scene.ContactSensorCfg`.
        columns: Quantity to its columns within one slot.
        width: Columns of one slot.

    Raises:
        KeyError: `data` names what no contact sensor reports.
    """

    data: tuple[str, ...]
    num: int = 1
    reduce: ContactReduce = "netforce"
    columns: Mapping[str, slice] = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        """Places the quantities."""
        for name in self.data:
            if name not in CONTACT_WIDTHS:
                raise KeyError(f"unknown contact quantity {name!r}; {nearest(name, CONTACT_WIDTHS)}")
        columns, start = {}, 0
        for name, width in CONTACT_WIDTHS.items():
            if name in self.data:
                columns[name] = slice(start, start + width)
                start += width
        object.__setattr__(self, "data", tuple(columns))
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "width", start)


@dataclass(frozen=True)
class SensorLayout:
    """One sensor of the model."""

    name: str
    start: int
    dim: int
    stage: SensorStage
    """What it depends on; acceleration-stage values describe the last integrated substep."""
    contact: ContactLayout | None = None
    """Of a contact sensor: where each quantity lies in its columns."""


@dataclass(frozen=True)
class EntityLayout:
    """One entity of the scene; the names of its elements start with `"<name>/"`."""

    name: str
    root_body: str
    root_joint: str | None
    """Name of its free joint, or None when it is fixed to the world."""


@dataclass(frozen=True)
class ModelLayout:
    """Names, indices, ranges and defaults of one compiled model.

    `Q`, `V` and `A` below are the widths of generalised position, generalised velocity and control.
    """

    timestep: float
    """Physics timestep, s."""
    joints: tuple[JointLayout, ...]
    actuators: tuple[ActuatorLayout, ...]
    bodies: tuple[str, ...]
    sites: tuple[str, ...]
    sensors: tuple[SensorLayout, ...]
    entities: tuple[EntityLayout, ...]
    geoms: tuple[str, ...]
    fields: Mapping[str, FieldLayout]
    """Randomisable model fields by name; see `unisim.randomization.MODEL_FIELDS`."""
    default_qpos: tuple[float, ...]
    """(Q,) the state every reset starts from."""
    default_qvel: tuple[float, ...]
    """(V,) the state every reset starts from."""

    @property
    def nq(self) -> int:
        """Width of generalised position."""
        return len(self.default_qpos)

    @property
    def nv(self) -> int:
        """Width of generalised velocity."""
        return len(self.default_qvel)

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return len(self.actuators)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


def find(items: Sequence[T], name: str, kind: str) -> T:
    """Returns the item called `name`.

    Raises:
        KeyError: There is none; the message lists the nearest names of that kind.
    """
    for item in items:
        if item.name == name:
            return item
    raise KeyError(f"unknown {kind} {name!r}; {nearest(name, [item.name for item in items])}")


def layout_digest(layout: ModelLayout) -> torch.Tensor:
    """Returns (32,) uint8 that two layouts share only if names, ranges, defaults and nominal values are equal.

    A snapshot carries it, so that one of another model is refused.
    """
    text = repr(replace(layout, fields=dict(sorted(layout.fields.items()))))
    return torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
