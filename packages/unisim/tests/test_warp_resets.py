"""MuJoCo-Warp: a masked reset leaves the other worlds alone, whatever the engine computes for all of them."""

from __future__ import annotations

import mujoco_warp as mjw
import pytest
import torch
from leg_model import leg_backend
from leg_values import changed
from unisim_support import from_xml, reset_rows, rows_mask, write_rows
from warp_support import controls, everything, leg_pair, warp_backend

from unisim import ContactSensorCfg, ResetPayload, SimCfg
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

DECLARED = Declared(
    ("body_mass", "geom_friction"), ("robot/base",), ("robot/touch", "robot/toe_vel"), decimation=4
)

RESTING = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
  <body name="box" pos="0 0 .1"><freejoint name="root"/><geom name="g" type="box" size=".1 .1 .1" mass="2"/>
  <site name="s" size=".3"/></body></worldbody>
  <sensor><touch name="touch" site="s"/></sensor></mujoco>"""


def make(num_envs: int = 4, declared: Declared = DECLARED):
    return leg_backend(num_envs, declared=declared, backend_class=MuJoCoWarpBackend)


def contacts_of(backend, row: int) -> list[tuple[float, ...]]:
    """The engine's contacts of one world, whatever their places in the list that all worlds share."""
    contact, count = backend._physics._data.contact, int(backend._physics._data.nacon.numpy()[0])
    own = contact.worldid.numpy()[:count] == row
    return sorted(
        (float(dist), *map(float, pos), *map(float, geom))
        for dist, pos, geom in zip(
            contact.dist.numpy()[:count][own],
            contact.pos.numpy()[:count][own],
            contact.geom.numpy()[:count][own],
            strict=True,
        )
    )


def on_the_ground(backend) -> None:
    """Steps until the legs have fallen, so that there are contacts and warm starts."""
    for ctrl in controls(backend, 40):
        backend.step_tensor(ctrl, 4)


def test_the_other_worlds_keep_every_bit_of_state_warm_start_reads_and_model():
    backend = make()
    on_the_ground(backend)
    before = backend.snapshot()
    assert before["state:qacc_warmstart"].any(dim=1).all()
    model = {"body_mass": changed("body_mass").expand(2, -1).contiguous()}
    backend.apply_reset(rows_mask([0, 2], 4), ResetPayload(torch.tensor([0, 2]), model=model))
    after = backend.snapshot()
    for key, values in before.items():
        if key != "model":
            assert torch.equal(after[key][[1, 3]], values[[1, 3]]), key
    for key in (
        "state:qpos",
        "state:time",
        "state:qacc_warmstart",
        "field:body_mass",
        "derived:body_subtreemass",
    ):
        assert not torch.equal(after[key][0], before[key][0]), key


def test_the_other_worlds_keep_their_contacts_and_go_on_like_a_twin():
    backend, twin = make(), make()
    for each in (backend, twin):
        on_the_ground(each)
        mjw.forward(
            each._physics.model.engine, each._physics._data
        )  # lists the contacts of the present state
    before = {row: contacts_of(backend, row) for row in range(4)}
    assert all(before.values())
    reset_rows(backend, [0, 2])
    assert {row: contacts_of(backend, row) for row in (1, 3)} == {row: before[row] for row in (1, 3)}
    assert contacts_of(backend, 0) != before[0]
    for ctrl in controls(backend, 15, seed=3):
        for each in (backend, twin):
            each.step_tensor(ctrl, 4)
        found, expected = everything(backend), everything(twin)
        for key in expected:
            assert torch.equal(found[key][[1, 3]], expected[key][[1, 3]]), key


