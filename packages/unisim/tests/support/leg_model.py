"""A jumping leg whose every randomisable field is explicit, so that a model can be compiled with other values."""

from __future__ import annotations

from typing import Any

import mujoco
import torch

from unisim import BuiltinSensorCfg, ContactSensorCfg, EntityCfg, SceneCfg, SimCfg, make_backend
from unisim.contract import Declared

# Values are float32 numbers, so that a float32 payload can hold them; the knee's damping and the friction are none.
LEG = """
<mujoco><worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body name="base" pos="0 0 .45"><freejoint name="root"/>
    <inertial pos="0 0 0" mass="4" diaginertia=".0625 .078125 .09375"/>
    <geom name="trunk" type="box" size=".125 .09375 .0625"/>
    <site name="imu" pos=".05 .02 .03" euler="0.3 0.2 0.1"/>
    <body name="thigh" pos=".12 .03 0">
      <inertial pos=".03125 0 -.09375" quat=".5 .5 .5 .5" mass=".5" diaginertia=".00390625 .0048828125 .0029296875"/>
      <joint name="hip" axis="0 1 0" range="-1.5 1.5" damping=".25" armature=".0625" frictionloss=".03125"/>
      <geom name="upper" type="capsule" fromto="0 0 0 .05 0 -.2" size=".03125"/>
      <body name="shank" pos=".05 0 -.2">
        <inertial pos="0 0 -.09375" mass=".25" diaginertia=".001953125 .001953125 .0009765625"/>
        <joint name="knee" axis="0 1 0" range="-2 2" damping=".1"/>
        <geom name="lower" type="capsule" fromto="0 0 0 -.05 0 -.18" size=".03125"/>
        <geom name="foot" type="sphere" size=".0625" pos="-.05 0 -.18"/>
        <site name="toe" pos="-.05 0 -.18" size=".08"/>
      </body>
    </body>
  </body>
</worldbody>
<actuator>
  <position name="hip" joint="hip" kp="32" kv="1" forcerange="-8 8"/>
  <motor name="knee" joint="knee" gear="3" forcerange="-4 4"/>
  <general name="slow" joint="knee" dyntype="integrator" gainprm="2" biastype="none"/>
</actuator>
<sensor>
  <framepos name="toe_pos" objtype="site" objname="toe"/>
  <framelinvel name="toe_vel" objtype="site" objname="toe"/>
  <gyro name="gyro" site="imu"/>
  <accelerometer name="acc" site="imu"/>
  <touch name="touch" site="toe"/>
  <actuatorfrc name="torque" actuator="hip"/>
</sensor></mujoco>"""

SENSORS = (
    ContactSensorCfg(name="ground", of="body", target="robot/shank", data=("found", "force")),
    BuiltinSensorCfg(name="foot_force", kind="force", target="robot/toe"),
)
ACCELERATION = ("robot/acc", "robot/touch", "robot/torque", "ground", "foot_force")
FIELDS = (
    "body_mass",
    "body_ipos",
    "body_iquat",
    "body_inertia",
    "geom_friction",
    "geom_size",
    "dof_armature",
    "dof_damping",
    "dof_frictionloss",
    "actuator_gainprm",
    "actuator_biasprm",
    "actuator_forcerange",
    "gravity",
)
_BODIES = ("base", "thigh", "shank")
_GEOMS = ("floor", "trunk", "upper", "lower", "foot")
_JOINTS = (("root", 0), ("hip", 6), ("knee", 7))
_ACTUATORS = ("hip", "knee", "slow")


def leg(field: str = "", values: list[Any] | None = None) -> mujoco.MjSpec:
    """The leg, or the leg with `values` of one field (in the shape of the model's) written before it is compiled."""
    spec = mujoco.MjSpec.from_string(LEG)
    kind, _, attribute = field.partition("_")
    for i, name in enumerate(_BODIES if kind == "body" else ()):
        setattr(spec.body(name), attribute, values[i + 1])  # the world is body 0
    for i, name in enumerate(_GEOMS if kind == "geom" else ()):
        setattr(spec.geom(name), attribute, values[i])
    for name, dof in _JOINTS if kind == "dof" else ():
        value = values[dof]
        setattr(spec.joint(name), attribute, [value, 0.0, 0.0] if attribute == "damping" else value)
    for i, name in enumerate(_ACTUATORS if kind == "actuator" else ()):
        setattr(spec.actuator(name), attribute, values[i])
    return spec


def leg_backend(
    num_envs: int,
    *,
    model: dict[str, torch.Tensor] | None = None,
    declared: Declared | None = None,
    num_threads: int = 1,
    persistent: bool = True,
    backend_class: type | None = None,
    sim: dict[str, Any] | None = None,
    device: str = "cpu",
) -> Any:
    """N legs; `model` holds at most one field to compile with."""
    params, gravity = {}, (0.0, 0.0, -9.8125)
    for field, values in (model or {}).items():
        if field == "gravity":
            gravity = tuple(values.tolist())
        else:
            params = {"field": field, "values": values.double().tolist()}
    scene = SceneCfg(entities={"robot": EntityCfg(spec=leg, params=params)}, sensors=SENSORS)
    chosen = {"timestep": 0.004, "gravity": gravity, "num_threads": num_threads, "persistent": persistent}
    settings = SimCfg(**(chosen | (sim or {})))
    if backend_class is not None:
        return backend_class(scene, settings, num_envs=num_envs, declared=declared, device=device)
    return make_backend("mujoco", scene, settings, num_envs=num_envs, declared=declared, device=device)
