"""What describes the last integrated substep: joint accelerations, actuator forces, contacts."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps

from unilab_core import ConfigError
from unisim import ContactSensorCfg, EntityCfg, SceneCfg, SimCfg, make_backend
from unisim.model_layout import ContactLayout
from unisim.testing import FakeBackend, make_layout

N = 2
CONTACTS = {
    "feet": ContactLayout(data=("found", "force"), num=2, reduce="maxforce"),
    "robot/own": ContactLayout(data=("dist", "normal")),
}


class Looking(ScriptedEnv):
    """`look(env)` is what its rewards read; two entities, one actuator each."""

    look = staticmethod(lambda env: None)

    def __init__(self, *, script=None, num_envs=N, **options):
        layout = make_layout(
            joints=("robot/slider", "robot/hinge", "cart/wheel"),
            actuated=("cart/wheel", "robot/slider"),
            sensors={"imu": (3, "acceleration")},
            contacts=CONTACTS,
        )
        super().__init__(num_envs, backend=FakeBackend(layout, num_envs, script=script), **options)

    num_actions = 2

    def _rewards(self):
        self.look(self)
        return super()._rewards()


def looking(look, **options):
    env = type("Looking", (Looking,), {"look": staticmethod(look)})(**options)
    env.reset()
    return env


def test_accelerations_and_forces_are_those_of_the_entity_s_own_joints_and_actuators():
    def look(env):
        return [
            (env.scene[e].data.joint_acc.shape, env.scene[e].data.actuator_force.shape) for e in env.scene
        ]

    with looking(look) as env:
        assert env.describe().reads == ("qpos", "qvel", "ctrl", "qacc", "actuator_force")
        # The control columns are wheel, slider; a unit control accelerates its joint by 1.
        env.step(torch.tensor([[0.5, -0.25], [0.0, 1.0]]))
        robot, cart = env.scene["robot"].data, env.scene["cart"].data
        assert robot.joint_acc.tolist() == [[-0.25, 0.0], [1.0, 0.0]]
        assert robot.actuator_force.tolist() == [[-0.25], [1.0]]
        assert cart.joint_acc.tolist() == [[0.5], [0.0]]
        assert cart.actuator_force.tolist() == [[0.5], [0.0]]


def test_after_a_reset_they_are_those_of_the_reset_control_for_its_rows_only():
    with looking(lambda env: env.scene["robot"].data.joint_acc) as env:
        env.step(torch.ones(N, 2))
        env.reset(torch.tensor([1]))
        assert env.scene["robot"].data.joint_acc.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def feet(force):
    """Two slots of (found, force): (N, 8)."""
    return lambda step, state: {"sensor:feet": torch.tensor(force, dtype=torch.float64)}


def test_a_contact_sensor_gives_numbers_per_slot_and_vectors_per_slot():
    rows = [[2.0, 1, 2, 3, 2.0, 4, 5, 6], [0.0] * 8]
    with looking(lambda env: env.scene.contact("feet").found, script=feet(rows)) as env:
        steps(env, 1)
        contact = env.scene.contact("feet")
        assert contact.found.tolist() == [[2.0, 2.0], [0.0, 0.0]]
        assert contact.force.tolist() == [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[0.0] * 3] * 2]
        assert contact.layout.num == 2
        # A view: nothing was copied.
        column = env.scene.sensor("feet")
        assert contact.force.untyped_storage().data_ptr() == column.untyped_storage().data_ptr()


def test_one_slot_keeps_its_dimension():
    def script(step, state):
        return {"sensor:robot/own": torch.tensor([[-0.1, 0.0, 0.0, 1.0]] * N, dtype=torch.float64)}

    with looking(lambda env: env.scene["robot"].data.contact("own").dist, script=script) as env:
        steps(env, 1)
        own = env.scene["robot"].data.contact("own")
        torch.testing.assert_close(own.dist, torch.tensor([[-0.1]] * N))
        assert own.normal.tolist() == [[[0.0, 0.0, 1.0]]] * N


def test_an_entity_s_own_contact_sensor_goes_before_the_scene_s():
    with looking(lambda env: env.scene["robot"].data.contact("feet").found) as env:
        data = env.scene["robot"].data
        assert data.contact("own").name == "robot/own"
        assert data.contact("feet").name == "feet"


def test_making_a_contact_handle_reads_nothing_and_reading_a_field_does():
    with looking(lambda env: env.scene.contact("feet")) as env:
        assert "sensor:feet" not in env.describe().reads
    with looking(lambda env: env.scene.contact("feet").force) as env:
        assert "sensor:feet" in env.describe().reads


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda env: env.scene.contact("feed"), "unknown contact sensor 'feed'; did you mean 'feet'"),
        (
            lambda env: env.scene.contact("imu"),
            "unknown contact sensor 'imu'; valid names: 'feet', 'robot/own'",
        ),
        (lambda env: env.scene["cart"].data.contact("own"), "unknown contact sensor 'own'"),
        (
            lambda env: env.scene.contact("feet").torque,
            r"contact sensor 'feet' does not report 'torque'; valid names: 'force', 'found' \(add it to the sensor's",
        ),
        (lambda env: env.scene["robot"].data.contact("own").pos, "does not report 'pos'"),
    ],
)
def test_an_unknown_contact_sensor_or_field_is_named(look, message):
    with pytest.raises(ConfigError, match=message) as caught:
        looking(look)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "look",
    [
        lambda env: env.scene["robot"].data.joint_acc,
        lambda env: env.scene["robot"].data.actuator_force,
        lambda env: env.scene.contact("feet").found,
        lambda env: env.scene["robot"].data.contact("own").dist,
    ],
    ids=["joint_acc", "actuator_force", "scene contact", "own contact"],
)
def test_reading_them_while_a_reset_is_staged_is_refused(look):
    staging = type("Staging", (Looking,), {"_stage_reset": lambda self, ids: look(self)})
    with pytest.raises(ConfigError, match="is read while a reset is staged; it is defined after the commit"):
        staging()


# ---------------------------------------------------------------- on MuJoCo

XML = """
<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1" condim="1"/>
  <body name="box" pos="0 0 .1"><joint name="lift" type="slide" axis="0 0 1"/>
  <joint name="slide" type="slide" axis="1 0 0"/>
  <geom name="g" type="box" size=".1 .1 .1" mass="2" condim="1"/></body></worldbody>
