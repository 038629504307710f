"""The fake: the real contract over scripted states and injected faults."""

from __future__ import annotations

import pytest
import torch
from unisim_support import calls_of_two_rows, fake_plan, reset_rows, rows_mask, write_rows

from unisim import (
    CapabilityError,
    HostBridgeSpec,
    NonFiniteError,
    ResetPayload,
    ResetRejectedError,
)
from unisim.testing import FakeBackend, Fault, make_layout

LAYOUT = make_layout(sensors={"imu": (2, "velocity")}, timestep=0.5)


def backend(**options):
    return FakeBackend(LAYOUT, 2, **options)


def test_every_row_starts_in_the_default_state():
    assert backend().get_state_views()["qpos"].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_control_accelerates_its_joint():
    # Semi-implicit Euler, dt 0.5, control 2: v = 1, 2; q = 0.5, 1.5.
    fake = backend()
    fake.step_tensor(torch.tensor([[2.0], [0.0]]), nsteps=2)
    views = fake.get_state_views()
    assert views["qvel"].tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert views["qpos"].tolist() == [[1.5, 0.0], [0.0, 0.0]]
    assert views["ctrl"].tolist() == [[2.0], [0.0]]


def test_a_script_overwrites_what_it_returns_after_each_substep():
    seen = []

    def script(substep, state):
        seen.append(substep)
        return {"sensor:imu": torch.full((2, 2), float(substep))}

    fake = backend(script=script)
    fake.step_tensor(torch.zeros(2, 1), nsteps=3)
    assert seen == [1, 2, 3]
    assert fake.get_sensor_view("imu").tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_views_are_copies_that_a_later_step_does_not_rewrite():
    fake = backend()
    views, sensor = fake.get_state_views(), fake.get_sensor_view("imu")
    fake.step_tensor(torch.ones(2, 1))
    assert views["qvel"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    views["qvel"].fill_(9.0)
    sensor.fill_(9.0)
    assert fake.get_state_views()["qvel"].tolist() == [[0.5, 0.0], [0.5, 0.0]]
    assert fake.get_sensor_view("imu").tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(KeyError, match=r"unknown key 'qps'; did you mean 'qpos'\?"):
        backend().get_state_views(["qps"])
    with pytest.raises(KeyError, match=r"unknown sensor 'imo'; did you mean 'imu'\?"):
        backend().get_sensor_view("imo")


@pytest.mark.parametrize(
    ("ctrl", "error", "message"),
    [
        ([[0.0], [0.0]], TypeError, "ctrl is list, expected a float32 tensor"),
        (torch.zeros(2, 1, dtype=torch.float64), TypeError, "ctrl is torch.float64, expected a float32"),
        (torch.zeros(3, 1), ValueError, r"ctrl has shape \(3, 1\); expected contiguous \(2, 1\)"),
        (torch.zeros(2, 2)[:, :1], ValueError, r"ctrl has shape \(2, 1\), not contiguous; expected"),
        (torch.zeros(2, 1, device="meta"), ValueError, "ctrl is on meta, expected cpu; drive other devices"),
        (torch.tensor([[0.0], [float("nan")]]), NonFiniteError, r"control of rows \[1\] is not finite"),
    ],
)
def test_a_wrong_control_is_refused_and_physics_has_not_moved(ctrl, error, message):
    fake = backend()
    with pytest.raises(error, match=message):
        fake.step_tensor(ctrl)
    assert fake.get_state_views()["ctrl"].tolist() == [[0.0], [0.0]]


def test_a_step_of_no_substeps_is_refused():
    with pytest.raises(ValueError, match="nsteps is 0, expected at least 1"):
        backend().step_tensor(torch.zeros(2, 1), nsteps=0)


def test_a_mask_that_does_not_fit_the_ids_is_rejected():
    with pytest.raises(ResetRejectedError, match="mask is not true exactly at the payload's env_ids"):
        backend().apply_reset(rows_mask([0], 2), ResetPayload(torch.tensor([1])))


def test_a_fault_before_the_commit_rejects_that_reset_only():
    fake = backend(faults=[Fault("before_commit", at=1)])
    reset_rows(fake, [0], qpos=[[1.0, 1.0]])
    with pytest.raises(ResetRejectedError, match="injected rejection of reset 1; nothing was written"):
        reset_rows(fake, [0], qpos=[[2.0, 2.0]])
    assert fake.get_state_views()["qpos"][0].tolist() == [1.0, 1.0]
    reset_rows(fake, [0], qpos=[[3.0, 3.0]])
    assert fake.get_state_views()["qpos"][0].tolist() == [3.0, 3.0]


def test_a_fault_after_the_first_write_leaves_a_half_written_row():
    fake = backend(faults=[Fault("after_first_write")])
    write_rows(fake, [0], qvel=[[5.0, 5.0]])
    with pytest.raises(RuntimeError, match="in the middle of reset 0"):
        reset_rows(fake, [0], qpos=[[2.0, 2.0]])
    views = fake.get_state_views()
    assert views["qpos"][0].tolist() == [2.0, 2.0]
    assert views["qvel"][0].tolist() == [5.0, 5.0]


def test_a_fault_in_a_step_is_raised_at_its_substep():
    fake = backend(faults=[Fault("step", at=2)])
    fake.step_tensor(torch.zeros(2, 1), nsteps=2)
    with pytest.raises(RuntimeError, match="injected fault in substep 2"):
        fake.step_tensor(torch.zeros(2, 1))


def test_a_row_made_non_finite_is_bad_until_it_is_reset():
    fake = backend(faults=[Fault("nan", at=0, row=1)])
    assert fake.bad_rows().tolist() == [False, False]
    fake.step_tensor(torch.zeros(2, 1))
    assert fake.bad_rows().tolist() == [False, True]
    reset_rows(fake, [1])
    assert fake.bad_rows().tolist() == [False, False]


def test_a_full_state_is_written_by_set_state():
    fake = backend()
    fake.set_state_tensor(torch.tensor([1]), torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    views = fake.get_state_views()
    assert views["qpos"].tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert views["qvel"].tolist() == [[0.0, 0.0], [3.0, 4.0]]


@pytest.mark.parametrize("call", ["render", "export_model"])
def test_what_it_does_not_offer_is_a_capability_error(call):
    with pytest.raises(CapabilityError, match=rf"FakeBackend.{call} is not available in this version"):
        getattr(backend(), call)(0)


def test_another_device_is_a_capability_error():
    with pytest.raises(CapabilityError, match=r"device 'meta' is not one of \('cpu', 'cuda'\)"):
        backend(device="meta")
    with pytest.raises(CapabilityError, match=r"device 'meta' is not one of \('cpu', 'cuda'\)"):
        backend().compile_host_bridge_io(HostBridgeSpec(device="meta"))


def test_a_backend_needs_a_row():
    with pytest.raises(ValueError, match="FakeBackend: num_envs is 0, expected at least 1"):
        FakeBackend(LAYOUT, 0)


@pytest.mark.parametrize(("call", "arguments"), calls_of_two_rows(2))
def test_every_call_after_close_raises(call, arguments):
    fake = backend()
    fake.close()
    fake.close()
    with pytest.raises(RuntimeError, match=f"FakeBackend.{call}: the backend is closed"):
        getattr(fake, call)(*arguments)


ROW = torch.tensor([True, False])
IDS = torch.tensor([0])


@pytest.mark.parametrize("through_plan", [False, True])
@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
@pytest.mark.parametrize(
    ("mask", "payload", "message"),
    [
        ([True, False], ResetPayload(IDS), "mask is list, expected a torch.Tensor"),
        (None, ResetPayload(IDS), "mask is NoneType, expected a torch.Tensor"),
        (ROW, ResetPayload([0]), "env_ids is list, expected a torch.Tensor"),
        (ROW, ResetPayload(IDS, qpos=[[0.0, 0.0]]), "qpos is list, expected a torch.Tensor"),
        (ROW, ResetPayload(IDS, model=[1]), "model is list, expected a mapping of field names to tensors"),
        (ROW, {"env_ids": IDS}, "payload is dict, expected a ResetPayload"),
    ],
)
def test_a_row_write_of_the_wrong_kind_is_rejected(through_plan, call, mask, payload, message):
    fake, plan = fake_plan(2)
    with pytest.raises(ResetRejectedError, match=message):
        getattr(plan if through_plan else fake, call)(mask, payload)


def test_ids_of_a_full_state_write_that_are_no_tensor_are_rejected():
    with pytest.raises(ResetRejectedError, match="env_ids is list, expected a torch.Tensor"):
        backend().set_state_tensor([0], torch.zeros(1, 2), torch.zeros(1, 2))


@pytest.mark.parametrize("nsteps", [1.5, True, "2", None])
def test_a_number_of_steps_that_is_no_int_is_a_type_error(nsteps):
    fake = backend()
    with pytest.raises(TypeError, match=r"FakeBackend\.step_tensor: nsteps is .*, expected an int"):
        fake.step_tensor(torch.zeros(2, 1), nsteps=nsteps)


@pytest.mark.parametrize("num_envs", [2.0, True])
def test_a_number_of_rows_that_is_no_int_is_a_type_error(num_envs):
    with pytest.raises(TypeError, match=r"FakeBackend: num_envs is .*, expected an int"):
        FakeBackend(make_layout(), num_envs)


def test_a_control_that_is_no_tensor_is_a_type_error():
    fake, plan = fake_plan(2)
    with pytest.raises(TypeError, match="ctrl is list, expected a float32 tensor"):
        fake.step_tensor([[0.0], [0.0]])
    with pytest.raises(TypeError, match="ctrl is list, expected torch.float32"):
        plan.write_control([[0.0], [0.0]])


def test_a_plan_of_a_closed_backend_raises():
    fake, plan = fake_plan()
    fake.close()
    with pytest.raises(RuntimeError, match="the backend is closed"):
        plan.read()
