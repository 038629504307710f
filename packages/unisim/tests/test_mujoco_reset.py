"""Reset and row write: what they clear, what they keep, and whom they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from unisim_support import (
    HOPPER_SENSORS,
    ReferenceRows,
    from_xml,
    hopper,
    reference_hopper,
    reset_rows,
    rows_of,
    sensor_of,
    write_rows,
)

from unisim import HostBridgeSpec, ResetRejectedError

QPOS = [0.3, -0.2, 1.5, 0.5, 0.5, 0.5, 0.5, 0.4, -0.7]
QVEL = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


def controls(steps: int, num_envs: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(num_envs, 3, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


def run(backend, steps: int) -> None:
    for ctrl in controls(steps, backend.num_envs):
        backend.step_tensor(ctrl, nsteps=4)


def everything(backend) -> torch.Tensor:
    """All state, sensors, bodies and sites of every row."""
    spec = HostBridgeSpec(
        sensors=HOPPER_SENSORS, bodies=("robot/base", "robot/shank"), sites=("robot/imu", "robot/foot")
    )
    return backend.compile_host_bridge_io(spec).read().clone()


@pytest.fixture
def twins(simulate):
    """Two equal backends of 4 rows in mid-motion, actuator state and contacts included."""
    made = simulate(hopper, 4), simulate(hopper, 4)
    for backend in made:
        run(backend, 40)
    return made


def test_a_reset_leaves_every_other_row_bit_for_bit_derived_values_included(twins):
    backend, _ = twins
    before = everything(backend)
    reset_rows(backend, [0, 2], qpos=[QPOS, QPOS], qvel=[QVEL, QVEL])
    assert torch.equal(everything(backend)[[1, 3]], before[[1, 3]])


def test_rows_that_were_not_reset_go_on_like_those_of_a_twin(twins):
    backend, twin = twins
    reset_rows(backend, [0, 2], qpos=[QPOS, QPOS])
    for each in twins:
        run(each, 20)
    assert torch.equal(everything(backend)[[1, 3]], everything(twin)[[1, 3]])


def reference_after_reset(ctrl) -> ReferenceRows:
    reference = ReferenceRows(reference_hopper(), 1)
    reference.reset(0, np.float32(QPOS), np.float32(QVEL), np.float32(ctrl))
    return reference


def test_after_a_reset_every_read_is_that_of_a_full_forward(twins):
    backend, _ = twins
    reset_rows(backend, [1], qpos=[QPOS], qvel=[QVEL], ctrl=[[0.2, -0.3, 0.5]])
    reference = reference_after_reset([0.2, -0.3, 0.5])
    for sensor in HOPPER_SENSORS:
        expected = sensor_of(reference.rows, sensor.removeprefix("robot/"))[0]
        assert torch.equal(backend.get_sensor_view(sensor)[1], expected), sensor


def test_after_a_reset_a_row_goes_on_as_a_new_simulation(twins):
    # Time, actuator state, warm start and the old control are gone: the future is that of fresh data.
    backend, _ = twins
    reset_rows(backend, [1], qpos=[QPOS], qvel=[QVEL], ctrl=[[0.2, -0.3, 0.5]])
    reference = reference_after_reset([0.2, -0.3, 0.5])
    for ctrl in controls(30, 4):
        backend.step_tensor(ctrl, nsteps=4)
        reference.step(ctrl[1:2], 4)
    assert torch.equal(backend.get_state_views()["qpos"][1:2], rows_of(reference.rows, "qpos"))
    assert backend.get_sensor_view("robot/clock")[1].item() == pytest.approx(30 * 4 * 0.004)


def test_a_reset_sets_the_clock_to_zero(twins):
    backend, _ = twins
    assert backend.get_sensor_view("robot/clock")[1].item() == pytest.approx(40 * 4 * 0.004)
    reset_rows(backend, [1])
    clock = backend.get_sensor_view("robot/clock")
    assert clock[1].item() == 0.0
    assert clock[0].item() > 0.0


@pytest.mark.parametrize("field", ["xfrc_applied", "qfrc_applied", "act", "qacc_warmstart"])
def test_a_reset_clears_what_would_act_on_the_new_episode(twins, field):
    backend, _ = twins
    values = backend._batch.bind(field)
    values[:] = 0.5
    reset_rows(backend, [1])
    assert not np.any(values[1]) or field == "qacc_warmstart"  # a full forward may leave its own warm start
    assert np.all(values[[0, 2, 3]] == 0.5)
    if field == "qacc_warmstart":
        assert not np.any(values[1] == 0.5)


def test_a_reset_without_a_payload_brings_back_the_defaults(simulate):
    backend = simulate(
        hopper, 2, joint_pos={"hip": 0.3, "knee": -0.4}, joint_vel={"knee": 1.5}, pos=(1.0, 2.0, 3.0)
    )
    run(backend, 5)
    reset_rows(backend, [1])
    views = backend.get_state_views()
    torch.testing.assert_close(
        views["qpos"][1], torch.tensor([1.0, 2.0, 3.45, 1.0, 0.0, 0.0, 0.0, 0.3, -0.4])
    )
    torch.testing.assert_close(views["qvel"][1], torch.tensor([0.0] * 7 + [1.5]))


def test_every_row_starts_in_the_default_state_with_fresh_reads(simulate):
    backend = simulate(hopper, 2, joint_pos={"hip": 0.3})
    views = backend.get_state_views()
    assert views["qpos"][:, 7].tolist() == pytest.approx([0.3, 0.3])
    assert views["ctrl"][:, 0].tolist() == pytest.approx([0.3, 0.3])
    assert torch.all(backend.get_sensor_view("robot/foot_pos")[:, 2] > 0.0)


def test_a_position_actuator_holds_the_reset_pose_and_others_are_zero(simulate):
    backend = simulate(hopper, 2)
    run(backend, 5)
    reset_rows(backend, [1], qpos=[QPOS])
    assert backend.get_state_views()["ctrl"][1].tolist() == pytest.approx([0.4, 0.0, 0.0])
    assert backend.get_sensor_view("robot/torque")[1].item() == pytest.approx(0.0, abs=1e-9)


def test_a_muscle_is_not_taken_for_a_position_actuator(simulate):
    xml = """<mujoco><worldbody><body name="rod"><joint name="hinge" axis="0 1 0" ref="0.5"/>
      <geom size=".1" pos="0 0 -1"/></body></worldbody>
      <actuator><muscle name="m" joint="hinge" lengthrange="0.1 1"/></actuator></mujoco>"""
    backend = simulate(from_xml, 1, params={"xml": xml})
    assert backend.get_state_views()["ctrl"].tolist() == [[0.0]]


def control_at_reset(simulate, actuator: str, angle: float) -> float:
    xml = f"""<mujoco><worldbody><body name="rod"><joint name="hinge" axis="0 1 0"/><geom size=".1"/></body>
      </worldbody><actuator><{actuator} name="p" joint="hinge" kp="5"/></actuator></mujoco>"""
    backend = simulate(from_xml, 1, params={"xml": xml}, joint_pos={"hinge": angle})
    return backend.get_state_views()["ctrl"].item()


def test_an_integrated_velocity_is_no_length_to_hold(simulate):
    assert control_at_reset(simulate, 'intvelocity actrange="-3 3"', 0.75) == 0.0


def test_a_filtered_position_is_a_length_to_hold(simulate):
    assert control_at_reset(simulate, 'position timeconst=".1"', 0.75) == 0.75


@pytest.mark.parametrize(("angle", "held"), [(0.75, 0.5), (-0.75, -0.25), (0.125, 0.125)])
def test_the_control_that_holds_stays_in_its_range(simulate, angle, held):
    assert control_at_reset(simulate, 'position ctrlrange="-.25 .5"', angle) == held


def test_a_gear_scales_the_control_that_holds(simulate):
    xml = """<mujoco><worldbody><body name="rod"><joint name="hinge" axis="0 1 0"/><geom size=".1"/></body>
      </worldbody><actuator><position name="p" joint="hinge" kp="5" gear="2"/></actuator></mujoco>"""
    backend = simulate(from_xml, 1, params={"xml": xml}, joint_pos={"hinge": 0.25})
    assert backend.get_state_views()["ctrl"].tolist() == [[0.5]]  # length = gear * angle


def test_qa_023_a_reset_forgets_the_contacts_of_the_old_pose(simulate):
    # A box of 2 kg at rest presses with 2 * 9.81 = 19.62 N; lifted to 2 m it touches nothing.
    xml = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/><body name="box" pos="0 0 .1">
      <freejoint name="root"/><geom name="g" type="box" size=".1 .1 .1" mass="2"/>
      <site name="all" type="box" size=".2 .2 .2"/></body></worldbody>
      <sensor><touch name="touch" site="all"/></sensor></mujoco>"""
    backend = simulate(from_xml, 2, params={"xml": xml})
    backend.step_tensor(torch.zeros(2, 0), nsteps=500)
    touch = backend.get_sensor_view("robot/touch")[:, 0]
    assert touch.tolist() == pytest.approx([19.62, 19.62], rel=1e-3)
    reset_rows(backend, [1], qpos=[[0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0]])
    after = backend.get_sensor_view("robot/touch")[:, 0]
    assert after[1].item() == 0.0
    assert torch.equal(after[0], touch[0])


