"""What an environment is, in names and numbers: for explain, export and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = [
    "ActionDescription",
    "ActuatorDescription",
    "EnvDescription",
    "JointDescription",
    "Limits",
    "PacketDescription",
    "TermDescription",
]


Limits = tuple[float | None, float | None]
"""Lower and upper limit; None on a side where there is none."""


@dataclass(frozen=True)
class TermDescription:
    """One term of a manager, as it was configured.

    Attributes:
        name: Its name in the config; of an observation `"<group>/<term>"`.
        func: Import string of its function or class, `"package.module:name"`.
        params: What it is called with, as plain data.
        settings: What its manager does with it, as plain data: weight, mode, scale, clip, noise, delay, history ...
        columns: A label for each column that it makes (observations, commands) or drives (actions).
        reads: What it reads of the packet, as keys.
        is_affine: Of an action term: whether each control that it gives is known to be the action times a number plus a
            number, within limits, and nothing else.
    """

    name: str
    func: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    is_affine: bool = False


@dataclass(frozen=True)
class ActionDescription:
    """One column of the action.

    Attributes:
        label: Its name.
        actuator: The actuator that it drives, as named in the composed model; None where that is nobody's or unknown.
        joint: The joint of that actuator.
        bounds: Lowest and highest value that a squashing policy should use; None: unbounded.
    """

    label: str
    actuator: str | None = None
    joint: str | None = None
    bounds: Limits = (None, None)


@dataclass(frozen=True)
class JointDescription:
    """One joint, as named in the composed model.

    Attributes:
        name: Its name.
        kind: `"free"`, `"ball"`, `"slide"` or `"hinge"`.
        default_pos: The position that every reset starts from: m, rad; of a free joint x, y, z and a wxyz quaternion.
        limits: Lower and upper limit, m or rad; None: unlimited.
    """

    name: str
    kind: str
    default_pos: tuple[float, ...]
    limits: Limits | None


@dataclass(frozen=True)
class ActuatorDescription:
    """One actuator, as named in the composed model; force = gain x control - kp x length - kd x velocity.

    Attributes:
        name: Its name.
        joint: The joint that it moves; None if it is no joint's.
        ctrl_range: Lowest and highest control; None: unlimited.
        gain: Force per unit of control; None where the model does not say.
        kp: Stiffness, N/m or N m/rad: the gain of a position servo, 0 for a motor.
        kd: Damping, N s/m or N m s/rad: the gain of a velocity servo, 0 for a motor.
    """

    name: str
    joint: str | None
    ctrl_range: Limits | None
    gain: float | None = None
    kp: float | None = None
    kd: float | None = None


@dataclass(frozen=True)
class PacketDescription:
    """What moves between backend and tensors: one line of a step's ledger.

    Attributes:
        kind: A field of `transfer_stats`.
        when: `"step"`: in every step. `"reset"`: added by a step in which rows reset, however many. `"write"`: added by
            a step whose events or commands write state.
        transfers: How many.
        fixed_bytes: Their size, all together, without what grows with the rows.
        row_bytes: What each row that resets or is written adds.
        who: Who asks for it, where that is not everybody.
    """

    kind: str
    when: Literal["step", "reset", "write"]
    transfers: int
    fixed_bytes: int
    row_bytes: int = 0
    who: str = ""

    def num_bytes(self, rows: int = 0) -> int:
        """Returns the bytes for so many rows."""
        return self.fixed_bytes + self.row_bytes * rows


@dataclass(frozen=True)
class EnvDescription:
    """Names and layouts that a policy's user needs; plain data.

    Attributes:
        step_dt: Length of a control step, s.
        episode_length_s: Time limit of an episode, s.
        observations: Group to the label of each column, in order.
        actions: Each action column, in order.
        joints: The joints in the model's order.
        units: Group to the unit of each observation column, in order; empty where nobody said.
        actuators: The actuators in the order of their control columns.
        control: A label for each column of the control packet: the actuators, then the wrenches.
        terms: Kind of manager to its terms, in order.
        reads: What a step reads, as keys of the read packet.
        ledger: What one step moves; empty where tensors are live views of the state.
        capabilities: What the backend can do.
    """

    step_dt: float
    episode_length_s: float
    observations: Mapping[str, tuple[str, ...]]
    actions: tuple[ActionDescription, ...]
    joints: tuple[JointDescription, ...]
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    actuators: tuple[ActuatorDescription, ...] = ()
    control: tuple[str, ...] = ()
    terms: Mapping[str, tuple[TermDescription, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    ledger: tuple[PacketDescription, ...] = ()
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Returns the description as plain dicts, tuples and scalars: what `json.dumps` takes, without infinities."""
        return asdict(self)
