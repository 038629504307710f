"""Stepping: the same bits as plain MuJoCo, fresh reads, any number of threads."""

from __future__ import annotations

import mujoco
import pytest
import torch
from unisim_support import (
    HOPPER_SENSORS,
    ReferenceRows,
    free_box,
    from_xml,
    hopper,
    reference_hopper,
    reset_rows,
    rows_of,
    sensor_of,
)

from unisim import HostBridgeSpec, SimCfg

POSITION_AND_VELOCITY = ("foot_pos", "foot_vel", "gyro", "speed")
ACCELERATION = ("acc", "touch", "torque")


def controls(steps: int, num_envs: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(num_envs, 3, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


@pytest.fixture
def pair(simulate):
    """The backend and plain MuJoCo after the same 60 control steps of 4 substeps, through contact."""
    backend, reference = simulate(hopper, 3), ReferenceRows(reference_hopper(), 3)
    for ctrl in controls(60, 3):
        backend.step_tensor(ctrl, nsteps=4)
        reference.step(ctrl, 4)
    assert max(row.ncon for row in reference.rows) > 0
    return backend, reference


def test_the_state_equals_a_loop_of_plain_steps_bit_for_bit(pair):
    backend, reference = pair
    views = backend.get_state_views()
    for field in ("qpos", "qvel", "ctrl"):
        assert torch.equal(views[field], rows_of(reference.rows, field)), field


@pytest.mark.parametrize("sensor", POSITION_AND_VELOCITY)
def test_position_and_velocity_sensors_belong_to_the_new_state(pair, sensor):
    backend, reference = pair
    assert torch.equal(backend.get_sensor_view(f"robot/{sensor}"), sensor_of(reference.refreshed(), sensor))


def test_acceleration_sensors_describe_the_last_substep_of_their_own_row(simulate):
    backend, reference = simulate(hopper, 3), ReferenceRows(reference_hopper(), 3)
    seen = {sensor: set() for sensor in ACCELERATION}
    for ctrl in controls(60, 3):
        backend.step_tensor(ctrl, nsteps=4)
        reference.step(ctrl, 4)
        for sensor in ACCELERATION:
            values = backend.get_sensor_view(f"robot/{sensor}")
            assert torch.equal(values, sensor_of(reference.rows, sensor))
            seen[sensor].update(values[:, 0].tolist())
    assert (
        min(len(values) for values in seen.values()) > 10
    )  # rows and steps differ, the foot touched the floor


def read_part(backend, kind: str, name: str) -> torch.Tensor:
    plan = backend.compile_host_bridge_io(HostBridgeSpec(**{kind: (name,)}))
    return plan.read()[:, -13:].clone()


def object_velocity(model, data, kind, name) -> tuple[torch.Tensor, torch.Tensor]:
    """Linear and angular velocity of a frame's origin in world axes, by MuJoCo's own function."""
    spatial = torch.zeros(6, dtype=torch.float64).numpy()
    mujoco.mj_objectVelocity(model, data, kind, mujoco.mj_name2id(model, kind, name), spatial, 0)
    return torch.tensor(spatial[3:6].copy()).float(), torch.tensor(spatial[0:3].copy()).float()


@pytest.mark.parametrize(
    ("spec_kind", "kind", "name"),
    [
        ("bodies", mujoco.mjtObj.mjOBJ_XBODY, "base"),
        ("bodies", mujoco.mjtObj.mjOBJ_XBODY, "shank"),
        ("sites", mujoco.mjtObj.mjOBJ_SITE, "imu"),
        ("sites", mujoco.mjtObj.mjOBJ_SITE, "foot"),
    ],
)
def test_poses_and_velocities_of_frames_equal_an_independent_forward(pair, spec_kind, kind, name):
    backend, reference = pair
    values = read_part(backend, spec_kind, f"robot/{name}")
    for row, data in zip(values, reference.refreshed(), strict=True):
        frame = data.site(name) if spec_kind == "sites" else data.body(name)
        linear, angular = object_velocity(reference.model, data, kind, name)
        assert torch.equal(row[0:3], torch.tensor(frame.xpos.copy()).float())
        torch.testing.assert_close(row[7:10], linear, atol=2e-6, rtol=2e-6)
        torch.testing.assert_close(row[10:13], angular, atol=2e-6, rtol=2e-6)


def test_orientations_of_frames_equal_an_independent_forward(pair):
    backend, reference = pair
    body = read_part(backend, "bodies", "robot/shank")[:, 3:7]
    site = read_part(backend, "sites", "robot/imu")[:, 3:7]
    for i, data in enumerate(reference.refreshed()):
        assert torch.equal(body[i], torch.tensor(data.body("shank").xquat.copy()).float())
        expected = torch.zeros(4, dtype=torch.float64).numpy()
        mujoco.mju_mat2Quat(expected, data.site("imu").xmat)
        assert abs(float(site[i].double() @ torch.tensor(expected))) == pytest.approx(1.0, abs=1e-6)


def test_qa_021_body_and_joint_positions_belong_to_the_same_instant(simulate):
    # 1 m/s for 10 steps of 2 ms is 20 mm; without a refresh the body is one substep behind, at 18 mm.
    backend = simulate(free_box, 1, sim=SimCfg(timestep=0.002, gravity=(0.0, 0.0, -10.0)))
    reset_rows(backend, [0], qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    backend.step_tensor(torch.zeros(1, 0), nsteps=10)
    assert backend.get_state_views()["qpos"][0, 0].item() == pytest.approx(0.020, abs=1e-7)
    assert read_part(backend, "bodies", "robot/box")[0, 0].item() == pytest.approx(0.020, abs=1e-7)


def test_qa_021_a_velocity_sensor_is_not_one_substep_behind(simulate):
    # g = -10 for 5 steps of 2 ms is -0.10 m/s; without a refresh the sensor says -0.08.
    xml = """<mujoco><worldbody><body name="box"><freejoint name="root"/><geom size=".1"/><site name="s"/></body>
    </worldbody><sensor><framelinvel name="v" objtype="site" objname="s"/></sensor></mujoco>"""
    backend = simulate(
        from_xml, 1, params={"xml": xml}, sim=SimCfg(timestep=0.002, gravity=(0.0, 0.0, -10.0))
    )
    backend.step_tensor(torch.zeros(1, 0), nsteps=5)
    assert backend.get_state_views()["qvel"][0, 2].item() == pytest.approx(-0.10, abs=1e-6)
    assert backend.get_sensor_view("robot/v")[0, 2].item() == pytest.approx(-0.10, abs=1e-6)


def test_qa_050_a_body_velocity_is_linear_first_and_at_the_body_frame(simulate):
    backend = simulate(free_box, 1)
    reset_rows(backend, [0], qvel=[[1.0, 2.0, 3.0, 0.1, 0.2, 0.3]])
    values = read_part(backend, "bodies", "robot/box")[0]
    torch.testing.assert_close(values[7:10], torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(values[10:13], torch.tensor([0.1, 0.2, 0.3]))


def test_qa_050_a_child_off_the_centre_of_mass_moves_with_omega_cross_r(simulate):
    # A heavy body at the origin spins at 1 rad/s about z; the light child's frame is 0.5 m away along x.
    xml = """<mujoco><worldbody><body name="hub"><freejoint name="root"/><geom size=".2" mass="1000"/>
      <body name="arm" pos=".5 0 0"><geom size=".01" mass="1e-6"/></body></body></worldbody></mujoco>"""
    backend = simulate(from_xml, 1, params={"xml": xml})
    reset_rows(backend, [0], qvel=[[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    values = read_part(backend, "bodies", "robot/arm")[0]
    torch.testing.assert_close(values[7:10], torch.tensor([0.0, 0.5, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(values[10:13], torch.tensor([0.0, 0.0, 1.0]), atol=1e-6, rtol=0)


def test_binding_a_body_read_between_steps_changes_no_later_value(simulate):
    watched, plain = simulate(hopper, 2), simulate(hopper, 2)
    for i, ctrl in enumerate(controls(30, 2)):
        watched.step_tensor(ctrl, nsteps=4)
        plain.step_tensor(ctrl, nsteps=4)
        if i == 10:
            read_part(watched, "bodies", "robot/shank")
            read_part(watched, "sites", "robot/foot")
        for sensor in HOPPER_SENSORS:
            assert torch.equal(watched.get_sensor_view(sensor), plain.get_sensor_view(sensor)), (i, sensor)
    assert torch.equal(watched.get_state_views()["qpos"], plain.get_state_views()["qpos"])


def trajectory(simulate, num_threads: int) -> torch.Tensor:
    """200 control steps of 5 rows with partial resets on the way: all state and sensors of every step."""
    backend = simulate(hopper, 5, sim=SimCfg(timestep=0.004, num_threads=num_threads))
    plan = backend.compile_host_bridge_io(
        HostBridgeSpec(sensors=HOPPER_SENSORS, bodies=("robot/shank",), decimation=4)
    )
    frames = []
    for i, ctrl in enumerate(controls(200, 5)):
        plan.write_control(ctrl)
        plan.step(4)
        plan.read()
        if i % 7 == 3:
            reset_rows(plan, [i % 5], qvel=[[0.1 * (i % 3)] * 8])
            plan.read_selected()
        frames.append(plan.packet.clone())
    return torch.stack(frames)


def test_the_number_of_threads_changes_no_bit(simulate):
    one = trajectory(simulate, 1)
    assert torch.isfinite(one).all()
    assert torch.equal(one, trajectory(simulate, 2))
    assert torch.equal(one, trajectory(simulate, 3))


@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
def test_every_integrator_steps_as_plain_mujoco_does(simulate, integrator):
    backend = simulate(hopper, 1, sim=SimCfg(timestep=0.004, integrator=integrator, num_threads=1))
    model = reference_hopper()
    kind = {"euler": "EULER", "rk4": "RK4", "implicit": "IMPLICIT", "implicitfast": "IMPLICITFAST"}[
        integrator
    ]
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{kind}")
    reference = ReferenceRows(model, 1)
    for ctrl in controls(20, 1):
        backend.step_tensor(ctrl, nsteps=3)
        reference.step(ctrl, 3)
    assert torch.equal(backend.get_state_views()["qpos"], rows_of(reference.rows, "qpos"))


def test_an_elliptic_cone_and_solver_limits_reach_the_engine(simulate):
    sim = SimCfg(
        timestep=0.004,
        cone="elliptic",
        iterations=3,
        ls_iterations=5,
        gravity=(0.0, 1.0, -5.0),
        num_threads=1,
    )
    backend = simulate(hopper, 1, sim=sim)
    model = reference_hopper()
    model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    model.opt.iterations, model.opt.ls_iterations = 3, 5
    model.opt.gravity[:] = (0.0, 1.0, -5.0)
    reference = ReferenceRows(model, 1)
    for ctrl in controls(40, 1):
        backend.step_tensor(ctrl, nsteps=4)
        reference.step(ctrl, 4)
    assert reference.rows[0].ncon > 0
    assert torch.equal(backend.get_state_views()["qpos"], rows_of(reference.rows, "qpos"))
