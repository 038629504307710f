"""Models, configs and slow clear models that the tests of this package share."""

from __future__ import annotations

from typing import Annotated, Any

import mujoco
import torch
from pydantic import Field

from unisim import Cfg, Func, HostBridgeSpec, Params, ResetPayload
from unisim.host_bridge import compile_plan
from unisim.testing import FakeBackend, make_layout

# ---------------------------------------------------------------- configs


def square(value: float) -> float:
    """A function that configs name."""
    return value * value


def cube(value: float) -> float:
    """Another one."""
    return value**3


class NoiseCfg(Cfg):
    """A base that a field declares."""

    std: Annotated[float, Field(ge=0)] = 0.1


class BiasedNoiseCfg(NoiseCfg):
    """A subclass that may stand in its place."""

    bias: float = 0.0


class TermCfg(Cfg):
    """A term with open parameters."""

    func: Func = square
    weight: float = 1.0
    params: Params = {}
    noise: NoiseCfg | None = None


class TaskCfg(Cfg):
    """A config of configs."""

    name: str = "task"
    num_envs: Annotated[int, Field(ge=1)] = 4
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)
    terms: dict[str, TermCfg] = {}
    limits: tuple[dict[str, float], ...] = ()


class OpenCfg(Cfg):
    """A config of mappings of numbers, which accept new keys from overrides."""

    joint_pos: dict[str, float] = {}
    scale: float | dict[str, Annotated[float, Field(gt=0)]] = {}
    names: dict[str, str] = {}


class Counter:
    """Something with a bound method."""

    def count(self) -> int:
        """Is no function of a module."""
        return 1


# ---------------------------------------------------------------- fakes


def fake_plan(num_envs: int = 3, **options: Any) -> tuple[FakeBackend, Any]:
    """A fake of two joints (Q = V = 2), one actuator and one sensor of 3 columns, and its plan: W = 2 + 2 + 1 + 3."""
    layout = make_layout(sensors={"imu": (3, "acceleration")})
    backend = FakeBackend(layout, num_envs, **options)
    return backend, backend.compile_host_bridge_io(HostBridgeSpec(sensors=("imu",), decimation=2))


def staged_plan(backend: Any, spec: HostBridgeSpec, staged: bool | None = True) -> Any:
    """The plan of a host-bridge backend with separate storage for host and device, as on another device."""
    return compile_plan(
        backend,
        backend.model_layout,
        spec,
        declared=backend._declared,
        accepted=("cpu",),
        owner="test",
        staged=staged,
    )


def rows_mask(ids: list[int], num_envs: int) -> torch.Tensor:
    """(N,) bool, true at `ids`."""
    mask = torch.zeros(num_envs, dtype=torch.bool)
    for i in ids:
        mask[i] = True
    return mask


def reset_rows(target: Any, ids: list[int], **parts: Any) -> None:
    """Resets rows of a backend or a plan; parts are nested lists, None keeps the default."""
    tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in parts.items()}
    target.apply_reset(rows_mask(ids, target_rows(target)), ResetPayload(torch.tensor(ids), **tensors))


def write_rows(target: Any, ids: list[int], **parts: Any) -> None:
    """Writes rows of a backend or a plan."""
    tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in parts.items()}
    target.write_rows(rows_mask(ids, target_rows(target)), ResetPayload(torch.tensor(ids), **tensors))


def target_rows(target: Any) -> int:
    """N of a backend or of a plan."""
    return target.num_envs if hasattr(target, "num_envs") else target.packet.shape[0]


