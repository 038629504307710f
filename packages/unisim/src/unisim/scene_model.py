"""Composes a scene into one MuJoCo model and describes it without engine objects."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, get_args

import mujoco
import numpy as np

from unisim.errors import CapabilityError, ConfigError, nearest
from unisim.model_layout import (
    CONTACT_WIDTHS,
    ActuatorKind,
    ActuatorLayout,
    ContactLayout,
    EntityLayout,
    JointKind,
    JointLayout,
    ModelLayout,
    SensorLayout,
    SensorStage,
)
from unisim.randomization import MODEL_FIELDS, FieldLayout
from unisim.scene import (
    BuiltinSensorCfg,
    ContactReduce,
    ContactSensorCfg,
    EntityCfg,
    SceneCfg,
    SensorCfg,
    SimCfg,
)

__all__ = ["compile_scene", "describe_model", "engine_field", "holding_actuators"]

_LOGGER = logging.getLogger(__name__)

_INTEGRATORS = {
    "euler": mujoco.mjtIntegrator.mjINT_EULER,
    "rk4": mujoco.mjtIntegrator.mjINT_RK4,
    "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT,
    "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
}
_CONES = {"pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC}
_OBJECTS = {
    "site": mujoco.mjtObj.mjOBJ_SITE,
    "body": mujoco.mjtObj.mjOBJ_XBODY,
    "joint": mujoco.mjtObj.mjOBJ_JOINT,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
}
_FIXED_OBJECT = {
    "actuatorfrc": "actuator",
    "jointpos": "joint",
    "jointvel": "joint",
    "subtreecom": "subtree",
    "subtreelinvel": "subtree",
}
_CONTACT_OBJECTS = {
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "subtree": mujoco.mjtObj.mjOBJ_XBODY,
}
_REDUCTIONS: tuple[ContactReduce, ...] = get_args(ContactReduce)
_FILTERS = [
    int(mujoco.mjtDyn.mjDYN_NONE),
    int(mujoco.mjtDyn.mjDYN_FILTER),
    int(mujoco.mjtDyn.mjDYN_FILTEREXACT),
]
"""Dynamics of an actuator behind which its control still means what it means without them."""
_LINEAR = [*_FILTERS, int(mujoco.mjtDyn.mjDYN_INTEGRATOR)]
_SIZES = ("memory", "njmax", "nconmax", "nuserdata")
_MOVES_INERTIA = {"body_ipos", "body_iquat", "body_inertia"}
_STAGES: dict[int, SensorStage] = {
    int(mujoco.mjtStage.mjSTAGE_NONE): "position",
    int(mujoco.mjtStage.mjSTAGE_POS): "position",
    int(mujoco.mjtStage.mjSTAGE_VEL): "velocity",
    int(mujoco.mjtStage.mjSTAGE_ACC): "acceleration",
}
_JOINTS: dict[int, tuple[JointKind, int, int]] = {
    int(mujoco.mjtJoint.mjJNT_FREE): ("free", 7, 6),
    int(mujoco.mjtJoint.mjJNT_BALL): ("ball", 4, 3),
    int(mujoco.mjtJoint.mjJNT_SLIDE): ("slide", 1, 1),
    int(mujoco.mjtJoint.mjJNT_HINGE): ("hinge", 1, 1),
}


def compile_scene(scene: SceneCfg, sim: SimCfg, model_fields: Sequence[str] = ()) -> tuple[Any, ModelLayout]:
    """Returns the compiled `mujoco.MjModel` of a scene and its layout.

    Args:
        scene: What is simulated.
        sim: Numerical settings.
        model_fields: Fields that will differ per row.

    Raises:
        ConfigError: An entity's function fails or returns no new MjSpec, a sensor's target does not exist, or the
            model does not compile; the message names the entity or sensor.
        CapabilityError: An actuator has several controls.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    _apply_sim(spec, sim)
    for name, entity in scene.entities.items():
        frame = spec.worldbody.add_frame(pos=list(entity.pos), quat=list(entity.quat))
        built = _build_entity(name, entity)
        _drop_options(name, built, spec)
        try:
            spec.attach(built, prefix=f"{name}/", frame=frame)
        except ValueError as error:
            raise ConfigError(f"scene.entities.{name}: cannot be attached: {error}") from error
    for sensor in scene.sensors:
        _add_sensor(spec, sensor)
    if set(model_fields) & _MOVES_INERTIA:
        for body in spec.bodies:
            # A body compiled as simple has its inertia frame fixed to its own, which such values would break.
            body.simple = False
    try:
        model = spec.compile()
    except ValueError as error:
        raise ConfigError(f"scene: the model does not compile: {error}") from error
    if model.nu != model.nactuator:
        raise CapabilityError(
            f"scene: the model has {model.nactuator} actuators with {model.nu} controls; an actuator with several "
            "controls is not supported, give each its own"
        )
    return model, describe_model(model, scene)


