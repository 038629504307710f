"""The model is what the tasks take it for."""

import mujoco
import pytest

from my_robot.robot import WHEEL_RADIUS, WHEELS, build_ground, build_robot


def test_it_weighs_3_6_kg_and_each_motor_gives_2_newton_metres():
    model = build_robot().compile()
    assert model.body_mass.sum() == pytest.approx(3.6)
    assert model.actuator_ctrlrange.tolist() == [[-2.0, 2.0], [-2.0, 2.0]]
    assert tuple(model.actuator(i).name for i in range(model.nu)) == WHEELS


def on_the_ground():
    """Returns model and state of the robot standing on the ground."""
    spec = build_robot()
    spec.attach(build_ground(), prefix="ground/", frame=spec.worldbody.add_frame())
    model = spec.compile()
    return model, mujoco.MjData(model)


def test_it_stands_on_its_wheels_alone():
    model, data = on_the_ground()
    data.qpos[2] = WHEEL_RADIUS - 1e-3
    mujoco.mj_forward(model, data)
    touching = {model.geom(i).name for contact in data.contact for i in contact.geom}
    assert touching == {"ground/ground", *WHEELS}


@pytest.mark.parametrize(
    ("torques", "forward", "to_the_left"), [((0.2, 0.2), 1, 0), ((-0.2, -0.2), -1, 0), ((-0.2, 0.2), 0, 1)]
)
def test_equal_torques_drive_it_and_opposite_ones_turn_it(torques, forward, to_the_left):
    model, data = on_the_ground()
    data.ctrl[:] = torques
    mujoco.mj_step(model, data, 50)  # 0.1 s
    assert data.qvel[0] * forward > 0.01 or (forward == 0 and abs(data.qvel[0]) < 1e-3)
    assert data.qvel[5] * to_the_left > 0.1 or (to_the_left == 0 and abs(data.qvel[5]) < 1e-3)
