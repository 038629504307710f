"""The engine alone comes to where the backend came, to the bit, and says so where it does not."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import mujoco
import pytest
import torch
from leg_model import FIELDS, SENSORS, leg
from leg_values import changed
from unisim_support import rows_mask

import unisim.bare as bare
from unisim import CapabilityError, EntityCfg, ResetPayload, SceneCfg, SimCfg, make_backend
from unisim.bare import RowsCall, StepCall, make_bare
from unisim.contract import Declared
from unisim.testing import FakeBackend, make_layout

N = 5
SCENE = SceneCfg(entities={"robot": EntityCfg(spec=leg)}, sensors=SENSORS)
DECLARED = Declared(
    model_fields=FIELDS,
    wrench_bodies=("robot/shank",),
    substep_sensors=("robot/touch", "robot/toe_pos"),
    decimation=4,
)
BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
STAGES = pytest.mark.parametrize("freshness", ["fresh", "plain"])


def sim(persistent: bool, num_threads: int = 1) -> SimCfg:
    return SimCfg(timestep=0.004, num_threads=num_threads, persistent=persistent)


def rows(kind: str, ids: list[int], **parts: object) -> RowsCall:
    return RowsCall(kind, rows_mask(ids, N), ResetPayload(torch.tensor(ids), **parts))


def calls(steps: int = 10) -> list[StepCall | RowsCall]:
    """Random controls and wrenches, resets with and without a control and with model fields, pushes, a teleport."""
    generator = torch.Generator().manual_seed(5)
    made: list[StepCall | RowsCall] = []
    for i in range(steps):
        made.append(StepCall(torch.rand(N, 3 + 6, generator=generator) * 2.0 - 1.0, 4))
        if i % 5 == 1:
            model = {name: changed(name).expand(2, *changed(name).shape).contiguous() for name in FIELDS}
            made.append(rows("reset", [0, 3], model=model))
        if i % 5 == 2:
            made.append(rows("write", [1, 2, 3], qvel=0.3 * torch.randn(3, 8, generator=generator)))
        if i % 5 == 3:
            held = torch.randn(1, 3, generator=generator)
            made.append(rows("reset", [4], ctrl=held, qvel=0.1 * torch.randn(1, 8, generator=generator)))
            heavy = 1.5 * changed("body_mass")
            made.append(rows("write", [1], model={"body_mass": heavy.unsqueeze(0)}))
    made.append(rows("write", [2], qpos=torch.tensor([[0.1, 0, 0.6, 1, 0, 0, 0, 0.2, -0.1]])))
    return made


def last_randomised(made) -> dict[str, torch.Tensor]:
    return [
        call.payload.model for call in made if isinstance(call, RowsCall) and len(call.payload.model) > 1
    ][-1]


def heavier(row: int) -> RowsCall:
    return rows("write", [row], model={"body_mass": 1.25 * changed("body_mass").unsqueeze(0)})


def carry_out(backend, made) -> None:
    for call in made:
        if isinstance(call, StepCall):
            backend.step_tensor(call.ctrl, call.nsteps)
        else:
            {"reset": backend.apply_reset, "write": backend.write_rows}[call.kind](call.mask, call.payload)


def engine_of(freshness="fresh", persistent=True, num_threads=1, declared=DECLARED):
    return make_bare(
        "mujoco",
        SCENE,
        sim(persistent, num_threads),
        num_envs=N,
        device="cpu",
        declared=declared,
        freshness=freshness,
    )


@BOTH
@STAGES
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_engine_alone_comes_to_the_state_of_the_backend(persistent, freshness, num_threads):
    backend = make_backend("mujoco", SCENE, sim(persistent), num_envs=N, declared=DECLARED)
    engine = engine_of(freshness, persistent, num_threads)
    carry_out(backend, calls(7))  # so that it begins somewhere
    engine.load(backend.snapshot())
    assert engine.exact
    assert engine.difference(backend.snapshot()) == ""
    for _ in range(2):  # the second time it goes on from where it came to
        carry_out(backend, calls())
        assert engine.difference(backend.snapshot()) != ""
        engine.prepare(calls())()
        assert engine.difference(backend.snapshot()) == ""
    engine.close()
    engine.close()
    backend.close()


@STAGES
@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda made: made.pop(3), "time of 2 rows; in row 1, column 0"),
        (lambda made: made[0].ctrl[2].mul_(1.0 + 1e-6), "in row 2, column"),
        (lambda made: last_randomised(made)["body_mass"][1].mul_(1.0 + 1e-6), "in row 3, column"),
        (lambda made: made.append(heavier(2)), "model field body_mass of row 2"),
    ],
    ids=["a call is missing", "a control", "a mass", "a mass that has not moved anything yet"],
)
def test_what_was_not_the_same_work_is_found(freshness, spoil, where):
    backend = make_backend("mujoco", SCENE, sim(True), num_envs=N, declared=DECLARED)
    engine = engine_of(freshness)
    engine.load(backend.snapshot())
    made = calls()
    carry_out(backend, made)
    spoil(made)
    engine.prepare(made)()
    found = engine.difference(backend.snapshot())
    assert where in found


def test_a_difference_says_the_field_the_row_and_both_values():
    backend = make_backend("mujoco", SCENE, sim(True), num_envs=N, declared=DECLARED)
    engine = engine_of()
    saved = backend.snapshot()
    engine.load(saved)
    saved["state"][3, 1] = 7.0  # time is column 0, the position follows
    assert engine.difference(saved) == ("qpos of 1 rows; in row 3, column 1 of the state, 0.0 instead of 7.0")


def test_not_a_number_is_the_same_as_itself():
    backend = make_backend("mujoco", SCENE, sim(True), num_envs=N, declared=DECLARED)
    saved = backend.snapshot()
    saved["state"][1, 4] = float("nan")
    engine = engine_of()
    engine.load(saved)
    saved["sensordata"] = torch.from_numpy(engine._sensors.copy())  # those of such a state are none either
    assert saved["sensordata"].isnan().any()
    assert engine.difference(saved) == ""


def test_a_snapshot_of_another_model_is_refused():
    other = make_backend("mujoco", SCENE, SimCfg(timestep=0.003), num_envs=N, declared=DECLARED)
    with pytest.raises(
        ValueError,
        match="mujoco.batch.Batch, stage=mjSTAGE_VEL, substep by substep: the snapshot belongs to another",
    ):
        engine_of().load(other.snapshot())


@pytest.mark.parametrize(
    ("declared", "fresh"),
    [
        (Declared(), "mujoco.batch.Batch, stage=mjSTAGE_VEL"),
        (DECLARED, "mujoco.batch.Batch, stage=mjSTAGE_VEL, substep by substep"),
    ],
)
def test_labels_say_what_is_left_current(declared, fresh):
    found = [engine_of(f, declared=declared).label for f in ("fresh", "plain")]
    assert found == [fresh, "mujoco.batch.Batch, no fresh stage"]


@BOTH
@pytest.mark.parametrize("substep_sensors", [(), ("robot/toe_pos",)])
def test_an_engine_that_leaves_nothing_current_is_not_taken_for_a_fresh_one(persistent, substep_sensors):
    declared = replace(DECLARED, substep_sensors=substep_sensors)
    backend = make_backend("mujoco", SCENE, sim(persistent), num_envs=N, declared=declared)
    engine = engine_of("fresh", persistent, declared=declared)
    engine._stage = mujoco.mjtStage.mjSTAGE_NONE
    engine.load(backend.snapshot())
    carry_out(backend, calls())
    engine.prepare(calls())()
    assert re.fullmatch(
        r"sensor robot/\w+ of [45] rows, first in row 0", engine.difference(backend.snapshot())
    )


class WatchedBatch:
    """Notes the steps that a batch is asked for."""

    def __init__(self, batch) -> None:
        self.batch, self.asked = batch, []

    def __getattr__(self, name):
        return getattr(self.batch, name)

    def step(self, **options) -> None:
        self.asked.append(options)
        self.batch.step(**options)


@pytest.mark.parametrize(
    ("substep_sensors", "number"), [((), 1), (("robot/touch",), 4), (("robot/touch", "robot/toe_pos"), 4)]
)
def test_fresh_it_asks_for_the_steps_of_the_backend_and_plain_for_one(substep_sensors, number):
    declared = replace(DECLARED, substep_sensors=substep_sensors)
    backend = make_backend("mujoco", SCENE, sim(True), num_envs=N, declared=declared)
    engines = [engine_of(f, declared=declared) for f in ("fresh", "plain")]
    owners = [backend._reads, *engines]
    for owner in owners:
        owner._batch = WatchedBatch(owner._batch)
    call = StepCall(torch.ones(N, 3 + 6), 4)
    carry_out(backend, [call])
    for engine in engines:
        engine.prepare([call])()
    asked, fresh, plain = (owner._batch.asked for owner in owners)
    assert fresh == asked
    assert len(asked) == number
    assert plain == [{"nstep": 4, "stage": mujoco.mjtStage.mjSTAGE_NONE}]


# ---------------------------------------------------------------- a backend that brings no engine alone


@pytest.fixture
def fakes(monkeypatch):
    """Makes a fake under any name."""
    made = []

    def make(name, scene, sim, *, num_envs, device, declared):
        del name, scene, sim, device
        made.append(FakeBackend(make_layout(), num_envs, declared=declared))
        return made[-1]

    monkeypatch.setattr(bare, "make_backend", make)
    return made


def second(freshness="fresh"):
    arguments = {"num_envs": 3, "device": "cpu", "declared": Declared(), "freshness": freshness}
    return make_bare("fake", SceneCfg(), SimCfg(), **arguments)


def test_a_second_backend_repeats_the_calls_of_the_first(fakes):
    first = FakeBackend(make_layout(), 3)
    made = [
        StepCall(torch.tensor([[1.0], [2.0], [3.0]]), 2),
        RowsCall("reset", rows_mask([1], 3), ResetPayload(torch.tensor([1]))),
        RowsCall(
            "write", rows_mask([0], 3), ResetPayload(torch.tensor([0]), qvel=torch.tensor([[5.0, 6.0]]))
        ),
        StepCall(torch.tensor([[1.0], [1.0], [1.0]]), 1),
    ]
    first.step_tensor(torch.ones(3, 1))
    engine = second()
    engine.load(first.snapshot())
    carry_out(first, made)
    assert engine.difference(first.snapshot()) != ""
    engine.prepare(made)()
    assert engine.difference(first.snapshot()) == ""
    assert engine.label == "a second fake backend, its step_tensor, apply_reset and write_rows alone"
    assert engine.exact
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        fakes[0].snapshot()


def test_a_second_backend_has_no_other_freshness_than_its_own(fakes):
    assert second("plain") is None
    assert not fakes


def test_a_backend_without_snapshots_cannot_be_followed(fakes, monkeypatch):
    monkeypatch.setattr(FakeBackend, "get_tensor_capabilities", lambda self: SimpleNamespace(snapshots=False))
    with pytest.raises(CapabilityError, match="backend 'fake' has no snapshots"):
        second()
    with pytest.raises(RuntimeError, match="closed"):
        fakes[0].snapshot()


def test_an_unknown_freshness_is_refused():
    with pytest.raises(ValueError, match=r"freshness is 'new', expected one of \('fresh', 'plain'\)"):
        second("new")


def test_an_entry_point_must_make_an_engine(monkeypatch):
    entry = SimpleNamespace(value="m:f", load=lambda: lambda *args, **options: 3)
    monkeypatch.setattr(bare, "entry_points", lambda group, name: [entry])
    with pytest.raises(TypeError, match="'fake' of 'unisim.bare': m:f makes a int, expected a BareEngine"):
        second()