def calls_of_two_rows(size: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Returns each call of a backend of two rows, by its name, with arguments for `size` positions and velocities."""
    none = torch.zeros(0, dtype=torch.int64)
    rows = (rows_mask([], 2), ResetPayload(none))
    return [
        ("tensor_execution", ()),
        ("get_tensor_capabilities", ()),
        ("get_runtime_diagnostics", ()),
        ("get_state_views", ()),
        ("get_sensor_view", ("imu",)),
        ("step_tensor", (torch.zeros(2, 1),)),
        ("prepare_step", (1,)),
        ("apply_reset", rows),
        ("write_rows", rows),
        ("set_state_tensor", (none, torch.zeros(0, size), torch.zeros(0, size))),
        ("bad_rows", ()),
        ("compile_host_bridge_io", (HostBridgeSpec(),)),
        ("snapshot", ()),
        ("restore", ({},)),
        ("render", (0,)),
        ("export_model", (0,)),
    ]


# ---------------------------------------------------------------- models

FREE_BOX = """
<mujoco><worldbody>
  <body name="box" pos="0 0 1"><freejoint name="root"/><geom name="g" type="box" size=".1 .2 .3" mass="5"/></body>
</worldbody></mujoco>"""

# A free base with a leg off its centre of mass, a contact plane, an actuator of each kind and every stage of sensor.
HOPPER_BODY = """
<worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body name="base" pos="0 0 .45"><freejoint name="root"/>
    <geom name="trunk" type="box" size=".15 .1 .05" mass="4"/>
    <site name="imu" pos=".05 .02 .03" euler="0.3 0.2 0.1"/>
    <body name="thigh" pos=".12 .03 0"><joint name="hip" axis="0 1 0" range="-1.5 1.5" damping=".2"/>
      <geom name="upper" type="capsule" fromto="0 0 0 .05 0 -.2" size=".03" mass=".6"/>
      <body name="shank" pos=".05 0 -.2"><joint name="knee" axis="0 1 0" range="-2 2" damping=".1"/>
        <geom name="lower" type="capsule" fromto="0 0 0 -.05 0 -.18" size=".025" mass=".3"/>
        <site name="foot" pos="-.05 0 -.18" size=".03"/>
      </body>
    </body>
  </body>
</worldbody>
<actuator>
  <position name="hip" joint="hip" kp="30"/>
  <motor name="knee" joint="knee" gear="3"/>
  <general name="slow" joint="knee" dyntype="integrator" gainprm="2" biastype="none"/>
</actuator>
<sensor>
  <framepos name="foot_pos" objtype="site" objname="foot"/>
  <framelinvel name="foot_vel" objtype="site" objname="foot"/>
  <gyro name="gyro" site="imu"/>
  <velocimeter name="speed" site="imu"/>
  <accelerometer name="acc" site="imu"/>
  <touch name="touch" site="foot"/>
  <actuatorfrc name="torque" actuator="hip"/>
  <clock name="clock"/>
</sensor>"""

HOPPER = f"<mujoco>{HOPPER_BODY}</mujoco>"
HOPPER_SENSORS = tuple(
    f"robot/{name}" for name in ("foot_pos", "foot_vel", "gyro", "speed", "acc", "touch", "torque", "clock")
)

PENDULUM = """
<mujoco><worldbody><body name="rod"><joint name="hinge" axis="0 1 0" damping=".1"/>
  <geom name="bob" type="sphere" size=".1" pos="0 0 -.5" mass="1"/></body></worldbody>
<actuator><motor name="hinge" joint="hinge"/></actuator></mujoco>"""


def free_box() -> mujoco.MjSpec:
    """A free box of 5 kg at a height of 1 m."""
    return mujoco.MjSpec.from_string(FREE_BOX)


def hopper() -> mujoco.MjSpec:
    """A free base with one leg over a plane; Q = 9, V = 8, A = 3."""
    return mujoco.MjSpec.from_string(HOPPER)


def pendulum() -> mujoco.MjSpec:
    """One hinge with a motor; Q = V = A = 1."""
    return mujoco.MjSpec.from_string(PENDULUM)


def from_xml(xml: str) -> mujoco.MjSpec:
    """The model that `xml` describes."""
    return mujoco.MjSpec.from_string(xml)


def reference_hopper(timestep: float = 0.004) -> mujoco.MjModel:
    """The hopper compiled by MuJoCo alone, with the numerical settings that SimCfg has by default."""
    option = (
        f'<option timestep="{timestep}" integrator="implicitfast" cone="pyramidal" iterations="10" '
        'ls_iterations="20" gravity="0 0 -9.81" jacobian="dense"><flag autoreset="disable"/></option>'
    )
    return mujoco.MjModel.from_xml_string(f"<mujoco>{option}{HOPPER_BODY}</mujoco>")


class ReferenceRows:
    """N plain MjData stepped one after the other: the slow clear model of a batch."""

    def __init__(self, model: mujoco.MjModel, num_envs: int) -> None:
        self.model = model
        self.rows = [mujoco.MjData(model) for _ in range(num_envs)]
        for row in self.rows:
            mujoco.mj_forward(model, row)

    def step(self, ctrl: torch.Tensor, nsteps: int) -> None:
        """Steps every row under its control."""
        for row, values in zip(self.rows, ctrl, strict=True):
            row.ctrl[:] = values.numpy()
            for _ in range(nsteps):
                mujoco.mj_step(self.model, row)

    def reset(self, i: int, qpos: Any, qvel: Any, ctrl: Any) -> None:
        """Makes row `i` a new simulation."""
        row = self.rows[i]
        mujoco.mj_resetData(self.model, row)
        row.qpos[:], row.qvel[:], row.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_forward(self.model, row)

    def refreshed(self) -> list[mujoco.MjData]:
        """Returns other data at the present positions and velocities, after a forward of their own."""
        copies = []
        for row in self.rows:
            copy = mujoco.MjData(self.model)
            copy.qpos[:], copy.qvel[:], copy.ctrl[:] = row.qpos, row.qvel, row.ctrl
            mujoco.mj_forward(self.model, copy)
            copies.append(copy)
        return copies


def rows_of(rows: list[mujoco.MjData], field: str) -> torch.Tensor:
    """Returns a field of all rows as (N, ...) float32."""
    return torch.stack([torch.tensor(getattr(row, field).copy()) for row in rows]).float()


def sensor_of(rows: list[mujoco.MjData], name: str) -> torch.Tensor:
    """Returns a sensor of all rows as (N, dim) float32."""
    return torch.stack([torch.tensor(row.sensor(name).data.copy()) for row in rows]).float()
