"""Packed columns are the engine's own numbers as float32, whatever the order in which they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unisim_support import from_xml, reset_rows

from unisim import EntityCfg, HostBridgeSpec, SceneCfg, SimCfg, make_backend

# Trees of different depth, so that bodies, sites and roots are no even rows of numbers.
XML = """
<mujoco><worldbody>
  <geom type="plane" size="9 9 1"/><site name="mark" pos="1 2 .5" euler=".3 .2 .1"/>
  <body name="a" pos="0 0 1"><freejoint/><geom size=".1"/><site name="a_mid" pos=".1 0 0"/>
    <body name="b" pos=".3 0 0"><joint name="b" axis="0 1 0"/><geom size=".1" pos=".1 .05 0"/>
      <site name="b_tip" pos=".2 .1 0" euler=".1 0 .4"/>
      <body name="c" pos=".3 0 0"><joint name="c" axis="0 0 1"/><geom size=".08" pos=".1 0 .02"/>
        <site name="c_tip" pos=".1 .1 .1"/></body>
    </body>
  </body>
  <body name="d" pos="0 2 1"><joint name="d" axis="1 0 0"/><geom size=".1" pos="0 .2 0"/>
    <site name="d_tip" pos="0 .4 0"/>
    <body name="e" pos="0 .4 0"><joint name="e" axis="0 1 0"/><geom size=".1" pos=".1 .1 0"/></body>
  </body>
  <body name="f" pos="2 0 1"><freejoint/><geom type="box" size=".1 .2 .05"/></body>
</worldbody>
<actuator><motor name="b" joint="b"/><position name="c" joint="c" kp="3"/><motor name="d" joint="d"/></actuator>
<sensor>
  <jointpos name="b" joint="b"/><framelinvel name="tip" objtype="site" objname="c_tip"/><gyro name="gyro" site="b_tip"/>
  <accelerometer name="acc" site="a_mid"/><jointvel name="d" joint="d"/>
</sensor></mujoco>"""
N = 6
BODIES = tuple(f"robot/{name}" for name in "abcdef")
SITES = tuple(f"robot/{name}" for name in ("a_mid", "b_tip", "c_tip", "d_tip", "mark"))
SENSORS = tuple(f"robot/{name}" for name in ("b", "tip", "gyro", "acc", "d"))
STATE = ("qpos", "qvel", "ctrl")
ACCELERATION = ("qacc", "actuator_force")


@pytest.fixture(scope="module")
def moved():
    """Rows that move, each in its own way, and the engine's arrays of all that can be packed."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=from_xml, params={"xml": XML})})
    backend = make_backend("mujoco", scene, SimCfg(num_threads=1), num_envs=N)
    backend.compile_host_bridge_io(HostBridgeSpec(bodies=BODIES, sites=SITES)).read()
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        backend.step_tensor(torch.randn(N, 3, generator=generator), 4)
    reset_rows(backend, [2])
    yield backend
    backend.close()


def expected(backend, key: str) -> np.ndarray:
    """The columns of a key, computed row by row in the engine's precision: v + w x r for the velocity of a frame."""
    batch, model, layout = backend._batch, backend._model, backend.model_layout
    kind, _, name = key.partition(":")
    if kind == "sensor":
        (sensor,) = [s for s in layout.sensors if s.name == name]
        return batch.bind("sensordata")[:, sensor.start : sensor.start + sensor.dim]
    if kind not in ("body", "site"):
        return batch.bind(kind)
    at = (layout.bodies if kind == "body" else layout.sites).index(name)
    body = at if kind == "body" else model.site_bodyid[at]
    pos, quat = ("xpos", "xquat") if kind == "body" else ("site_xpos", "site_xquat")
    rows = []
    for row in range(N):
        position, spatial = batch.bind(pos)[row, at], batch.bind("cvel")[row, body]
        (x, y, z), (a, b, c) = spatial[:3], position - batch.bind("subtree_com")[row, model.body_rootid[body]]
        turned = [y * c - z * b, z * a - x * c, x * b - y * a]
        rows.append(np.concatenate([position, batch.bind(quat)[row, at], spatial[3:] + turned, spatial[:3]]))
    return np.array(rows)


def some(names):
    return st.lists(st.sampled_from(names), unique=True, max_size=len(names)).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    state=some(STATE),
    acceleration=some(ACCELERATION),
    sensors=some(SENSORS),
    bodies=some(BODIES),
    sites=some(SITES),
    ids=st.one_of(st.none(), st.sets(st.integers(0, N - 1)).map(sorted)),
)
def test_any_packet_of_any_rows_is_what_the_engine_holds(
    moved, state, acceleration, sensors, bodies, sites, ids
):
    spec = HostBridgeSpec(state=state, acceleration=acceleration, sensors=sensors, bodies=bodies, sites=sites)
    plan = moved.compile_host_bridge_io(spec)
    rows = torch.arange(N) if ids is None else torch.tensor(ids, dtype=torch.int64)
    out = torch.full((len(rows), plan.layout.width), torch.nan)
    moved.pack_rows(plan.layout, out, None if ids is None else rows)
    for block in plan.layout.blocks:
        values = expected(moved, block.key)[rows.numpy()].astype(np.float32)
        assert np.array_equal(out[:, block.start : block.stop].numpy(), values), block.key


def test_neither_other_columns_nor_other_rows_of_a_larger_array_are_written(moved):
    plan = moved.compile_host_bridge_io(HostBridgeSpec(bodies=BODIES[1:5:2], sites=SITES[:3]))
    storage = torch.full((N + 2, plan.layout.width + 4), -7.0)
    moved.pack_rows(plan.layout, storage[1:-1, 2:-2], None)
    border = torch.ones_like(storage, dtype=torch.bool)
    border[1:-1, 2:-2] = False
    assert (storage[border] == -7.0).all()
    assert torch.equal(storage[1:-1, 2:-2], plan.read())
