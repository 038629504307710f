"""Composition of a scene: names, defaults, and messages that name the part that is wrong."""

from __future__ import annotations

import logging
import math

import mujoco
import pytest
from unisim_support import PENDULUM, free_box, from_xml, hopper, pendulum

from unisim import BuiltinSensorCfg, CapabilityError, ConfigError, EntityCfg, SceneCfg, SensorCfg, SimCfg
from unisim.scene_model import compile_scene


def layout(**entities):
    return compile_scene(SceneCfg(entities=entities), SimCfg())[1]


def compose(xml: str, **entity):
    return layout(robot=EntityCfg(spec=from_xml, params={"xml": xml}, **entity))


def no_spec() -> int:
    return 3


def failing() -> mujoco.MjSpec:
    raise RuntimeError("no mesh")


SHARED = mujoco.MjSpec.from_string(
    "<mujoco><worldbody><body name='a'><geom size='1'/></body></worldbody></mujoco>"
)


def shared() -> mujoco.MjSpec:
    return SHARED


def test_elements_are_named_after_their_entity():
    found = layout(robot=EntityCfg(spec=hopper), box=EntityCfg(spec=free_box))
    assert found.bodies == ("world", "robot/base", "robot/thigh", "robot/shank", "box/box")
    assert [joint.name for joint in found.joints] == ["robot/root", "robot/hip", "robot/knee", "box/root"]
    assert [actuator.name for actuator in found.actuators] == ["robot/hip", "robot/knee", "robot/slow"]
    assert found.sites == ("robot/imu", "robot/foot")


def test_joints_say_where_their_columns_are():
    joints = layout(robot=EntityCfg(spec=hopper), box=EntityCfg(spec=free_box)).joints
    columns = [(j.kind, j.qpos_start, j.qpos_dim, j.qvel_start, j.qvel_dim) for j in joints]
    assert columns == [
        ("free", 0, 7, 0, 6),
        ("hinge", 7, 1, 6, 1),
        ("hinge", 8, 1, 7, 1),
        ("free", 9, 7, 8, 6),
    ]


def test_an_entity_knows_its_root_body_and_its_free_joint():
    entities = layout(robot=EntityCfg(spec=hopper), rod=EntityCfg(spec=pendulum)).entities
    assert [(e.name, e.root_body, e.root_joint) for e in entities] == [
        ("robot", "robot/base", "robot/root"),
        ("rod", "rod/rod", None),
    ]


def test_sensors_say_their_stage_and_width():
    stages = {
        s.name.removeprefix("robot/"): (s.dim, s.stage) for s in layout(robot=EntityCfg(spec=hopper)).sensors
    }
    assert stages["foot_pos"] == (3, "position")
    assert stages["gyro"] == (3, "velocity")
    assert stages["acc"] == (3, "acceleration")
    assert stages["touch"] == (1, "acceleration")


def test_limits_and_control_ranges_are_infinite_when_there_are_none():
    found = layout(rod=EntityCfg(spec=pendulum))
    assert found.joints[0].limits == (-math.inf, math.inf)
    assert found.actuators[0].ctrl_range == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("actuator", "kind"),
    [
        ('<motor joint="j" gear="3"/>', "motor"),
        ('<position joint="j" kp="2" gear="3"/>', "servo"),
        ('<velocity joint="j" kv="2" gear="3"/>', "servo"),
        ('<position joint="j" kp="2" timeconst=".1" gear="3"/>', "servo"),
        ('<intvelocity joint="j" kp="2" actrange="-1 1" gear="3"/>', "servo"),
        ('<general joint="j" dyntype="filter" dynprm=".1" gear="3"/>', "servo"),
        ('<muscle joint="j" lengthrange="0 1" gear="3"/>', "other"),
    ],
)
def test_an_actuator_says_how_its_force_follows_and_how_it_is_geared(actuator, kind):
    found = compose(f"""<mujoco><worldbody><body name="b"><joint name="j"/><geom size=".1"/></body></worldbody>
      <actuator>{actuator.replace("joint=", 'name="a" joint=')}</actuator></mujoco>""")
    assert (found.actuators[0].kind, found.actuators[0].gear) == (kind, 3.0)


def test_limits_in_degrees_arrive_in_radians():
    found = compose("""<mujoco><worldbody><body name="b"><joint name="j" range="-90 45"/><geom size=".1"/></body>
      </worldbody></mujoco>""")
    assert found.joints[0].limits == pytest.approx((-math.pi / 2, math.pi / 4))


def test_the_entity_frame_moves_a_free_root():
    half = math.sqrt(0.5)
    found = layout(box=EntityCfg(spec=free_box, pos=(1.0, 2.0, 3.0), quat=(half, 0.0, 0.0, half)))
    assert found.default_qpos == pytest.approx((1.0, 2.0, 4.0, half, 0.0, 0.0, half))


def test_default_joint_positions_are_set_by_name_or_pattern():
    found = layout(
        robot=EntityCfg(spec=hopper, joint_pos={"hip": 0.1, "kn.*": 0.2}, joint_vel={"hip|knee": 0.3})
    )
    assert found.default_qpos[7:] == (0.1, 0.2)
    assert found.default_qvel[6:] == (0.3, 0.3)


