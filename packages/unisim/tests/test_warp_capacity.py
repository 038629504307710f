"""MuJoCo-Warp: room for contacts and constraints, and what becomes too much for it."""

from __future__ import annotations

import logging

import mujoco
import mujoco_warp as mjw
import pytest
import torch
from leg_model import leg
from unisim_support import PENDULUM, from_xml, pendulum, reset_rows
from warp_support import warp_backend

from unisim import EntityCfg, SceneCfg, SimCfg
from unisim.backends.mujoco_warp import capacity
from unisim.backends.mujoco_warp.capacity import OVERFLOWS, Capacity, OverflowWatch, find_capacity
from unisim.scene_model import compile_scene

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes


def compiled(build, sim: SimCfg):
    return compile_scene(SceneCfg(entities={"robot": EntityCfg(spec=build)}), sim)


def pile(boxes: int = 4) -> mujoco.MjSpec:
    """Boxes that lie beside each other: four contacts each, sixteen rows of constraints."""
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5.0, 5.0, 0.1])
    for i in range(boxes):
        body = spec.worldbody.add_body(pos=[float(i), 0.0, 0.1])
        body.add_freejoint()
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.1, 0.1], mass=1.0)
    return spec


def rest(backend, steps: int = 10):
    for _ in range(steps):
        backend.step_tensor(torch.zeros(backend.num_envs, 0), 4)


def test_room_is_three_times_what_was_seen_and_never_tiny(monkeypatch):
    model, layout = compiled(pendulum, SimCfg())
    assert find_capacity(model, layout, SimCfg()) == Capacity(nconmax=16, njmax=64)
    monkeypatch.setattr(capacity, "_most_seen", lambda model, layout: (11, 45))
    assert find_capacity(model, layout, SimCfg()) == Capacity(nconmax=40, njmax=136)


def test_what_is_seen_comes_from_falls_and_not_from_the_default_pose_alone():
    model, layout = compiled(leg, SimCfg(timestep=0.004))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    contacts, constraints = capacity._most_seen(model, layout)
    assert contacts > data.ncon
    assert constraints > data.nefc
    assert (contacts, constraints) == capacity._most_seen(model, layout)


@pytest.mark.parametrize("limits", ["1.5 3", "-3 -1.5", "-.5 .25"])
def test_controls_of_the_falls_stay_within_their_limits(limits, monkeypatch):
    xml = PENDULUM.replace('joint="hinge"/>', f'joint="hinge" ctrlrange="{limits}"/>')
    model, layout = compile_scene(
        SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": xml})}), SimCfg()
    )
    used = set()
    step = mujoco.mj_step
    monkeypatch.setattr(mujoco, "mj_step", lambda m, d: (used.add(float(d.ctrl[0])), step(m, d)))
    find_capacity(model, layout, SimCfg())
    low, high = layout.actuators[0].ctrl_range
    assert low <= min(used) <= max(used) <= high


@pytest.mark.parametrize(
    ("sim", "expected"),
    [
        (SimCfg(nconmax=7, njmax=9), Capacity(7, 9)),
        (SimCfg(nconmax=7), Capacity(7, 64)),
        (SimCfg(njmax=9), Capacity(16, 9)),
    ],
)
def test_the_config_decides_where_it_says_something(sim, expected):
    assert find_capacity(*compiled(pendulum, SimCfg()), sim) == expected


def test_the_engine_reserves_what_was_found():
    backend = warp_backend(pile, 3, sim=SimCfg(nconmax=20, njmax=80))
    assert (backend._physics._data.naconmax, backend._physics._data.njmax) == (60, 80)


@pytest.mark.parametrize(
    ("sim", "told"),
    [
        (SimCfg(nconmax=100, njmax=24), "too many constraints of a row: raise sim.njmax"),
        (SimCfg(nconmax=6, njmax=400), "contacts of all rows: raise sim.nconmax"),
    ],
)
def test_an_overflow_is_reported_once_with_the_setting_to_change(caplog, sim, told):
    backend = warp_backend(pile, 2, sim=sim)
    with caplog.at_level(logging.WARNING, logger="unisim"):
        rest(backend)
        reset_rows(backend, [0, 1])
        rest(backend)
    found = [record.message for record in caplog.records if told in record.message]
    assert len(found) == 1, caplog.text
    assert f"room per row: {sim.nconmax} contacts, {sim.njmax} constraints" in found[0]


def test_an_overflow_of_the_last_step_is_reported_when_closing(caplog):
    backend = warp_backend(pile, 1, sim=SimCfg(nconmax=100, njmax=24))
    backend._overflow.poll = lambda words: None  # as on a device that has not answered yet
    with caplog.at_level(logging.WARNING, logger="unisim"):
        rest(backend, 3)
        assert "raise sim.njmax" not in caplog.text
        backend.close()
    assert "raise sim.njmax" in caplog.text


def test_nothing_is_reported_where_there_is_room(caplog, capfd):
    backend = warp_backend(pile, 2)
    with caplog.at_level(logging.WARNING, logger="unisim"):
        rest(backend, 30)
    assert "too many" not in caplog.text
    assert "overflow" not in capfd.readouterr().out
    assert backend.bad_rows().tolist() == [False, False]


def test_a_solver_that_stops_at_its_limit_is_no_overflow(caplog):
    watch = OverflowWatch(mjw.OverflowType.__members__, Capacity(1, 1))
    kinds = mjw.OverflowType
    with caplog.at_level(logging.WARNING, logger="unisim"):
        watch.poll(torch.tensor([int(kinds.ITERATIONS | kinds.LS_ITERATIONS), 0], dtype=torch.int32))
    assert caplog.text == ""


def test_every_other_kind_says_what_to_do(caplog):
    watch = OverflowWatch(mjw.OverflowType.__members__, Capacity(5, 6))
    known = set(mjw.OverflowType.__members__) - {"NONE", "ALL", "ITERATIONS", "LS_ITERATIONS"}
    assert known == set(OVERFLOWS)
    words = torch.tensor([0, int(mjw.OverflowType.ALL)], dtype=torch.int32)
    with caplog.at_level(logging.WARNING, logger="unisim"):
        watch.poll(words)
        watch.poll(words)
    assert len(caplog.records) == len(OVERFLOWS)
    assert all("row 1" in record.message for record in caplog.records)
