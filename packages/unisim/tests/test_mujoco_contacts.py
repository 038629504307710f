"""Contact sensors: hand-computed forces, resets that forget them, and the engine's own sensor as the reference."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from unisim_support import from_xml, reset_rows

from unisim import ConfigError, ContactSensorCfg, EntityCfg, HostBridgeSpec, SceneCfg, SimCfg, make_backend
from unisim.contract import Declared

# Two boxes side by side on a plane, of 2 and 1 kg, and a ball that hangs above.
BOXES = """
<worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body name="box" pos="0 0 .1"><freejoint/><geom name="g" type="box" size=".1 .1 .1" mass="2"/></body>
  <body name="other" pos="1 0 .1"><freejoint/><geom name="h" type="box" size=".1 .1 .1" mass="1"/></body>
  <body name="post" pos="3 0 1"><geom name="p" size=".05" mass="1"/>
    <body name="ball" pos="0 0 1"><joint type="slide" axis="0 0 1"/><geom name="b" size=".05" mass="1"/></body>
  </body>
</worldbody>"""
WEIGHT = 2.0 * 9.81
BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def boxes(*sensors: ContactSensorCfg, num_envs: int = 2, persistent: bool = True, declared=None, threads=1):
    xml = f"<mujoco>{BOXES}</mujoco>"
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}, sensors=sensors)
    sim = SimCfg(timestep=0.004, num_threads=threads, persistent=persistent)
    return make_backend("mujoco", scene, sim, num_envs=num_envs, declared=declared)


def contact(name: str, target: str = "robot/box", **options) -> ContactSensorCfg:
    return ContactSensorCfg(name=name, target=target, **options)


def settle(backend, steps: int = 125) -> None:
    for _ in range(steps):
        backend.step_tensor(torch.zeros(backend.num_envs, 0), 4)


def test_the_net_force_of_a_resting_box_is_its_weight_on_the_floor():
    backend = boxes(contact("net"))
    assert backend.get_tensor_capabilities().contact_reads
    settle(backend)
    found, *force = backend.get_sensor_view("net")[0].tolist()
    assert found == 4.0  # its corners
    assert force == pytest.approx([0.0, 0.0, -WEIGHT], abs=1e-3)


def test_seen_from_the_floor_it_points_the_other_way():
    backend = boxes(
        contact("up", "robot/floor", of="geom", against="robot/g"),
        contact("both", "robot/floor", of="geom"),
    )
    settle(backend)
    assert backend.get_sensor_view("up")[0].tolist() == pytest.approx([4.0, 0.0, 0.0, WEIGHT], abs=1e-3)
    assert backend.get_sensor_view("both")[0, 3].item() == pytest.approx(3.0 * 9.81, abs=2e-3)


def test_the_strongest_contacts_come_first_in_their_own_frame():
    # Each of four corners carries a quarter; x is the normal.
    backend = boxes(contact("max", reduce="maxforce", num=2, data=("force",)))
    settle(backend)
    slots = backend.get_sensor_view("max")[0].reshape(2, 3)
    assert slots[:, 0].tolist() == pytest.approx([WEIGHT / 4.0] * 2, abs=1e-3)
    assert slots[:, 1:].abs().max().item() == pytest.approx(0.0, abs=1e-3)


def test_only_contacts_with_the_other_element_count():
    backend = boxes(
        contact("floor", "robot/g", of="geom", against="robot/floor"),
        contact("boxes", against="robot/other"),
        contact("ball", "robot/ball"),
    )
    settle(backend)
    assert backend.get_sensor_view("floor")[0].tolist() == pytest.approx([4, 0, 0, -WEIGHT], abs=1e-3)
    assert backend.get_sensor_view("boxes")[0].tolist() == [0.0] * 4
    # The ball slides down until it rests on the post.
    assert backend.get_sensor_view("ball")[0].tolist() == pytest.approx([1, 0, 0, -9.81], abs=1e-2)


def test_columns_are_in_the_order_of_contact_data_and_empty_slots_are_zero():
    data = ("normal", "found", "dist", "tangent", "pos", "torque", "force")
    backend = boxes(contact("all", reduce="none", num=6, data=data))
    settle(backend)
    slots = backend.get_sensor_view("all")[0].reshape(6, 17)
    found, force, torque, dist = slots[:4, 0], slots[:4, 1:4], slots[:4, 4:7], slots[:4, 7]
    pos, normal, tangent = slots[:4, 8:11], slots[:4, 11:14], slots[:4, 14:17]
    assert found.tolist() == [4.0] * 4
    assert force[:, 0].sum().item() == pytest.approx(WEIGHT, abs=1e-3)
    assert torque.abs().max().item() == pytest.approx(0.0, abs=1e-3)
    assert ((dist < 0) & (dist > -1e-3)).all()
    corners = sorted(tuple(round(x, 3) + 0.0 for x in row[:2]) for row in pos.tolist())
    assert corners == [(-0.1, -0.1), (-0.1, 0.1), (0.1, -0.1), (0.1, 0.1)]
    assert normal.tolist() == [pytest.approx([0.0, 0.0, -1.0])] * 4  # from the box to the floor
    assert (normal * tangent).sum(dim=1).abs().max().item() == pytest.approx(0.0, abs=1e-6)
    assert not slots[4:].any()


def test_the_deepest_contact_is_the_one_of_mindist():
    backend = boxes(contact("deep", reduce="mindist", data=("dist",)))
    tilt = 0.05
    qpos = torch.tensor(backend.model_layout.default_qpos)
    qpos[2], qpos[3], qpos[5] = (
        0.1,
        np.cos(tilt / 2),
        np.sin(tilt / 2),
    )  # turned about y: one edge below the floor
    reset_rows(backend, [0], qpos=[qpos.tolist()])
    depth = 0.1 * (np.cos(tilt) + np.sin(tilt)) - 0.1
    assert backend.get_sensor_view("deep")[0].item() == pytest.approx(-depth, abs=1e-6)
    assert backend.get_sensor_view("deep")[1].item() == pytest.approx(0.0, abs=1e-6)


@BOTH
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_qa_023_a_reset_that_lifts_a_box_forgets_its_contacts_and_nobody_else_s(persistent, threads):
    declared = Declared(substep_sensors=("net",), decimation=4)
    backend = boxes(contact("net"), num_envs=5, persistent=persistent, declared=declared, threads=threads)
    settle(backend)
    plan = backend.compile_host_bridge_io(
        HostBridgeSpec(sensors=("net",), substep_sensors=("net",), decimation=4)
    )
    before = plan.read().clone()
    net, history = plan.layout.columns("sensor:net"), plan.layout.columns("substep:net")
    assert before[:, history].reshape(5, 4, 4)[:, :, 3] == pytest.approx(
        torch.full((5, 4), -WEIGHT), abs=1e-3
    )
    qpos = torch.tensor(backend.model_layout.default_qpos)
    qpos[2] = 2.0
    reset_rows(plan, [1, 3], qpos=[qpos.tolist()] * 2)
    plan.read_selected()
    assert not plan.packet[[1, 3]][:, net].any()
    assert not plan.packet[[1, 3]][:, history].any()
    for packet in (plan.packet, plan.read()):
        assert torch.equal(packet[[0, 2, 4]], before[[0, 2, 4]])


def test_qa_023_a_touch_sensor_and_a_contact_sensor_agree():
    xml = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/><body name="box" pos="0 0 .1">
      <freejoint/><geom name="g" type="box" size=".1 .1 .1" mass="2"/><site name="all" type="box" size=".2 .2 .2"/>
      </body></worldbody><sensor><touch name="touch" site="all"/></sensor></mujoco>"""
    scene = SceneCfg(
        entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}, sensors=(contact("net"),)
    )
    backend = make_backend("mujoco", scene, SimCfg(timestep=0.004, num_threads=1), num_envs=1)
    for _ in range(30):
        backend.step_tensor(torch.zeros(1, 0), 4)
        touch = backend.get_sensor_view("robot/touch")[0, 0].item()
        assert -backend.get_sensor_view("net")[0, 3].item() == pytest.approx(touch, abs=1e-4)
    assert touch == pytest.approx(WEIGHT, rel=1e-2)


