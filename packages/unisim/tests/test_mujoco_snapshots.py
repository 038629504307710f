"""Snapshots: everything, in engine precision, for this process or another."""

from __future__ import annotations

import pytest
import torch
from leg_model import leg_backend
from snapshot_program import DECLARED, begin, controls, go_on, make
from unisim_support import reset_rows

from unisim import HostBridgeSpec
from unisim.contract import Declared

BOTH = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for key, values in one.items():
        assert torch.equal(values.nan_to_num(nan=7e77), other[key].nan_to_num(nan=7e77)), key


def test_a_run_goes_on_bit_for_bit_in_a_new_process(program, tmp_path):
    kinds = {"persistent": True, "shared": False}
    backends = {name: make(persistent) for name, persistent in kinds.items()}
    for name, backend in backends.items():
        begin(backend)
        (tmp_path / name).mkdir()
        torch.save(backend.snapshot(), tmp_path / name / "snapshot.pt")
    finished = program(f"""
from snapshot_program import resume
for name, persistent in {kinds}.items():
    resume({str(tmp_path)!r} + "/" + name, persistent)
""")
    assert (finished.returncode, finished.stderr) == (0, "")
    for name, backend in backends.items():
        expected = go_on(backend)
        same(torch.load(tmp_path / name / "resumed.pt", weights_only=True), expected)
        assert expected["bad"][0].tolist() == [False, False, False, False, True]
        assert not expected["bad"][-1].any()


@BOTH
def test_the_same_backend_may_go_back_and_repeat(persistent):
    backend = make(persistent)
    begin(backend)
    saved = backend.snapshot()
    first = go_on(backend)
    backend.restore(saved)
    same(go_on(backend), first)


def test_a_snapshot_of_one_kind_of_batch_fits_the_other_and_any_number_of_threads():
    backend = make(persistent=True)
    begin(backend)
    other = make(persistent=False, num_threads=2)
    other.restore(backend.snapshot())
    same(go_on(other), go_on(backend))


def test_a_snapshot_is_plain_tensors_that_later_steps_do_not_change():
    backend = make(persistent=True)
    saved = backend.snapshot()
    assert all(type(values) is torch.Tensor for values in saved.values())
    assert saved["state"].dtype == torch.float64
    before = {key: values.clone() for key, values in saved.items()}
    begin(backend)
    same(saved, before)
    backend.restore(saved)
    backend.step_tensor(controls(1, 0)[0], 4)
    same(saved, before)


def test_a_new_backend_goes_on_with_the_reads_of_the_old_one_before_any_step():
    backend, other = make(persistent=False), make(persistent=False)
    begin(backend)
    other.restore(backend.snapshot())
    for sensor in backend.model_layout.sensors:
        values = backend.get_sensor_view(sensor.name)
        assert torch.equal(other.get_sensor_view(sensor.name)[:4], values[:4]), sensor.name
    reset_rows(other, [2])
    assert torch.equal(other.get_sensor_view("robot/acc")[3], backend.get_sensor_view("robot/acc")[3])


def foreign() -> dict[str, tuple[dict[str, torch.Tensor], str]]:
    stepped = make(True)
    stepped.step_tensor(controls(1, 0)[0], 4)
    good = stepped.snapshot()
    heavier = leg_backend(5, model={"body_mass": torch.tensor([0.0, 5.0, 0.5, 0.25])}, declared=DECLARED)
    plain = leg_backend(5, declared=Declared(model_fields=DECLARED.model_fields))
    return {
        "more rows": (leg_backend(6, declared=DECLARED).snapshot(), r"expected torch.float64 \(5, "),
        "another model": (heavier.snapshot(), "the snapshot belongs to another model"),
        "other declarations": (plain.snapshot(), "'history:ground' is missing"),
        "a part missing": ({k: v for k, v in good.items() if k != "warning"}, "'warning' is missing"),
        "a part too many": (good | {"extra": torch.zeros(1)}, "'extra' is unknown"),
        "rounded": (good | {"state": good["state"].float()}, "'state' is torch.float32"),
        "torn histories": (
            good | {"history:ground": torch.zeros(5, 3, 4).double()},
            r"hold \[3, 4\] substeps",
        ),
        "a flat history": (good | {"history:ground": torch.zeros(5, 4).double()}, "'history:ground' is"),
    }


@pytest.mark.parametrize("what", foreign())
def test_a_foreign_snapshot_is_refused_and_nothing_is_written(what):
    snapshot, message = foreign()[what]
    backend = make(True)
    begin(backend)
    before = backend.snapshot()
    with pytest.raises(ValueError, match=f"MuJoCoBackend.restore: .*{message}.*nothing was written"):
        backend.restore(snapshot)
    same(backend.snapshot(), before)


@pytest.mark.parametrize("snapshot", [None, 3, {"state": 1}, [torch.zeros(1)]])
def test_what_is_no_snapshot_is_a_type_error(snapshot):
    backend = make(True)
    before = backend.snapshot()
    with pytest.raises(
        TypeError, match=r"MuJoCoBackend.restore: the snapshot is .*expected the dict that snapshot\(\)"
    ):
        backend.restore(snapshot)
    same(backend.snapshot(), before)


@BOTH
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("stepped", [False, True])
def test_a_snapshot_from_before_the_first_step_is_read_and_stepped_in_any_length(persistent, length, stepped):
    saved = make(persistent).snapshot()
    backend = make(persistent)
    histories = {key: values for key, values in saved.items() if key.startswith("history:")}
    assert {key: tuple(values.shape) for key, values in histories.items()} == {
        "history:robot/touch": (5, 0, 1),
        "history:ground": (5, 0, 4),
    }
    if stepped:
        backend.step_tensor(controls(1, 0)[0], 4)
    backend.restore(saved)
    same(backend.snapshot(), saved)
    assert backend.get_state_views(["substep:ground"])["substep:ground"].tolist() == [[0.0] * 16] * 5
    spec = HostBridgeSpec(state=(), substep_sensors=("ground",), sensors=("ground",), decimation=length)
    plan = backend.compile_host_bridge_io(spec)
    columns = plan.layout.columns("substep:ground")
    assert plan.read()[:, columns].tolist() == [[0.0] * 4 * length] * 5
    plan.write_control(controls(1, 0)[0])
    plan.step(length)
    packet = plan.read()
    assert torch.equal(packet[:, columns][:, -4:], packet[:, plan.layout.columns("sensor:ground")])
