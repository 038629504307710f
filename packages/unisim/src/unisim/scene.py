"""What is simulated: entities, sensors and simulation settings, as configs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from unisim.config import Cfg, Params
from unisim.import_strings import Func

__all__ = [
    "BuiltinSensorCfg",
    "ContactSensorCfg",
    "EntityCfg",
    "SceneCfg",
    "SensorCfg",
    "SensorKind",
    "SimCfg",
]

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_\-]*$")]
Positive = Annotated[float, Field(gt=0)]

SensorKind = Literal[
    "accelerometer",
    "actuatorfrc",
    "force",
    "frameangvel",
    "framelinvel",
    "framepos",
    "framequat",
    "gyro",
    "jointpos",
    "jointvel",
    "subtreecom",
    "subtreelinvel",
    "torque",
    "touch",
    "velocimeter",
]


ContactData = Literal["found", "force", "torque", "dist", "pos", "normal", "tangent"]
"""What a contact sensor reports; `model_layout.ContactLayout` says where.

`found` (1): how many contacts match, in every slot. `force` (3), N, and `torque` (3), N m: what the watched element
exerts on the other, along the axes normal, tangent, normal x tangent; along those of the world for `"netforce"`. `dist`
(1), m: negative where they penetrate. `pos` (3), m, `normal` (3), from the watched element to the other, and `tangent`
(3): world frame.
"""


ContactReduce = Literal["none", "mindist", "maxforce", "netforce"]
"""How contacts are chosen: the first ones, the deepest, the strongest, or their sum in the world frame."""


class SimCfg(Cfg):
    """Numerical settings of the simulation."""

    timestep: Positive = 0.005
    """Physics timestep, s."""
    integrator: Literal["euler", "rk4", "implicit", "implicitfast"] = "implicitfast"
    """With `"rk4"` the `"qacc"` of a substep is the mean over its four stages, `"actuator_force"` that of the last one,
    and sensors of the acceleration stage show the first one; with the others all three agree."""
    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    iterations: Annotated[int, Field(ge=1)] = 10
    """Most iterations of the constraint solver."""
    ls_iterations: Annotated[int, Field(ge=1)] = 20
    """Most iterations of its line search."""
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)
    """World frame, m/s^2."""
    num_threads: Annotated[int, Field(ge=0)] = 0
    """Physics threads; 0 means all cores. Results do not depend on it."""
    persistent: bool = True
    """Whether the engine keeps its workspace per row: faster fresh reads, about 0.2 MiB a row for a quadruped."""
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    """Room for contacts and constraints of a row on the CPU, MiB; None: what the engine thinks the model needs."""
    nconmax: Annotated[int, Field(ge=1)] | None = None
    """Contacts per row that a device reserves room for, shared by all rows; None: three times what falls from random
    poses are seen to need."""
    njmax: Annotated[int, Field(ge=1)] | None = None
    """Constraints per row that a device reserves room for; None: as `nconmax`."""
    graph_capture: bool = True
    """Whether a device replays captured graphs; without, every step launches its kernels one by one."""


class EntityCfg(Cfg):
    """One robot or object: a function that builds its model, and the state every reset starts from.

    Its elements are named `"<entity>/<name>"` in the composed model.
    """

    spec: Func
    """Called with `params`; returns a new `mujoco.MjSpec`."""
    params: Params = {}
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Position of the entity's frame in the world, m."""
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Orientation of the entity's frame in the world, wxyz."""
    joint_pos: dict[str, float] = {}
    """Default positions (m, rad) by joint name or full-match regular expression; others keep the model's."""
    joint_vel: dict[str, float] = {}
    """Default velocities (m/s, rad/s); others are zero."""

    @model_validator(mode="after")
    def _unit_quaternion(self) -> EntityCfg:
        norm = sum(q * q for q in self.quat) ** 0.5
        if abs(norm - 1.0) > 1e-3:
            raise ValueError(f"quat {self.quat} has norm {norm:.4g}, expected a unit quaternion (wxyz)")
        return self


class SensorCfg(Cfg):
    """Base of the sensors that a scene adds to its model."""

    name: Name
    substeps: bool = False
    """Whether its value after every substep of a control step can be read too, as a history."""


class BuiltinSensorCfg(SensorCfg):
    """A sensor that the engine evaluates."""

    kind: SensorKind
    target: str
    """What it is attached to, as named in the composed model, for example `"robot/imu"`."""
    of: Literal["site", "body"] = "site"
    """For frame sensors: whether `target` is a site or a body."""


class ContactSensorCfg(SensorCfg):
    """Contacts of one element, with anything or with one other; its values describe the last integrated substep.

    Columns are the chosen `data`, in the order of `ContactData` whatever their order here, repeated for
    each of `num` contacts; empty slots hold zeros.
    """

    of: Literal["geom", "body", "subtree"] = "body"
    target: str
    """What it watches, as named in the composed model, for example `"robot/foot"`."""
    against: str | None = None
    """The other element, of the same kind; None: anything."""
    data: tuple[ContactData, ...] = ("found", "force")
    reduce: ContactReduce = "netforce"
    """How contacts are chosen."""
    num: Annotated[int, Field(ge=1)] = 1
    """Number of slots."""

    @model_validator(mode="after")
    def _consistent(self) -> ContactSensorCfg:
        if not self.data or len(set(self.data)) < len(self.data):
            raise ValueError(f"data {self.data} is empty or names something twice")
        if self.reduce == "netforce" and self.num > 1:
            raise ValueError(f"num is {self.num}; reduce 'netforce' has one slot")
        return self


class SceneCfg(Cfg):
    """Everything that goes into one model."""

    entities: dict[Name, EntityCfg] = {}
    sensors: tuple[SensorCfg, ...] = ()

    @model_validator(mode="after")
    def _distinct_sensors(self) -> SceneCfg:
        names = [sensor.name for sensor in self.sensors]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"sensor names {twice} are given twice")
        return self