def test_qa_060_a_reset_of_one_world_neither_hides_nor_moves_the_contacts_of_another():
    sensor = ContactSensorCfg(name="ground", target="robot/box", data=("found", "force"))
    up = [[0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0]]
    for lifted, resting in ((0, 1), (1, 0)):
        backend = warp_backend(from_xml, 2, params={"xml": RESTING}, sensors=(sensor,))
        for _ in range(50):
            backend.step_tensor(torch.zeros(2, 0), 4)
        view = backend.get_sensor_view("ground")
        assert (view[:, 0] == 4).all()
        kept = view[resting].clone()
        reset_rows(backend, [lifted], qpos=up)
        assert view[lifted].tolist() == [0.0] * 4
        assert torch.equal(view[resting], kept)
        assert len(contacts_of(backend, resting)) == 4
        assert contacts_of(backend, lifted) == []


def test_qa_023_a_lifted_box_feels_nothing_right_after_its_reset():
    declared = Declared(substep_sensors=("robot/touch",), decimation=4)
    backend = warp_backend(from_xml, 2, params={"xml": RESTING}, declared=declared)
    for _ in range(100):
        backend.step_tensor(torch.zeros(2, 0), 4)
    touch = backend.get_sensor_view("robot/touch")
    assert touch[0].item() == pytest.approx(2 * 9.81, rel=1e-3)
    reset_rows(backend, [0], qpos=[[0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0]])
    assert touch[0].item() == 0.0
    assert touch[1].item() == pytest.approx(2 * 9.81, rel=1e-3)
    history = backend.get_state_views(("substep:robot/touch",))["substep:robot/touch"]
    assert history[0].tolist() == [0.0] * 4
    assert history[1].tolist() == pytest.approx([2 * 9.81] * 4, rel=1e-3)


def test_qa_021_positions_of_bodies_and_velocities_of_sensors_are_those_of_the_state():
    xml = """<mujoco><worldbody><body name="b"><freejoint name="root"/><geom size=".1" mass="1"/>
      <site name="s"/></body></worldbody><sensor><framelinvel name="v" objtype="site" objname="s"/></sensor></mujoco>"""
    sim = SimCfg(timestep=0.002, gravity=(0.0, 0.0, -10.0), integrator="euler")
    backend = warp_backend(from_xml, 1, params={"xml": xml}, sim=sim)
    write_rows(backend, [0], qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    backend.step_tensor(torch.zeros(1, 0), 10)
    views = backend.get_state_views(("qpos", "body:robot/b"))
    assert views["qpos"][0, 0].item() == pytest.approx(0.020, abs=1e-6)
    assert views["body:robot/b"][0, 0].item() == views["qpos"][0, 0].item()
    assert backend.get_sensor_view("robot/v")[0, 2].item() == pytest.approx(-0.2, abs=1e-6)


def test_the_control_after_a_reset_holds_the_pose_as_with_mujoco():
    warp, mujoco = leg_pair(2)
    qpos = [[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.7, -0.3]]
    for backend in (warp, mujoco):
        on_the_ground(backend)
        reset_rows(backend, [1], qpos=qpos)
    found, expected = (each.get_state_views()["ctrl"][1] for each in (warp, mujoco))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0.0)
    assert found.tolist() == pytest.approx([0.7, 0.0, 0.0], abs=1e-6)


def test_a_row_write_keeps_what_the_last_substep_left():
    backend = make()
    on_the_ground(backend)
    before = backend.snapshot()
    write_rows(backend, [1], qvel=[[0.5] * 8])
    after = backend.snapshot()
    for key in (
        "state:time",
        "state:ctrl",
        "state:act",
        "state:qacc_warmstart",
        "read:qacc",
        "read:actuator_force",
    ):
        assert torch.equal(after[key], before[key]), key
    assert torch.equal(backend.get_sensor_view("robot/acc"), _sensor(backend, before, "robot/acc"))
    assert not torch.equal(
        backend.get_sensor_view("robot/toe_vel")[1], _sensor(backend, before, "robot/toe_vel")[1]
    )


def _sensor(backend, saved, name: str) -> torch.Tensor:
    sensor = next(sensor for sensor in backend.model_layout.sensors if sensor.name == name)
    return saved["read:sensordata"][:, sensor.start : sensor.start + sensor.dim]
