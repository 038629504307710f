"""Joint accelerations and actuator forces: those of the engine, for the last integrated substep of each row."""

from __future__ import annotations

import mujoco
import pytest
import torch
from leg_model import leg_backend
from unisim_support import ReferenceRows, hopper, reference_hopper, reset_rows, rows_of, write_rows

from unisim import EntityCfg, HostBridgeSpec, ResetPayload, SceneCfg, SimCfg, make_backend
from unisim.contract import Declared

FIELDS = ("qacc", "actuator_force")
BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def hoppers(num_envs: int, persistent: bool):
    scene = SceneCfg(entities={"robot": EntityCfg(spec=hopper)})
    sim = SimCfg(timestep=0.004, num_threads=2, persistent=persistent)
    return make_backend("mujoco", scene, sim, num_envs=num_envs)


def read(backend) -> dict[str, torch.Tensor]:
    return dict(backend.get_state_views(FIELDS))


def same(backend, rows: list[mujoco.MjData]) -> None:
    for name, values in read(backend).items():
        assert torch.equal(values, rows_of(rows, name)), name


@BOTH
def test_after_a_step_they_are_the_engine_s_own_of_the_last_substep(persistent):
    backend, reference = hoppers(5, persistent), ReferenceRows(reference_hopper(), 5)
    generator = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(40):
        ctrl = torch.rand(5, 3, generator=generator) * 2.0 - 1.0
        backend.step_tensor(ctrl, 4)
        reference.step(ctrl, 4)
        same(backend, reference.rows)
        seen.add(float(read(backend)["qacc"][2, 7]))
    assert len(seen) == 40


@BOTH
def test_after_a_reset_they_are_those_of_a_forward_with_its_control(persistent):
    backend, reference = hoppers(3, persistent), ReferenceRows(reference_hopper(), 3)
    ctrl = torch.full((3, 3), 0.5)
    backend.step_tensor(ctrl, 4)
    reference.step(ctrl, 4)
    qpos, qvel, held = list(backend.model_layout.default_qpos), [0.5] * 8, [0.25, -0.5, 0.0]
    reset_rows(backend, [1], qpos=[qpos], qvel=[qvel], ctrl=[held])
    reference.reset(1, qpos, qvel, held)
    same(backend, reference.rows)
    # A motor of gear 3 at control -0.5, and a position actuator of kp 30 at 0.25 rad from its length 0.
    assert read(backend)["actuator_force"][1].tolist() == [7.5, -0.5, 0.0]


def test_a_pendulum_accelerates_by_torque_over_inertia(simulate):
    xml = """<mujoco><option gravity="0 0 0"/><worldbody><body name="rod"><joint name="hinge" axis="0 1 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia=".5 .25 .5"/></body></worldbody>
      <actuator><motor name="hinge" joint="hinge"/></actuator></mujoco>"""
    from unisim_support import from_xml

    backend = simulate(from_xml, 2, params={"xml": xml})
    backend.step_tensor(torch.tensor([[2.0], [-1.0]]))
    assert read(backend)["actuator_force"].tolist() == [[2.0], [-1.0]]
    assert read(backend)["qacc"].tolist() == [[8.0], [-4.0]]  # 2 / 0.25
    assert backend.get_state_views()["qvel"].flatten().tolist() == pytest.approx([8.0 * 0.004, -4.0 * 0.004])


SWING = """<mujoco><worldbody><body><joint name="hinge" axis="0 1 0"/><geom size=".1" mass="1" pos="0 0 -1"/></body>
  </worldbody><actuator><position name="hinge" joint="hinge" kp="30" kv="3"/></actuator></mujoco>"""


def swing():
    return mujoco.MjSpec.from_string(SWING)


def test_with_rk4_the_acceleration_is_the_mean_over_the_substep():
    scene = SceneCfg(entities={"robot": EntityCfg(spec=swing)})
    sim = SimCfg(timestep=0.05, num_threads=1, integrator="rk4")
    backend = make_backend("mujoco", scene, sim, num_envs=1)
    reset_rows(backend, [0], qpos=[[0.5]], qvel=[[2.0]], ctrl=[[1.0]])
    first = read(backend)
    backend.step_tensor(torch.ones(1, 1))
    speed = float(backend.get_state_views(("qvel",))["qvel"])
    assert float(read(backend)["qacc"]) == pytest.approx((speed - 2.0) / 0.05, rel=1e-5)
    # A forward of the state that the substep began with is far from it.
    assert abs(float(read(backend)["qacc"] - first["qacc"])) > 1.0
    backend.close()


@BOTH
def test_model_fields_written_mid_step_leave_them_as_they_are(persistent):
    declared = Declared(model_fields=("body_mass", "actuator_gainprm"))
    backend = leg_backend(5, declared=declared, persistent=persistent, num_threads=2)
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        backend.step_tensor(torch.rand(5, 3, generator=generator), 4)
    before = read(backend)
    fields = backend.model_layout.fields
    model = {name: fields[name].nominal_tensor().unsqueeze(0) * 1.5 for name in declared.model_fields}
    mask = torch.tensor([False, True, False, False, False])
    backend.write_rows(mask, ResetPayload(torch.tensor([1]), model=model))
    write_rows(backend, [3, 4], qvel=[[1.0] * 8] * 2)
    for name, values in read(backend).items():
        assert torch.equal(values, before[name]), name


@BOTH
def test_a_plan_reads_them_between_state_and_sensors(persistent):
    backend = hoppers(3, persistent)
    spec = HostBridgeSpec(state=("qvel",), acceleration=FIELDS, sensors=("robot/touch",))
    plan = backend.compile_host_bridge_io(spec)
    assert [block.key for block in plan.layout.blocks] == ["qvel", *FIELDS, "sensor:robot/touch"]
    plan.write_control(torch.tensor([[0.1, 0.2, 0.3]] * 3))
    plan.step(4)
    packet = plan.read()
    for name in FIELDS:
        assert torch.equal(packet[:, plan.layout.columns(name)], read(backend)[name])
    before = packet.clone()
    reset_rows(plan, [1], qvel=[[0.5] * 8])
    plan.read_selected()
    columns = plan.layout.columns("qacc")
    assert not torch.equal(packet[1, columns], before[1, columns])
    assert torch.equal(packet[[0, 2]], before[[0, 2]])


@BOTH
def test_a_snapshot_brings_them_back_where_a_forward_would_not(persistent):
    backend, other = hoppers(3, persistent), hoppers(3, persistent)
    for _ in range(10):
        backend.step_tensor(torch.full((3, 3), 0.5), 4)
    before, saved = read(backend), backend.snapshot()
    write_rows(backend, [0], qvel=[[0.5] * 8])
    other.restore(saved)
    for each in (backend, other):
        for name, values in read(each).items():
            assert torch.equal(values, before[name]), name
    reset_rows(other, [1])
    new = hoppers(3, persistent)
    for name, values in read(other).items():
        assert torch.equal(values[1], read(new)[name][1]), name
        assert torch.equal(values[[0, 2]], before[name][[0, 2]]), name