def _build_entity(name: str, entity: EntityCfg) -> Any:  # noqa: ANN401 - mujoco ships no types
    try:
        built = entity.spec(**entity.params)
    except Exception as error:
        raise ConfigError(f"scene.entities.{name}: {type(error).__name__}: {error}") from error
    if not isinstance(built, mujoco.MjSpec):
        raise ConfigError(
            f"scene.entities.{name}.spec returned {type(built).__name__}, expected a new mujoco.MjSpec"
        )
    for kind, elements in (
        ("body", built.bodies[1:]),
        ("joint", built.joints),
        ("geom", built.geoms),
        ("site", built.sites),
        ("actuator", built.actuators),
    ):
        _name_the_unnamed(kind, elements)
    return built


def _name_the_unnamed(kind: str, elements: Sequence[Any]) -> None:
    """Names each element that has no name by its place, or by the next number that no other element has.

    What has no name cannot be addressed nor found by its entity's prefix; root bodies, free joints and geoms without
    one are common.
    """
    taken = {element.name for element in elements}
    for i, element in enumerate(elements):
        if not element.name:
            element.name = next(name for k in count(i) if (name := f"{kind}{k}") not in taken)
            taken.add(element.name)


def _drop_options(name: str, built: Any, spec: Any) -> None:  # noqa: ANN401 - mujoco ships no types
    """Puts the scene's options and sizes in place of an entity's own, and says which of them are lost."""
    default = mujoco.MjSpec()
    ignored = []
    for own, scene, engine, fields in (
        (built.option, spec.option, default.option, [f for f in dir(default.option) if f[0] != "_"]),
        (built, spec, default, _SIZES),
    ):
        for field in fields:
            value = getattr(own, field)
            if np.array_equal(value, getattr(engine, field)):
                continue
            if not np.array_equal(value, getattr(scene, field)):
                ignored.append(field)
            # The engine would print that both have it.
            setattr(own, field, getattr(scene, field))
    if ignored:
        _LOGGER.warning(
            "scene.entities.%s: its model sets %s, which is ignored: options of the simulation belong to sim",
            name,
            ", ".join(ignored),
        )


def _apply_sim(spec: Any, sim: SimCfg) -> None:  # noqa: ANN401 - mujoco ships no types
    if sim.memory_mib is not None:
        spec.memory = sim.memory_mib * 2**20
    option = spec.option
    option.timestep = sim.timestep
    option.integrator = _INTEGRATORS[sim.integrator]
    option.cone = _CONES[sim.cone]
    option.iterations = sim.iterations
    option.ls_iterations = sim.ls_iterations
    option.gravity = list(sim.gravity)
    # MuJoCo 4.0.0 factorises the Hessian of a sparse constraint Jacobian wrongly; 4.0.1 mends it.
    option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    # A bad state must stay visible; the engine's silent return to the model's default would hide it.
    option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)