def test_the_simulation_settings_reach_the_model():
    model, found = compile_scene(
        SceneCfg(entities={"rod": EntityCfg(spec=pendulum)}), SimCfg(timestep=0.0125, integrator="euler")
    )
    assert found.timestep == model.opt.timestep == 0.0125
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET


def test_a_root_body_and_a_free_joint_without_names_are_found():
    xml = """<mujoco><worldbody><body><freejoint/><geom size=".1"/><body name="leg"><joint/><geom size=".1"/></body>
      </body></worldbody></mujoco>"""
    found = layout(
        a=EntityCfg(spec=from_xml, params={"xml": xml}), b=EntityCfg(spec=from_xml, params={"xml": xml})
    )
    assert [(e.root_body, e.root_joint) for e in found.entities] == [
        ("a/body0", "a/joint0"),
        ("b/body0", "b/joint0"),
    ]
    assert [j.name for j in found.joints] == ["a/joint0", "a/joint1", "b/joint0", "b/joint1"]


def test_geoms_and_sites_without_names_are_found_under_their_entity():
    xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="b"><freejoint/><geom size=".1"/>
      <geom name="tip" size=".1"/><site/><site name="imu"/></body></worldbody></mujoco>"""
    found = compose(xml)
    assert found.geoms == ("robot/geom0", "robot/geom1", "robot/tip")
    assert found.sites == ("robot/site0", "robot/imu")


def test_a_name_made_for_the_unnamed_is_never_one_that_was_given():
    xml = """<mujoco><worldbody><body name="b"><joint axis="1 0 0"/><joint name="joint0"/><joint axis="0 1 0"/>
      <geom size=".1"/><geom name="geom0" size=".1"/></body></worldbody></mujoco>"""
    found = compose(xml)
    assert [j.name for j in found.joints] == ["robot/joint1", "robot/joint0", "robot/joint2"]
    assert found.geoms == ("robot/geom1", "robot/geom0")


OPTIONS = """<mujoco><option timestep=".01" density="1.2"><flag contact="disable"/></option><size memory="3M"/>
  <worldbody><body name="b"><joint/><geom size=".1"/></body></worldbody></mujoco>"""


def test_options_of_an_entity_are_told_once_and_give_way_to_those_of_the_simulation(caplog):
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": OPTIONS})})
    with caplog.at_level(logging.WARNING, logger="unisim"):
        model, _ = compile_scene(scene, SimCfg(timestep=0.004))
    assert [record.getMessage() for record in caplog.records] == [
        "scene.entities.robot: its model sets density, disableflags, timestep, memory, which is ignored: options of "
        "the simulation belong to sim"
    ]
    assert (model.opt.timestep, model.opt.density) == (0.004, 0.0)
    assert not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT


def test_an_option_that_the_simulation_shares_is_not_told(caplog):
    xml = """<mujoco><option timestep=".01"/><worldbody><body name="b"><joint/><geom size=".1"/></body></worldbody>
      </mujoco>"""
    compile_scene(
        SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}), SimCfg(timestep=0.01)
    )
    assert caplog.records == []


def test_options_of_an_entity_reach_neither_stderr_nor_python_warnings(program):
    finished = program(f"""
