"""What is simulated: entities, sensors and simulation settings, as configs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from unisim.config import Cfg, Params
from unisim.import_strings import Func

__all__ = ["BuiltinSensorCfg", "EntityCfg", "SceneCfg", "SensorCfg", "SensorKind", "SimCfg"]

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


class SimCfg(Cfg):
    """Numerical settings of the simulation."""

    timestep: Positive = 0.005
    """Physics timestep, s."""
    integrator: Literal["euler", "rk4", "implicit", "implicitfast"] = "implicitfast"
    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    iterations: Annotated[int, Field(ge=1)] = 10
    """Most iterations of the constraint solver."""
    ls_iterations: Annotated[int, Field(ge=1)] = 20
    """Most iterations of its line search."""
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)
    """World frame, m/s^2."""
    num_threads: Annotated[int, Field(ge=0)] = 0
    """Physics threads; 0 means all cores. Results do not depend on it."""


class EntityCfg(Cfg):
    """One robot or object: a function that builds its model, and the state every reset starts from.

    Its elements are named `"<entity>/<name>"` in the composed model.
    """

    open_mappings: ClassVar[frozenset[str]] = frozenset({"params", "joint_pos", "joint_vel"})

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


class BuiltinSensorCfg(SensorCfg):
    """A sensor that the engine evaluates."""

    kind: SensorKind
    target: str
    """What it is attached to, as named in the composed model, for example `"robot/imu"`."""
    of: Literal["site", "body"] = "site"
    """For frame sensors: whether `target` is a site or a body."""


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