def _add_sensor(spec: Any, sensor: SensorCfg) -> None:  # noqa: ANN401 - mujoco ships no types
    if isinstance(sensor, ContactSensorCfg):
        _add_contact_sensor(spec, sensor)
        return
    if not isinstance(sensor, BuiltinSensorCfg):
        raise ConfigError(
            f"sensor {sensor.name!r}: {type(sensor).__name__} is not a sensor this composer knows"
        )
    what = _FIXED_OBJECT.get(sensor.kind, sensor.of if sensor.kind.startswith("frame") else "site")
    kind = "body" if what == "subtree" else what
    elements = {"site": spec.sites, "body": spec.bodies, "joint": spec.joints, "actuator": spec.actuators}[
        kind
    ]
    names = [element.name for element in elements]
    if sensor.target not in names:
        raise ConfigError(
            f"sensor {sensor.name!r}: unknown {kind} {sensor.target!r}; {nearest(sensor.target, names)}"
        )
    spec.add_sensor(
        name=sensor.name,
        type=getattr(mujoco.mjtSensor, f"mjSENS_{sensor.kind.upper()}"),
        objtype=mujoco.mjtObj.mjOBJ_BODY if what == "subtree" else _OBJECTS[what],
        objname=sensor.target,
    )


def _add_contact_sensor(spec: Any, sensor: ContactSensorCfg) -> None:  # noqa: ANN401 - mujoco ships no types
    names = [element.name for element in (spec.geoms if sensor.of == "geom" else spec.bodies)]
    for target in (sensor.target, sensor.against):
        if target is not None and target not in names:
            raise ConfigError(
                f"sensor {sensor.name!r}: unknown {sensor.of} {target!r}; {nearest(target, names)}"
            )
    bits = sum(_contact_bit(name) for name in sensor.data)
    added = spec.add_sensor(
        name=sensor.name,
        type=mujoco.mjtSensor.mjSENS_CONTACT,
        objtype=_CONTACT_OBJECTS[sensor.of],
        objname=sensor.target,
    )
    if sensor.against is not None:
        added.reftype, added.refname = _CONTACT_OBJECTS[sensor.of], sensor.against
    added.intprm[:3] = [bits, _REDUCTIONS.index(sensor.reduce), sensor.num]


def describe_model(model: Any, scene: SceneCfg) -> ModelLayout:  # noqa: ANN401 - mujoco ships no types
    """Returns names, indices, ranges and defaults of a compiled model.

    Raises:
        ConfigError: A default names a joint that does not exist, or one without a scalar position.
    """
    joints = tuple(_joint(model, i) for i in range(model.njnt))
    qpos = np.array(model.qpos0, dtype=np.float64)
    qvel = np.zeros(model.nv)
    for name, entity in scene.entities.items():
        _set_defaults(
            f"scene.entities.{name}.joint_pos", f"{name}/", entity.joint_pos, joints, qpos, "qpos_start"
        )
        _set_defaults(
            f"scene.entities.{name}.joint_vel", f"{name}/", entity.joint_vel, joints, qvel, "qvel_start"
        )
    return ModelLayout(
        timestep=float(model.opt.timestep),
        joints=joints,
        actuators=tuple(_actuator(model, i) for i in range(model.nu)),
        bodies=tuple(model.body(i).name for i in range(model.nbody)),
        sites=tuple(model.site(i).name for i in range(model.nsite)),
        sensors=tuple(_sensor(model, i) for i in range(model.nsensor)),
        entities=tuple(_entity(model, name, joints) for name in scene.entities),
        geoms=tuple(model.geom(i).name for i in range(model.ngeom)),
        fields={name: _field(model, name) for name in MODEL_FIELDS},
        default_qpos=tuple(qpos.tolist()),
        default_qvel=tuple(qvel.tolist()),
    )


def holding_actuators(model: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - mujoco ships no types
    """Returns the ids of the actuators whose control is a length: biased by position, and not integrated."""
    affine = model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)
    direct = np.isin(model.actuator_dyntype, _FILTERS)
    return np.flatnonzero(affine & direct & (model.actuator_biasprm[:, 1] != 0))


def engine_field(name: str) -> str:
    """Returns the engine's name of a randomisable model field."""
    return "opt.gravity" if name == "gravity" else name


def _field(model: Any, name: str) -> FieldLayout:  # noqa: ANN401 - mujoco ships no types
    values = model.opt.gravity if name == "gravity" else getattr(model, name)
    return FieldLayout(tuple(values.shape), tuple(values.ravel().tolist()))