import logging
logging.getLogger("unisim").addHandler(logging.NullHandler())
from unisim import EntityCfg, SceneCfg, SimCfg, make_backend
from unisim_support import from_xml
scene = SceneCfg(entities={{"robot": EntityCfg(spec=from_xml, params={{"xml": {OPTIONS!r}}})}})
make_backend("mujoco", scene, SimCfg(), num_envs=1).close()
""")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_memory_for_contacts_and_constraints_is_a_setting():
    scene = SceneCfg(entities={"rod": EntityCfg(spec=pendulum)})
    assert compile_scene(scene, SimCfg(memory_mib=3))[0].narena == 3 * 2**20


def sensors(*cfgs):
    return compile_scene(SceneCfg(entities={"robot": EntityCfg(spec=hopper)}, sensors=cfgs), SimCfg())[
        1
    ].sensors


@pytest.mark.parametrize(
    ("kind", "target", "of", "dim"),
    [
        ("accelerometer", "robot/imu", "site", 3),
        ("actuatorfrc", "robot/hip", "site", 1),
        ("force", "robot/foot", "site", 3),
        ("frameangvel", "robot/shank", "body", 3),
        ("framelinvel", "robot/imu", "site", 3),
        ("framepos", "robot/shank", "body", 3),
        ("framequat", "robot/imu", "site", 4),
        ("gyro", "robot/imu", "site", 3),
        ("jointpos", "robot/knee", "site", 1),
        ("jointvel", "robot/knee", "site", 1),
        ("subtreecom", "robot/base", "site", 3),
        ("subtreelinvel", "robot/base", "site", 3),
        ("torque", "robot/foot", "site", 3),
        ("touch", "robot/foot", "site", 1),
        ("velocimeter", "robot/imu", "site", 3),
    ],
)
def test_every_builtin_sensor_is_added_under_its_own_name(kind, target, of, dim):
    added = sensors(BuiltinSensorCfg(name="mine", kind=kind, target=target, of=of))[-1]
    assert (added.name, added.dim) == ("mine", dim)


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        ("gyro", "robot/imo", r"sensor 'mine': unknown site 'robot/imo'; did you mean 'robot/imu'"),
        ("jointpos", "robot/kne", r"sensor 'mine': unknown joint 'robot/kne'; did you mean 'robot/knee'"),
        ("subtreecom", "robot/bas", r"sensor 'mine': unknown body 'robot/bas'; did you mean 'robot/base'"),
        (
            "actuatorfrc",
            "robot/hipp",
            r"sensor 'mine': unknown actuator 'robot/hipp'; did you mean 'robot/hip'",
        ),
    ],
)
def test_a_sensor_without_its_target_is_answered_with_the_nearest(kind, target, message):
    with pytest.raises(ConfigError, match=message):
        sensors(BuiltinSensorCfg(name="mine", kind=kind, target=target))


def test_a_sensor_of_no_known_class_is_refused():
    with pytest.raises(ConfigError, match="sensor 'mine': SensorCfg is not a sensor this composer knows"):
        sensors(SensorCfg(name="mine"))


def test_two_sensors_of_one_name_are_refused():
    with pytest.raises(ConfigError, match=r"sensor names \['a'\] are given twice"):
        SceneCfg(
            sensors=(
                BuiltinSensorCfg(name="a", kind="gyro", target="x"),
                BuiltinSensorCfg(name="a", kind="gyro", target="y"),
            )
        )


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ({"spec": no_spec}, "scene.entities.robot.spec returned int, expected a new mujoco.MjSpec"),
        ({"spec": failing}, "scene.entities.robot: RuntimeError: no mesh"),
        ({"spec": pendulum, "params": {"size": 1}}, r"scene.entities.robot: TypeError: .*'size'"),
        ({"spec": from_xml}, "scene.entities.robot: TypeError: .*'xml'"),
        ({"spec": from_xml, "params": {"xml": "<mujoco/>"}}, "scene.entities.robot: its model has no body"),
        (
            {"spec": hopper, "joint_pos": {"hipp": 0.0}},
            r"scene.entities.robot.joint_pos: 'hipp' matches no slide or hinge joint; did you mean 'hip'\?",
        ),
        ({"spec": hopper, "joint_vel": {"root": 0.0}}, "joint_vel: 'root' matches no slide or hinge joint"),
        ({"spec": hopper, "joint_pos": {"[": 0.0}}, r"joint_pos: '\[' is not a regular expression"),
    ],
)
def test_an_entity_that_is_wrong_is_named(entity, message):
    with pytest.raises(ConfigError, match=message):
        layout(robot=EntityCfg(**entity))


def test_a_function_that_returns_the_same_model_twice_is_named():
    with pytest.raises(ConfigError, match="scene.entities.second: cannot be attached"):
        layout(first=EntityCfg(spec=shared), second=EntityCfg(spec=shared))


def test_a_model_that_does_not_compile_is_a_config_error():
    xml = """<mujoco><worldbody><body name="b"><freejoint name="f"/></body></worldbody></mujoco>"""
    with pytest.raises(ConfigError, match="scene: the model does not compile: "):
        compose(xml)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timestep": 0.0}, "timestep: Input should be greater than 0"),
        ({"integrator": "rk45"}, r"integrator: Input should be 'euler', 'rk4', 'implicit' or 'implicitfast'"),
        ({"iterations": 0}, "iterations: Input should be greater than or equal to 1"),
        ({"memory_mib": 0}, "memory_mib: Input should be greater than or equal to 1"),
        ({"num_threads": -1}, "num_threads: Input should be greater than or equal to 0"),
        ({"num_treads": 1}, r"unknown key 'num_treads'; did you mean 'num_threads'\?"),
    ],
)
def test_wrong_simulation_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        SimCfg(**given)


@pytest.mark.parametrize("name", ["", "1robot", "ro/bot", "ro bot"])
def test_an_entity_name_that_would_break_prefixes_is_refused(name):
    with pytest.raises(ConfigError, match="entities"):
        SceneCfg(entities={name: EntityCfg(spec=pendulum)})


def test_an_orientation_that_is_no_unit_quaternion_is_refused():
    with pytest.raises(ConfigError, match=r"has norm 2, expected a unit quaternion \(wxyz\)"):
        EntityCfg(spec=pendulum, quat=(2.0, 0.0, 0.0, 0.0))


def test_an_actuator_with_several_controls_is_refused():
    xml = PENDULUM.replace('<motor name="hinge" joint="hinge"/>', '<pid name="hinge" joint="hinge"/>')
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})})
    with pytest.raises(CapabilityError, match="1 actuators with 2 controls; .* give each its own"):
        compile_scene(scene, SimCfg())
