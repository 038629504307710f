"""A payload on a device is checked there, once: it is compared there too, not checked again where it arrives."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from other_device import DEVICE, other_device
from payload_support import DECLARED, LAYOUT, POSE, full, validate, watched_checks
from torch.utils._python_dispatch import TorchDispatchMode

from unisim import HostBridgeSpec, ResetPayload, ResetRejectedError, TensorExecution
from unisim.testing import FakeBackend, fake

CUDA = pytest.param(
    torch.device("cuda", 0),
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    id="cuda",
)
KINDS = {"staged plan": TensorExecution.HOST_BRIDGE, "resident backend": TensorExecution.DEVICE_RESIDENT}
CALLS = ("apply_reset", "write_rows")


@pytest.fixture(params=[pytest.param(DEVICE, id="other"), CUDA])
def device(request, monkeypatch):
    """A device that is not the CPU, for as long as the test lasts."""
    monkeypatch.setattr(fake, "_DEVICES", ("cpu", request.param.type))
    with other_device() if request.param == DEVICE else nullcontext():
        yield request.param


@pytest.fixture(params=KINDS)
def door(request, device):
    """What takes payloads on the device, and the backend behind it."""
    execution = KINDS[request.param]
    backend = FakeBackend(LAYOUT, 4, execution=execution, device=str(device), declared=DECLARED)
    plan = None
    if execution is TensorExecution.HOST_BRIDGE:
        plan = backend.compile_host_bridge_io(HostBridgeSpec(device=str(device)))
    target = plan or backend
    mask = torch.tensor([True, False, True, False]).to(device)

    def commit(call: str, payload: ResetPayload) -> None:
        getattr(target, call)(mask, payload)
        if plan is not None:
            plan.read_selected()

    return SimpleNamespace(commit=commit, backend=backend, device=device, mask=mask, plan=plan)


@pytest.fixture
def checks():
    """The owners on whose behalf the values of payloads were checked, in order."""
    with watched_checks() as owners:
        yield owners


def state_of(door) -> dict[str, list]:
    return {name: values.cpu().tolist() for name, values in door.backend.get_state_views().items()}


@pytest.mark.parametrize("call", CALLS)
def test_what_was_validated_on_a_device_is_not_checked_again(door, checks, call):
    door.commit(call, validate(full(door.device)))
    assert checks == ["Env.reset"]
    assert [state_of(door)["qpos"][row] for row in (0, 2)] == [pytest.approx(POSE)] * 2


@pytest.mark.parametrize("call", CALLS)
def test_what_was_never_validated_is_checked_once_at_the_door(door, checks, call):
    door.commit(call, full(door.device))
    assert checks == [f"FakeBackend.{call}"]


CHANGES = {
    "state": lambda payload: payload.qpos[1, 8:].fill_(math.nan),
    "another tensor": lambda payload: setattr(payload, "ctrl", torch.full_like(payload.ctrl, math.nan)),
    "model": lambda payload: payload.model["body_mass"][1:].fill_(math.nan),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_after_the_validation_is_never_trusted(door, checks, change, call):
    before = state_of(door)
    payload = validate(full(door.device))
    change(payload)
    with pytest.raises(ResetRejectedError, match=f"FakeBackend.{call}: .* is nan; nothing was written"):
        getattr(door.plan or door.backend, call)(door.mask, payload)
    assert checks == ["Env.reset", f"FakeBackend.{call}"]
    assert state_of(door) == before


def test_a_valid_change_is_checked_and_written(door, checks):
    payload = validate(full(door.device))
    payload.qvel[1, 7:].fill_(5.0)
    door.commit("apply_reset", payload)
    assert checks == ["Env.reset", "FakeBackend.apply_reset"]
    assert state_of(door)["qvel"][2][7] == 5.0


def test_parts_that_went_are_noticed(door, checks):
    payload = validate(full(door.device))
    payload.qvel = None
    door.commit("apply_reset", payload)
    assert checks == ["Env.reset", "FakeBackend.apply_reset"]


def test_one_validation_says_nothing_of_the_next_payload(door, checks):
    door.commit("apply_reset", validate(full(door.device)))
    following = full(door.device)  # packed where the validated one was
    following.qvel[0, 0:1].fill_(math.inf)
    with pytest.raises(ResetRejectedError, match="qvel of row 0, column 0 is inf"):
        door.commit("apply_reset", following)


def test_rows_that_do_not_exist_are_refused(door):
    payload = validate(full(door.device))
    payload.env_ids[1:].fill_(9)
    with pytest.raises(ResetRejectedError, match="FakeBackend.apply_reset: env_ids .* out of range"):
        door.commit("apply_reset", payload)


class Answers(TorchDispatchMode):
    """Counts the values that are read from a device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_comparing_all_parts_waits_for_one_answer(device):
    payload = validate(full(device))
    with Answers() as answers:
        assert payload.validation.holds(payload)
    assert answers.count == 1
