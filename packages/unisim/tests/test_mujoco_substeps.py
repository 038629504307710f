"""The record of every substep: equal to single steps, oldest first, empty after a reset."""

from __future__ import annotations

import pytest
import torch
from leg_model import leg_backend
from unisim_support import from_xml, reset_rows, write_rows

from unisim import (
    CapabilityError,
    ContactSensorCfg,
    EntityCfg,
    HostBridgeSpec,
    SceneCfg,
    SimCfg,
    make_backend,
)
from unisim.contract import Declared

BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
SENSORS = ("robot/touch", "robot/acc", "ground", "robot/toe_vel", "robot/toe_pos")
DIMS = (1, 3, 4, 3, 3)


def controls(steps: int, num_envs: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.rand(num_envs, 3, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


def recorded(names: tuple[str, ...] = SENSORS, decimation: int = 4, **options):
    backend = leg_backend(3, declared=Declared(substep_sensors=names, decimation=decimation), **options)
    spec = HostBridgeSpec(state=(), substep_sensors=names, decimation=decimation)
    return backend, backend.compile_host_bridge_io(spec)


@BOTH
@pytest.mark.parametrize("names", [SENSORS, SENSORS[:3]], ids=["every stage", "acceleration only"])
def test_qa_062_the_record_equals_single_steps_oldest_first(persistent, names):
    backend, plan = recorded(names, persistent=persistent)
    twin = leg_backend(3, persistent=persistent)
    plain = leg_backend(3, persistent=persistent)
    for ctrl in controls(40, 3):
        plan.write_control(ctrl)
        plan.step(4)
        packet = plan.read()
        plain.step_tensor(ctrl, 4)
        for substep in range(4):
            twin.step_tensor(ctrl, 1)
            for name, dim in zip(SENSORS, DIMS, strict=True):
                if name in names:
                    values = packet[:, plan.layout.columns(f"substep:{name}")].reshape(3, 4, dim)
                    assert torch.equal(values[:, substep], twin.get_sensor_view(name)), (name, substep)
    for name in SENSORS:
        assert torch.equal(backend.get_sensor_view(name), plain.get_sensor_view(name)), name
    assert torch.equal(backend.snapshot()["state"], plain.snapshot()["state"])


@BOTH
def test_a_reset_empties_the_record_of_its_rows_only(persistent):
    _, plan = recorded(persistent=persistent)
    for ctrl in controls(20, 3):
        plan.write_control(ctrl)
        plan.step(4)
        plan.read()
    before = plan.packet.clone()
    assert before[1].any()
    reset_rows(plan, [1])
    plan.read_selected()
    assert not plan.packet[1].any()
    assert torch.equal(plan.read()[[0, 2]], before[[0, 2]])


def test_a_row_write_keeps_the_record():
    _, plan = recorded()
    for ctrl in controls(20, 3):
        plan.write_control(ctrl)
        plan.step(4)
        plan.read()
    before = plan.packet.clone()
    write_rows(plan, [1], qvel=[[0.5] * 8])
    plan.read_selected()
    assert torch.equal(plan.packet, before)


def test_a_short_impact_between_control_steps_is_seen():
    # A ball 3 mm above a stiff floor, thrown down at 0.5 m/s: contact in a few substeps, and none at the end.
    xml = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="ball" pos="0 0 .103"><freejoint/>
      <geom name="g" type="sphere" size=".1" mass="1" solref="-40000 0"/></body></worldbody></mujoco>"""
    sensor = ContactSensorCfg(name="hit", target="robot/ball", data=("force",))
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}, sensors=(sensor,))
    declared = Declared(substep_sensors=("hit",), decimation=20)
    sim = SimCfg(timestep=0.002, num_threads=1)
    backend = make_backend("mujoco", scene, sim, num_envs=1, declared=declared)
    plan = backend.compile_host_bridge_io(
        HostBridgeSpec(state=(), sensors=("hit",), substep_sensors=("hit",), decimation=20)
    )
    reset_rows(plan, [0], qvel=[[0.0, 0.0, -0.5, 0.0, 0.0, 0.0]])
    plan.read_selected()
    plan.write_control(torch.zeros(1, 0))
    plan.step(20)
    packet = plan.read()[0]
    history = packet[plan.layout.columns("substep:hit")].reshape(20, 3)[:, 2]
    assert packet[plan.layout.columns("sensor:hit")].tolist() == [0.0, 0.0, 0.0]
    assert history.abs().max() > 1.0
    assert history[0] == history[-1] == 0.0


def test_before_the_first_step_the_record_is_zero_whatever_its_length():
    backend = leg_backend(2, declared=Declared(substep_sensors=("robot/touch",)))
    spec = HostBridgeSpec(state=(), substep_sensors=("robot/touch",), decimation=4)
    assert backend.compile_host_bridge_io(spec).read().tolist() == [[0.0] * 4] * 2


def test_steps_of_another_length_than_the_plan_s_raise_at_the_read():
    backend, plan = recorded()
    backend.step_tensor(torch.zeros(3, 3), 2)
    with pytest.raises(
        ValueError, match=r"'robot/touch' holds 2 substeps, the plan reads 4; step by the plan's decimation"
    ):
        plan.read()


def test_a_record_that_was_not_declared_is_a_capability_error():
    backend = leg_backend(1, declared=Declared(substep_sensors=("robot/touch",)))
    with pytest.raises(CapabilityError, match=r"substep history of \['robot/acc'\] was not declared"):
        backend.compile_host_bridge_io(HostBridgeSpec(substep_sensors=("robot/touch", "robot/acc")))
    with pytest.raises(CapabilityError, match=r"substep history of \['robot/acc'\] was not declared"):
        backend.get_state_views(["substep:robot/acc"])
    with pytest.raises(KeyError, match=r"unknown sensor 'robot/tuch'; did you mean 'robot/touch'"):
        backend.get_state_views(["substep:robot/tuch"])


def test_views_by_key_are_copies_of_what_the_packet_holds():
    backend, _ = recorded()
    backend.step_tensor(controls(1, 3)[0], 4)
    keys = ("qvel", "body:robot/shank", "site:robot/toe", "substep:robot/acc", "sensor:robot/gyro")
    views = backend.get_state_views(keys)
    plan = backend.compile_host_bridge_io(
        HostBridgeSpec(
            state=("qvel",),
            bodies=("robot/shank",),
            sites=("robot/toe",),
            substep_sensors=("robot/acc",),
            sensors=("robot/gyro",),
            decimation=4,
        )
    )
    packet = plan.read()
    assert tuple(views) == keys
    for key, values in views.items():
        assert torch.equal(values, packet[:, plan.layout.columns(key)]), key
    kept = {key: values.clone() for key, values in views.items()}
    backend.step_tensor(controls(2, 3)[1], 4)
    assert all(torch.equal(values, kept[key]) for key, values in views.items())