def test_a_payload_that_is_not_valid_changes_nothing(twins):
    backend, _ = twins
    before = everything(backend)
    with pytest.raises(ResetRejectedError, match="qpos of row 1, column 2 is nan"):
        reset_rows(backend, [1], qpos=[[0.0, 0.0, float("nan"), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    assert torch.equal(everything(backend), before)


def test_a_row_write_keeps_clock_control_and_what_is_not_given(twins):
    backend, _ = twins
    before = {name: backend.get_sensor_view(f"robot/{name}") for name in ("clock", "acc", "torque")}
    views = backend.get_state_views()
    write_rows(backend, [2], qvel=[QVEL])
    after = backend.get_state_views()
    assert torch.equal(after["qpos"], views["qpos"])
    assert torch.equal(after["ctrl"], views["ctrl"])
    assert torch.equal(backend.get_sensor_view("robot/clock"), before["clock"])
    assert after["qvel"][2].tolist() == pytest.approx(QVEL)


def test_a_row_write_refreshes_position_and_velocity_reads_and_keeps_the_last_substeps_forces(twins):
    backend, _ = twins
    before = {name: backend.get_sensor_view(f"robot/{name}") for name in ("acc", "torque")}
    write_rows(backend, [2], qpos=[QPOS], qvel=[QVEL])
    reference = reference_after_reset([0.0, 0.0, 0.0])
    for sensor in ("foot_pos", "foot_vel", "gyro", "speed"):
        assert torch.equal(
            backend.get_sensor_view(f"robot/{sensor}")[2], sensor_of(reference.rows, sensor)[0]
        )
    for sensor, values in before.items():
        assert torch.equal(backend.get_sensor_view(f"robot/{sensor}"), values), sensor


def test_a_row_write_leaves_every_other_row_bit_for_bit(twins):
    backend, twin = twins
    write_rows(backend, [2], qvel=[QVEL])
    assert torch.equal(everything(backend)[[0, 1, 3]], everything(twin)[[0, 1, 3]])
    for each in twins:
        run(each, 10)
    assert torch.equal(everything(backend)[[0, 1, 3]], everything(twin)[[0, 1, 3]])


def test_a_row_write_of_what_was_read_rounds_nothing(twins):
    backend, twin = twins
    views = backend.get_state_views()
    qvel = views["qvel"][2:3].clone()
    qvel[0, 7] += 0.5
    write_rows(backend, [2], qpos=views["qpos"][2:3].tolist(), qvel=qvel.tolist())
    for name, stop in (("qpos", 9), ("qvel", 7)):
        stored, before = backend._batch.bind(name), twin._batch.bind(name)
        assert np.array_equal(stored[:, :stop], before[:, :stop]), name
        assert not np.array_equal(before, np.float32(before)), name  # or nothing could be rounded
    assert backend._batch.bind("qvel")[2, 7] == qvel[0, 7].item()


def test_after_a_row_write_the_row_goes_on_as_plain_mujoco_with_the_same_write(simulate):
    # Plain MuJoCo keeps time, actuator state and warm start when only velocities are overwritten.
    backend, reference = simulate(hopper, 2), ReferenceRows(reference_hopper(), 2)
    for i, ctrl in enumerate(controls(60, 2)):
        if i == 40:
            write_rows(backend, [1], qvel=[QVEL])
            reference.rows[1].qvel[:] = np.float32(QVEL)
        backend.step_tensor(ctrl, nsteps=4)
        reference.step(ctrl, 4)
    assert torch.equal(backend.get_state_views()["qpos"], rows_of(reference.rows, "qpos"))


def test_set_state_writes_the_full_state_of_its_rows_only(twins):
    backend, _ = twins
    before = backend.get_state_views()
    backend.set_state_tensor(torch.tensor([3]), torch.tensor([QPOS]), torch.tensor([QVEL]))
    after = backend.get_state_views()
    assert after["qpos"][3].tolist() == pytest.approx(QPOS)
    assert after["qvel"][3].tolist() == pytest.approx(QVEL)
    assert torch.equal(after["qpos"][:3], before["qpos"][:3])


@pytest.mark.parametrize("num_envs", [1, 3])
def test_one_reset_of_all_rows_equals_resets_one_by_one(simulate, num_envs):
    together, single = simulate(hopper, num_envs), simulate(hopper, num_envs)
    for backend in (together, single):
        run(backend, 10)
    reset_rows(together, list(range(num_envs)), qpos=[QPOS] * num_envs)
    for i in reversed(range(num_envs)):
        reset_rows(single, [i], qpos=[QPOS])
    assert torch.equal(everything(together), everything(single))
