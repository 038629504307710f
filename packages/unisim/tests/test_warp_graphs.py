"""MuJoCo-Warp: what is captured is what is launched; views are the engine's own storage and never move."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from leg_model import FIELDS, leg_backend
from unisim_support import pendulum, reset_rows, rows_mask, write_rows
from warp_support import controls, everything, warp_backend

from unisim import ResetPayload, SimCfg
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp import programs
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

DECLARED = Declared(FIELDS, ("robot/base",), ("robot/touch", "robot/toe_vel"), decimation=4)


def make(num_envs: int = 3, *, capture: bool = True):
    return leg_backend(
        num_envs, declared=DECLARED, backend_class=MuJoCoWarpBackend, sim={"graph_capture": capture}
    )


def diagnostics(backend) -> dict[str, tuple[bool, bool, str]]:
    return {d.name: (d.requested, d.enabled, d.reason) for d in backend.get_runtime_diagnostics()}


def test_captured_and_launched_programs_leave_the_same_bits():
    captured, launched = make(), make(capture=False)
    assert diagnostics(captured)["graph_capture"] == (True, True, "")
    assert diagnostics(launched)["graph_capture"] == (False, False, "sim.graph_capture is false")
    mass = captured.model_layout.fields["body_mass"].nominal_tensor().unsqueeze(0) * 1.5
    for i, ctrl in enumerate(controls(captured, 12)):
        for backend in (captured, launched):
            backend.step_tensor(ctrl, 4)
            if i == 4:
                payload = ResetPayload(torch.tensor([1]), model={"body_mass": mass})
                backend.apply_reset(rows_mask([1], 3), payload)
            if i == 8:
                write_rows(backend, [0, 2], qvel=[[0.3] * 8] * 2)
    found, expected = captured.snapshot(), launched.snapshot()
    for key in expected:
        assert torch.equal(found[key], expected[key]), key


@pytest.fixture
def made(monkeypatch) -> list:
    """The programs that are made from here on."""
    made = []
    original = programs.Program.__init__

    def noted(self, launch, device, *, capture):
        made.append(launch)
        original(self, launch, device, capture=capture)

    monkeypatch.setattr(programs.Program, "__init__", noted)
    return made


def test_nothing_is_captured_while_stepping(made):
    backend = make()
    made.clear()
    ctrl = controls(backend, 1)[0]
    mass = backend.model_layout.fields["body_mass"].nominal_tensor().unsqueeze(0)
    for _ in range(3):
        backend.step_tensor(ctrl, 4)
        reset_rows(backend, [1])
        write_rows(backend, [2], qvel=[[0.1] * 8])
        payload = ResetPayload(torch.tensor([0]), model={"body_mass": mass})
        backend.apply_reset(rows_mask([0], 3), payload)
        backend.write_rows(rows_mask([0], 3), payload)
    assert made == []
    backend.step_tensor(ctrl, 2)  # another number of substeps is captured once
    backend.step_tensor(ctrl, 2)
    assert len(made) == 1


def test_steps_that_were_announced_are_captured_then_and_move_nothing_yet(made):
    backend, other = make(), make()
    before = backend.snapshot()
    made.clear()
    backend.prepare_step(4)  # the decimation that was declared is there already
    assert made == []
    backend.prepare_step(1)
    backend.prepare_step(1)
    assert len(made) == 1
    for key, values in backend.snapshot().items():
        assert torch.equal(values, before[key]), key
    for ctrl in controls(backend, 3):
        backend.step_tensor(ctrl, 1)
    assert len(made) == 1
    for ctrl in controls(other, 3):
        other.step_tensor(ctrl, 1)
    for key, values in everything(other).items():
        assert torch.equal(everything(backend)[key], values), key


@pytest.mark.parametrize(("nsteps", "error"), [(0, ValueError), (1.0, TypeError), (True, TypeError)])
def test_no_such_number_of_substeps_can_be_announced(nsteps, error):
    backend = warp_backend(pendulum, 2, sim=SimCfg())
    with pytest.raises(error, match="MuJoCoWarpBackend.prepare_step: nsteps is"):
        backend.prepare_step(nsteps)


def test_views_share_the_engine_s_storage_and_stay_where_they_are():
    backend = make()
    data = backend._physics._data
    views = backend.get_state_views(("qpos", "qvel", "ctrl", "body:robot/shank", "site:robot/toe", "qacc"))
    for name in ("qpos", "qvel", "ctrl"):
        assert views[name].data_ptr() == getattr(data, name).ptr
    sensor = backend.get_sensor_view("robot/gyro")
    addresses = {key: values.data_ptr() for key, values in views.items()} | {"sensor": sensor.data_ptr()}
    before = {key: values.clone() for key, values in views.items()} | {"sensor": sensor.clone()}
    for ctrl in controls(backend, 3):
        backend.step_tensor(ctrl, 4)
    reset_rows(backend, [0])
    backend.restore(backend.snapshot())
    again = backend.get_state_views(tuple(views))
    for key, values in views.items():
        assert again[key] is values
        assert values.data_ptr() == addresses[key]
        assert not torch.equal(values, before[key]), key
    assert backend.get_sensor_view("robot/gyro") is sensor
    assert sensor.data_ptr() == addresses["sensor"]


def test_a_step_runs_inside_and_outside_inference_mode():
    inside, outside = make(2), make(2)
    for i, ctrl in enumerate(controls(inside, 6)):
        with torch.inference_mode(i % 2 == 0):
            inside.step_tensor(ctrl.clone(), 4)
            reset_rows(inside, [0])
        outside.step_tensor(ctrl, 4)
        reset_rows(outside, [0])
    for key, values in everything(outside).items():
        assert torch.equal(everything(inside)[key], values), key


@pytest.mark.parametrize("integrator", ["euler", "implicit", "implicitfast", "rk4"])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_every_integrator_and_cone_moves_as_with_mujoco(integrator, cone):
    sim = {"integrator": integrator, "cone": cone}
    pair = [leg_backend(2, backend_class=kind, sim=sim) for kind in (MuJoCoWarpBackend, MuJoCoBackend)]
    for ctrl in controls(pair[0], 25, scale=0.5):
        for backend in pair:
            backend.step_tensor(ctrl, 4)
    found, expected = (everything(backend) for backend in pair)
    assert float((found["qpos"] - expected["qpos"]).abs().max()) < 1e-5
    for key, values in expected.items():
        rounding = 1e-4 + 1e-3 * values.abs().amax(dim=1, keepdim=True)
        assert ((found[key] - values).abs() <= rounding).all(), key


@pytest.mark.parametrize("capture", [True, False])
def test_closing_frees_arrays_and_graphs_at_once(capture):
    backend = make(capture=capture)
    backend.step_tensor(controls(backend, 1)[0], 4)
    held = [weakref.ref(thing) for thing in (backend._physics, backend._physics._data.qpos)]
    gc.collect()
    gc.disable()
    try:
        backend.close()
        assert [ref() for ref in held] == [None, None]
    finally:
        gc.enable()


def test_closing_is_idempotent_and_everything_after_it_is_refused():
    backend = warp_backend(pendulum, 2, sim=SimCfg())
    backend.close()
    backend.close()
    for call in (
        backend.snapshot,
        backend.bad_rows,
        backend.get_state_views,
        lambda: backend.step_tensor(torch.zeros(2, 1)),
        lambda: backend.prepare_step(1),
        lambda: reset_rows(backend, [0]),
    ):
        with pytest.raises(RuntimeError, match="the backend is closed"):
            call()