@BOTH
def test_the_values_equal_those_of_a_sensor_that_the_engine_compiled_from_xml(persistent):
    option = """<option timestep="0.004" integrator="implicitfast" cone="pyramidal" iterations="10" ls_iterations="20"
      jacobian="dense"><flag autoreset="disable"/></option>"""
    sensor = """<sensor>
      <contact name="net" body1="box" data="found force torque" reduce="netforce"/>
      <contact name="max" geom1="g" geom2="floor" num="3" data="force dist pos" reduce="maxforce"/>
      <contact name="tree" subtree1="post" num="2" data="found normal tangent" reduce="mindist"/></sensor>"""
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{option}{BOXES}{sensor}</mujoco>")
    backend = boxes(
        contact("net", data=("found", "force", "torque")),
        contact(
            "max",
            "robot/g",
            of="geom",
            against="robot/floor",
            num=3,
            data=("force", "dist", "pos"),
            reduce="maxforce",
        ),
        contact(
            "tree", "robot/post", of="subtree", num=2, data=("found", "normal", "tangent"), reduce="mindist"
        ),
        persistent=persistent,
    )
    data = mujoco.MjData(model)
    qvel = [0.5, -0.2, 0.1, 0.3, 0.2, 0.1] + [0.0] * 7
    reset_rows(backend, [0], qvel=[qvel])
    data.qvel[:] = np.float32(qvel)
    mujoco.mj_forward(model, data)
    seen = set()
    for _ in range(60):
        backend.step_tensor(torch.zeros(2, 0), 4)
        mujoco.mj_step(model, data, 4)
        for name in ("net", "max", "tree"):
            expected = torch.tensor(data.sensor(name).data.copy()).float()
            assert torch.equal(backend.get_sensor_view(name)[0], expected), name
        seen.add(float(data.sensor("net").data[3]))
    assert len(seen) > 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "robot/boxx"}, r"sensor 'c': unknown body 'robot/boxx'; did you mean 'robot/box'"),
        ({"against": "robot/ohter"}, r"sensor 'c': unknown body 'robot/ohter'; did you mean 'robot/other'"),
        (
            {"of": "geom", "target": "robot/flor"},
            r"sensor 'c': unknown geom 'robot/flor'; did you mean 'robot/floor'",
        ),
    ],
)
def test_an_element_that_does_not_exist_is_answered_with_the_nearest(options, message):
    with pytest.raises(ConfigError, match=message):
        boxes(contact("c", **{"target": "robot/box", **options}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": ()}, r"data \(\) is empty or names something twice"),
        ({"data": ("force", "force")}, "is empty or names something twice"),
        ({"num": 2}, "num is 2; reduce 'netforce' has one slot"),
        ({"num": 0, "reduce": "none"}, "num: Input should be greater than or equal to 1"),
        ({"of": "site"}, "of: Input should be 'geom', 'body' or 'subtree'"),
    ],
)
def test_a_contact_sensor_that_contradicts_itself_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        contact("c", **options)
