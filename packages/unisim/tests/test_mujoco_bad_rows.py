"""Rows that went bad are told, the engine's warnings go to the logger."""

from __future__ import annotations

import math

import pytest
import torch
from unisim_support import free_box, from_xml, pendulum, reset_rows, write_rows

from unisim import SimCfg

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def backend(simulate):
    return simulate(pendulum, 3)


def step(backend):
    backend.step_tensor(torch.zeros(3, 1), nsteps=4)


def test_no_row_is_bad_at_the_start_or_after_ordinary_steps(backend):
    step(backend)
    assert backend.bad_rows().tolist() == [False, False, False]


@pytest.mark.parametrize(("field", "value"), [("qpos", math.nan), ("qvel", math.inf), ("qpos", -math.inf)])
def test_a_state_that_is_not_finite_is_bad_at_once_and_after_a_step(backend, field, value):
    backend._batch.bind(field)[1] = value
    assert backend.bad_rows().tolist() == [False, True, False]
    step(backend)
    assert backend.bad_rows().tolist() == [False, True, False]


@pytest.mark.parametrize("field", ["qpos", "qvel"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", [0, 299])
def test_one_number_that_is_not_finite_is_found_wherever_it_is(simulate, field, value, row):
    backend = simulate(free_box, 300)
    for column in range(backend._batch.bind(field).shape[1]):
        kept = backend._batch.bind(field)[row, column]
        backend._batch.bind(field)[row, column] = value
        assert backend.bad_rows().nonzero().flatten().tolist() == [row], column
        backend._batch.bind(field)[row, column] = kept
    assert not backend.bad_rows().any()


def test_huge_numbers_are_finite_whatever_their_sum_is(simulate):
    backend = simulate(free_box, 3)
    backend._batch.bind("qvel")[1] = 1.7e308
    assert not backend.bad_rows().any()


def test_rows_that_are_not_finite_and_rows_that_the_engine_warns_of_are_all_bad(backend):
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    backend._batch.bind("qvel")[0] = math.nan
    assert backend.bad_rows().tolist() == [True, False, True]
    backend._batch.bind("qvel")[0] = 0.0
    assert backend.bad_rows().tolist() == [False, False, True]


def test_what_is_returned_is_not_written_again(backend):
    backend._batch.bind("qvel")[0] = math.nan
    rows = backend.bad_rows()
    backend._batch.bind("qvel")[0] = 0.0
    backend.bad_rows()
    assert rows.tolist() == [True, False, False]


@pytest.mark.parametrize("parts", [{"qpos": [[1e12]]}, {"qvel": [[1e11]]}])
def test_a_finite_state_that_the_engine_warns_of_is_bad(backend, parts):
    write_rows(backend, [2], **parts)
    step(backend)
    assert backend.bad_rows().tolist() == [False, False, True]


def test_a_huge_position_stays_finite_so_that_only_the_warning_tells(backend):
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    assert torch.isfinite(backend.get_state_views()["qpos"]).all()


def test_a_bad_row_stays_bad_until_its_reset(backend):
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    write_rows(backend, [2], qpos=[[0.0]])
    step(backend)
    assert backend.bad_rows().tolist() == [False, False, True]
    reset_rows(backend, [2])
    step(backend)
    assert backend.bad_rows().tolist() == [False, False, False]


def test_the_engine_does_not_put_a_bad_row_back_by_itself(backend):
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    assert backend.get_state_views()["qpos"][2].item() == pytest.approx(1e12)


def test_rows_beside_a_bad_one_equal_those_of_a_twin(simulate):
    bad, twin = simulate(pendulum, 3), simulate(pendulum, 3)
    for backend in (bad, twin):
        write_rows(backend, [0, 1, 2], qpos=[[0.1], [0.2], [0.3]])
    bad._batch.bind("qpos")[1] = math.nan
    for _ in range(10):
        for backend in (bad, twin):
            step(backend)
    for rows in ("qpos", "qvel"):
        assert torch.equal(bad.get_state_views()[rows][[0, 2]], twin.get_state_views()[rows][[0, 2]])


def test_an_engine_warning_goes_to_the_logger(simulate, caplog):
    backend = simulate(pendulum, 3, sim=SimCfg(timestep=0.004, num_threads=2))
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    assert any("MuJoCo: " in record.message and record.levelname == "WARNING" for record in caplog.records)


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_kind_of_warning_is_told_once_however_many_rows_and_steps(backend, caplog):
    for _ in range(3):
        write_rows(backend, [0, 2], qpos=[[1e12], [1e12]])
        step(backend)
        reset_rows(backend, [0, 2])
    assert warnings_of(caplog) == [
        "MuJoCo: row 0: Nan, Inf or huge value in QPOS at DOF 0. The simulation is unstable. (reported once)"
    ]


def test_full_buffers_are_told_once_with_the_setting_to_change(simulate, caplog):
    # 40 boxes with 4 contacts each: 640 rows of 240 float64 are 1.2 MB, more than 1 MiB.
    boxes = "".join(
        f'<body pos="0 {i * 0.3} .099"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
        for i in range(40)
    )
    xml = f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{boxes}</worldbody></mujoco>'
    sims = {mib: SimCfg(num_threads=1, memory_mib=mib) for mib in (1, 16)}
    backends = {mib: simulate(from_xml, 2, sim=sim, params={"xml": xml}) for mib, sim in sims.items()}
    caplog.clear()
    for backend in backends.values():
        for _ in range(3):
            backend.step_tensor(torch.zeros(2, 0), nsteps=2)
    (message,) = warnings_of(caplog)
    assert message.startswith(
        "MuJoCo: row 0: Insufficient arena memory for the number of constraints generated."
    )
    assert message.endswith("Raise sim.memory_mib: a row has 1 MiB. (reported once)")
    assert not backends[1].bad_rows().any()


def test_what_a_snapshot_brings_back_is_not_told_again(simulate, caplog):
    backend, other = simulate(pendulum, 3), simulate(pendulum, 3)
    write_rows(backend, [2], qpos=[[1e12]])
    step(backend)
    caplog.clear()
    other.restore(backend.snapshot())
    step(other)
    assert warnings_of(caplog) == []


def test_an_engine_warning_reaches_neither_stderr_nor_a_file(program, tmp_path):
    finished = program("""
import torch, logging
logging.getLogger("unisim").addHandler(logging.NullHandler())
from unisim import EntityCfg, SceneCfg, SimCfg, make_backend
from unisim_support import pendulum, write_rows
scene = SceneCfg(entities={"robot": EntityCfg(spec=pendulum)})
backend = make_backend("mujoco", scene, SimCfg(num_threads=2), num_envs=3)
write_rows(backend, [2], qpos=[[1e12]])
backend.step_tensor(torch.zeros(3, 1), nsteps=4)
assert backend.bad_rows().tolist() == [False, False, True]
backend.close()
""")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
