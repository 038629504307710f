"""A step leaves undone what nobody reads, and whoever reads it after all finds it at the present state."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import pytest
import torch
from leg_model import ACCELERATION, leg, leg_backend
from unisim_support import reset_rows, rows_mask, write_rows

from unisim import EntityCfg, HostBridgeSpec, ResetPayload, SceneCfg, SimCfg, make_backend
from unisim.bare import RowsCall, StepCall, make_bare
from unisim.contract import Declared

N = 5
STATE = HostBridgeSpec(sensors=ACCELERATION, acceleration=("qacc", "actuator_force"))
"""State and what describes the last substep: nothing here follows from positions and velocities."""
CURRENT = ("robot/toe_pos", "robot/toe_vel", "robot/gyro")
FOLLOWING = {
    "sensors": HostBridgeSpec(sensors=CURRENT),
    "a body": HostBridgeSpec(bodies=("robot/shank",)),
    "a site": HostBridgeSpec(sites=("robot/toe",)),
}
EVERYTHING = replace(STATE, sensors=ACCELERATION + CURRENT, bodies=("robot/shank",), sites=("robot/toe",))
KEYS = ("body:robot/shank", "site:robot/toe", *(f"sensor:{name}" for name in ACCELERATION + CURRENT), "qacc")
GRID = pytest.mark.parametrize(
    ("persistent", "num_threads"), [(True, 1), (True, 2), (False, 1), (False, 2)], ids=str
)
NONE, VEL = mujoco.mjtStage.mjSTAGE_NONE, mujoco.mjtStage.mjSTAGE_VEL


class WatchedBatch:
    """Notes what a batch is asked to compute."""

    def __init__(self, batch) -> None:
        self.batch, self.steps, self.forwards = batch, [], []

    def __getattr__(self, name):
        return getattr(self.batch, name)

    def step(self, *, nstep, stage) -> None:
        self.steps.append((nstep, stage))
        self.batch.step(nstep=nstep, stage=stage)

    def forward(self, ids=None, *, stage) -> None:
        self.forwards.append((None if ids is None else ids.tolist(), stage))
        self.batch.forward(ids, stage=stage)


def watched(backend) -> WatchedBatch:
    backend._reads._batch = WatchedBatch(backend._reads._batch)
    return backend._reads._batch


def controls(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(N, 3, generator=generator) * 2.0 - 1.0 for _ in range(count)]


def drive(plan, ctrl) -> None:
    plan.write_control(ctrl)
    plan.step(4)
    plan.read()


def asked(backend, plan=None) -> list:
    """What one more step asks of the engine."""
    batch = watched(backend)
    if plan is None:
        backend.step_tensor(torch.zeros(N, 3), 4)
    else:
        drive(plan, torch.zeros(N, 3))
    return batch.steps


def test_a_plan_of_the_state_alone_asks_for_no_stage():
    backend = leg_backend(N)
    plan = backend.compile_host_bridge_io(STATE)
    batch = watched(backend)
    drive(plan, torch.zeros(N, 3))
    assert (batch.steps, batch.forwards) == ([(4, NONE)], [])


@pytest.mark.parametrize("following", FOLLOWING)
def test_a_plan_that_reads_what_follows_from_the_state_asks_for_it(following):
    backend = leg_backend(N)
    plans = [backend.compile_host_bridge_io(STATE), backend.compile_host_bridge_io(FOLLOWING[following])]
    batch = watched(backend)
    drive(plans[0], torch.zeros(N, 3))
    plans[1].read()
    assert (batch.steps, batch.forwards) == ([(4, VEL)], [])


def test_without_a_plan_every_step_asks_for_it():
    assert asked(leg_backend(N)) == [(4, VEL)]


def test_a_closed_or_forgotten_plan_reads_nothing_any_more():
    backend = leg_backend(N)
    state = backend.compile_host_bridge_io(STATE)
    closed = backend.compile_host_bridge_io(EVERYTHING)
    backend.compile_host_bridge_io(EVERYTHING)  # nobody keeps it
    closed.close()
    assert asked(backend, state) == [(4, NONE)]
    state.close()
    assert asked(backend) == [(4, VEL)]


def twins(persistent, num_threads):
    """Two backends, of which one leaves undone what the other computes in every step, and their plans."""
    backends = [leg_backend(N, persistent=persistent, num_threads=num_threads) for _ in range(2)]
    return backends, [b.compile_host_bridge_io(s) for b, s in zip(backends, (STATE, EVERYTHING), strict=True)]


def push(target) -> None:
    write_rows(target, [0, 3], qvel=[[0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8]] * 2)


def restart(target) -> None:
    reset_rows(target, [1, 3], qvel=[[0.0, 0.1, 0.0, 0.2, 0.0, 0.3, 0.1, 0.1]] * 2)


def place(target) -> None:
    write_rows(target, [4], qpos=[[0.1, 0.0, 0.6, 1.0, 0.0, 0.0, 0.0, 0.2, -0.1]])


@GRID
@pytest.mark.parametrize(
    "then", [(), (push,), (restart,), (push, restart), (restart, push), (restart, place, restart, push)]
)
def test_what_was_left_undone_is_current_when_it_is_read(persistent, num_threads, then):
    backends, plans = twins(persistent, num_threads)
    for ctrl in controls(6):
        for plan in plans:
            drive(plan, ctrl)
    for change in then:
        for plan in plans:
            change(plan)
            plan.read_selected()
    late, early = (backend.get_state_views(KEYS) for backend in backends)
    for key in KEYS:
        assert torch.equal(late[key], early[key]), key


@GRID
def test_readers_that_come_and_go_change_no_later_step(persistent, num_threads):
    backends, plans = twins(persistent, num_threads)
    for i, ctrl in enumerate(controls(12)):
        for backend, plan in zip(backends, plans, strict=True):
            drive(plan, ctrl)
            if i % 3 == 0:
                restart(plan)
                plan.read_selected()
            if i % 4 == 1:
                assert backend.get_sensor_view("robot/toe_pos").isfinite().all()
                push(plan)
                plan.read_selected()
    assert torch.equal(backends[0].snapshot()["state"], backends[1].snapshot()["state"])
    width = plans[0].layout.columns("sensor:robot/acc").start
    assert torch.equal(plans[0].packet[:, :width], plans[1].packet[:, :width])


def test_it_is_computed_once_however_much_of_it_is_read():
    backend = leg_backend(N)
    plan = backend.compile_host_bridge_io(STATE)
    backend.get_state_views(KEYS)  # so that the engine's arrays are bound
    drive(plan, torch.zeros(N, 3))
    batch = watched(backend)
    push(plan)
    plan.read_selected()
    assert batch.forwards == []
    for name in CURRENT:
        backend.get_sensor_view(name)
    backend.get_state_views(("site:robot/toe",))
    assert batch.forwards == [(None, VEL)]
    push(plan)
    assert batch.forwards[1:] == [([0, 3], VEL)]  # they are current now, and stay so


@GRID
def test_a_snapshot_holds_current_values(persistent, num_threads):
    backends, plans = twins(persistent, num_threads)
    for plan in plans:
        drive(plan, controls(1)[0])
        restart(plan)
        plan.read_selected()
    late, early = (backend.snapshot() for backend in backends)
    for key, values in early.items():
        assert torch.equal(late[key], values), key


def test_the_history_of_a_sensor_that_follows_from_the_state_asks_for_it_in_every_substep():
    name = "robot/toe_pos"
    declared = Declared(substep_sensors=(name,), decimation=4)
    backend, other = leg_backend(N, declared=declared), leg_backend(N, declared=declared)
    plan = backend.compile_host_bridge_io(HostBridgeSpec(substep_sensors=(name,), decimation=4))
    history = f"substep:{name}"
    for ctrl in controls(3):
        drive(plan, ctrl)
        other.step_tensor(ctrl, 4)
    assert torch.equal(
        plan.packet[:, plan.layout.columns(history)], other.get_state_views((history,))[history]
    )
    assert asked(backend, plan) == [(1, VEL)] * 4


def test_the_history_of_forces_needs_no_stage():
    declared = Declared(substep_sensors=("robot/touch",), decimation=4)
    backend = leg_backend(N, declared=declared)
    plan = backend.compile_host_bridge_io(HostBridgeSpec(substep_sensors=("robot/touch",), decimation=4))
    assert asked(backend, plan) == [(1, NONE)] * 4


def test_diagnostics_say_whether_stages_are_left_to_who_reads_them():
    backend = leg_backend(N)

    def found():
        (one,) = [d for d in backend.get_runtime_diagnostics() if d.name == "stages_on_demand"]
        return one.enabled, one.reason

    assert found()[0] is False
    state = backend.compile_host_bridge_io(STATE)
    assert found() == (True, "")
    reader = backend.compile_host_bridge_io(EVERYTHING)
    assert found() == (
        False,
        "what is read follows from positions and velocities, so every step computes it",
    )
    reader.close()
    assert found() == (True, "")
    state.close()


@pytest.mark.parametrize("follows", [False, True], ids=["state", "a site"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
def test_the_engine_alone_leaves_undone_what_the_backend_does(follows, persistent):
    scene = SceneCfg(entities={"robot": EntityCfg(spec=leg)})
    sim = SimCfg(timestep=0.004, num_threads=1, persistent=persistent)
    backend = make_backend("mujoco", scene, sim, num_envs=N)
    plan = backend.compile_host_bridge_io(HostBridgeSpec(sites=("robot/toe",) if follows else ()))
    reads = tuple(block.key for block in plan.layout.blocks)
    engine = make_bare(
        "mujoco", scene, sim, num_envs=N, device="cpu", declared=Declared(), freshness="fresh", reads=reads
    )
    assert engine.label == f"mujoco.batch.Batch, {'stage=mjSTAGE_VEL' if follows else 'no fresh stage'}"
    engine.load(backend.snapshot())
    drive(plan, controls(1)[0])  # so that both are behind, where they may be
    engine.prepare([StepCall(controls(1)[0], 4)])()
    batch, alone = watched(backend), WatchedBatch(engine._batch)
    engine._batch = alone
    ctrl, qvel = controls(1, seed=1)[0], torch.tensor([[0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8]])
    pushed = RowsCall("write", rows_mask([2], N), ResetPayload(torch.tensor([2]), qvel=qvel))
    backend.step_tensor(ctrl, 4)
    backend.write_rows(pushed.mask, pushed.payload)
    engine.prepare([StepCall(ctrl, 4), pushed])()
    assert alone.steps == batch.steps == [(4, VEL if follows else NONE)]
    assert alone.forwards == batch.forwards == ([([2], VEL)] if follows else [])
    assert engine.difference(backend.snapshot()) == ""
    backend.close()
    engine.close()