<actuator><motor name="slide" joint="slide" gear="3"/></actuator></mujoco>"""


def box():
    return pytest.importorskip("mujoco").MjSpec.from_string(XML)


def test_a_resting_box_pushes_the_floor_with_its_weight_and_a_motor_accelerates_it():
    scene = SceneCfg(
        entities={"robot": EntityCfg(spec=box)},
        sensors=(ContactSensorCfg(name="ground", target="robot/box", data=("found", "force")),),
    )
    sim = SimCfg(timestep=0.01, num_threads=1)

    class Box(ScriptedEnv):
        def _rewards(self):
            data = self.scene["robot"].data
            return data.joint_acc[:, 1] + data.actuator_force[:, 0] + data.contact("ground").force[:, 0, 2]

    with Box(N, backend=make_backend("mujoco", scene, sim, num_envs=N)) as env:
        env.reset()
        for _ in range(200):
            env.step(torch.tensor([[0.0], [0.1]]))
        data = env.scene["robot"].data
        contact = data.contact("ground")
        assert (contact.found > 0).all()
        # What the box exerts on the floor: 2 kg x 9.81 m/s^2 downwards.
        torch.testing.assert_close(contact.force[:, 0, 2], torch.full((N,), -19.62), atol=0.05, rtol=0)
        # A control of 0.1; the gear of 3 makes 0.3 N of it: 0.15 m/s^2 for 2 kg.
        torch.testing.assert_close(data.actuator_force, torch.tensor([[0.0], [0.1]]), atol=1e-5, rtol=0)
        torch.testing.assert_close(data.joint_acc[:, 1], torch.tensor([0.0, 0.15]), atol=1e-3, rtol=0)


def test_they_keep_describing_the_last_substep_when_a_row_is_written_mid_step():
    class Pushing(Looking):
        def _advance(self) -> None:
            if self.step_counter == 2:
                data = self.scene["robot"].data
                data.write_joint_state(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0]))

        def _rewards(self):
            return self.scene["robot"].data.joint_acc[:, 0]

    with Pushing() as env:
        env.reset()
        env.step(torch.ones(N, 2))
        env.step(torch.full((N, 2), 0.5))
        assert env.scene["robot"].data.joint_vel[0].tolist() == [1.0, 1.0]
        assert env.scene["robot"].data.joint_acc[:, 0].tolist() == [0.5, 0.5]