def _joint(model: Any, i: int) -> JointLayout:  # noqa: ANN401 - mujoco ships no types
    kind, qpos_dim, qvel_dim = _JOINTS[int(model.jnt_type[i])]
    low, high = model.jnt_range[i].tolist() if model.jnt_limited[i] else (-np.inf, np.inf)
    return JointLayout(
        name=model.joint(i).name,
        kind=kind,
        body=model.body(int(model.jnt_bodyid[i])).name,
        qpos_start=int(model.jnt_qposadr[i]),
        qpos_dim=qpos_dim,
        qvel_start=int(model.jnt_dofadr[i]),
        qvel_dim=qvel_dim,
        limits=(low, high),
    )


def _actuator(model: Any, i: int) -> ActuatorLayout:  # noqa: ANN401 - mujoco ships no types
    of_joint = int(model.actuator_trntype[i]) == int(mujoco.mjtTrn.mjTRN_JOINT)
    low, high = model.actuator_ctrlrange[i].tolist() if model.actuator_ctrllimited[i] else (-np.inf, np.inf)
    return ActuatorLayout(
        name=model.actuator(i).name,
        joint=model.joint(int(model.actuator_trnid[i, 0])).name if of_joint else None,
        ctrl_range=(low, high),
        kind=_actuator_kind(model, i),
        gear=float(model.actuator_gear[i, 0]),
    )


def _actuator_kind(model: Any, i: int) -> ActuatorKind:  # noqa: ANN401 - mujoco ships no types
    gain, bias = int(model.actuator_gaintype[i]), int(model.actuator_biastype[i])
    dynamics = int(model.actuator_dyntype[i])
    constant = gain == int(mujoco.mjtGain.mjGAIN_FIXED)
    if constant and bias == int(mujoco.mjtBias.mjBIAS_NONE) and dynamics == int(mujoco.mjtDyn.mjDYN_NONE):
        return "motor"
    linear = constant or gain == int(mujoco.mjtGain.mjGAIN_AFFINE)
    linear &= bias in (int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE))
    return "servo" if linear and dynamics in _LINEAR else "other"


def _sensor(model: Any, i: int) -> SensorLayout:  # noqa: ANN401 - mujoco ships no types
    contact = None
    if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_CONTACT):
        bits, reduction, num = model.sensor_intprm[i, :3].tolist()
        data = tuple(name for name in CONTACT_WIDTHS if bits & _contact_bit(name))
        contact = ContactLayout(data, num, _REDUCTIONS[reduction])
    return SensorLayout(
        name=model.sensor(i).name,
        start=int(model.sensor_adr[i]),
        dim=int(model.sensor_dim[i]),
        stage=_STAGES[int(model.sensor_needstage[i])],
        contact=contact,
    )


def _contact_bit(name: str) -> int:
    """Returns the bit of a quantity in the engine's word of what a contact sensor reports."""
    return 1 << int(getattr(mujoco.mjtConDataField, f"mjCONDATA_{name.upper()}"))


def _entity(model: Any, name: str, joints: tuple[JointLayout, ...]) -> EntityLayout:  # noqa: ANN401
    bodies = [model.body(i).name for i in range(1, model.nbody) if model.body(i).name.startswith(f"{name}/")]
    if not bodies:
        raise ConfigError(f"scene.entities.{name}: its model has no body")
    free = [j.name for j in joints if j.kind == "free" and j.body == bodies[0]]
    return EntityLayout(name, bodies[0], free[0] if free else None)


def _set_defaults(
    path: str,
    prefix: str,
    values: Mapping[str, float],
    joints: tuple[JointLayout, ...],
    out: np.ndarray[Any, Any],
    start: str,
) -> None:
    own = [j for j in joints if j.name.startswith(prefix) and j.kind in ("slide", "hinge")]
    for pattern, value in values.items():
        try:
            matches = [j for j in own if re.fullmatch(pattern, j.name.removeprefix(prefix))]
        except re.error as error:
            raise ConfigError(f"{path}: {pattern!r} is not a regular expression: {error}") from error
        if not matches:
            names = [j.name.removeprefix(prefix) for j in own]
            raise ConfigError(
                f"{path}: {pattern!r} matches no slide or hinge joint; {nearest(pattern, names)}"
            )
        for joint in matches:
            out[getattr(joint, start)] = value
