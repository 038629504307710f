"""A payload is checked once: what was validated and has not changed is compared at the door, not checked again."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from payload_support import DECLARED, LAYOUT, POSE, full, validate, watched_checks
from unisim_support import rows_mask, staged_plan

from unisim import HostBridgeSpec, ResetPayload, ResetRejectedError
from unisim.testing import FakeBackend


@pytest.fixture
def checks():
    """The owners on whose behalf the values of payloads were checked, in order."""
    with watched_checks() as owners:
        yield owners


def doors() -> dict:
    """A backend's own door, and plans without and with storage of their own."""
    spec = HostBridgeSpec()
    return {
        "backend": lambda backend: backend,
        "plan": lambda backend: backend.compile_host_bridge_io(spec),
        "staged plan": lambda backend: staged_plan(backend, spec),
    }


@pytest.fixture(params=doors())
def door(request):
    return doors()[request.param](FakeBackend(LAYOUT, 4, declared=DECLARED))


MASK = rows_mask([0, 2], 4)


@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
def test_what_was_validated_is_not_checked_again(door, checks, call):
    getattr(door, call)(MASK, validate(full()))
    assert checks == ["Env.reset"]


@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
def test_what_was_never_validated_is_checked_at_the_door(door, checks, call):
    getattr(door, call)(MASK, full())
    assert checks == [f"FakeBackend.{call}"]


def test_in_inference_mode_too(door, checks):
    with torch.inference_mode():
        door.apply_reset(MASK, validate(full()))
    assert checks == ["Env.reset"]


def number(payload: ResetPayload, value: float) -> None:
    payload.qpos[1, 8] = value


def through_numpy(payload: ResetPayload, value: float) -> None:
    payload.qvel.numpy()[0, 3] = value


def behind_the_counter(payload: ResetPayload, value: float) -> None:
    payload.qvel.data[0, 3] = value


def another_tensor(payload: ResetPayload, value: float) -> None:
    payload.ctrl = torch.full((2, 1), value)


def a_model_value(payload: ResetPayload, value: float) -> None:
    payload.model["body_mass"][1, 1] = value


def a_model_mapping(payload: ResetPayload, value: float) -> None:
    payload.model = {"body_mass": torch.full((2, 2), value)}


CHANGES = {f.__name__: f for f in (number, through_numpy, behind_the_counter, another_tensor)}
MODEL_CHANGES = {f.__name__: f for f in (a_model_value, a_model_mapping)}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("change", [*CHANGES, *MODEL_CHANGES])
def test_a_change_after_the_validation_is_never_trusted(door, checks, change, inference):
    with torch.inference_mode(inference):
        payload = validate(full())
        (CHANGES | MODEL_CHANGES)[change](payload, math.nan)
        with pytest.raises(
            ResetRejectedError, match="FakeBackend.apply_reset: .* is nan; nothing was written"
        ):
            door.apply_reset(MASK, payload)
    assert checks == ["Env.reset", "FakeBackend.apply_reset"]


@pytest.mark.parametrize("change", MODEL_CHANGES)
def test_a_value_that_became_unphysical_is_refused(door, change):
    payload = validate(full())
    MODEL_CHANGES[change](payload, -1.0)
    with pytest.raises(ResetRejectedError, match="'body_mass' of row .: a mass must be positive"):
        door.apply_reset(MASK, payload)


def test_a_valid_change_is_checked_and_written(door, checks):
    payload = validate(full())
    payload.qvel[1, 7] = 5.0
    door.apply_reset(MASK, payload)
    assert checks == ["Env.reset", "FakeBackend.apply_reset"]


def test_other_rows_than_the_validated_ones_are_checked(door):
    payload = validate(full())
    payload.env_ids[1] = 9
    mask = rows_mask([0], 4)
    with pytest.raises(ResetRejectedError, match="FakeBackend.apply_reset: env_ids .* out of range"):
        door.apply_reset(mask, payload)


@pytest.mark.parametrize("call", ["apply_reset", "write_rows"])
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([2, 0], r"env_ids \[2, 0\] are not ascending and unique"),
        ([0, 0], r"env_ids \[0, 0\] are not ascending and unique"),
        ([-2, 2], r"env_ids \[-2, 2\] out of range"),
        ([0, 3], "the mask is not true exactly at the payload's env_ids"),
    ],
)
def test_row_ids_that_are_not_those_of_the_mask_say_what_is_wrong_with_them(door, call, ids, message):
    for payload in (full(), validate(full())):
        payload.env_ids.copy_(torch.tensor(ids))
        with pytest.raises(ResetRejectedError, match=f"FakeBackend.{call}: {message}.*; nothing was written"):
            getattr(door, call)(MASK, payload)


def test_parts_that_came_or_went_are_noticed(checks):
    backend = FakeBackend(LAYOUT, 4, declared=DECLARED)
    fewer, more = validate(full()), full()
    fewer.qvel = None
    more.ctrl = None
    validate(more).ctrl = torch.full((2, 1), math.inf)
    backend.apply_reset(MASK, fewer)
    with pytest.raises(ResetRejectedError, match="ctrl of row 0, column 0 is inf"):
        backend.apply_reset(MASK, more)
    assert checks[-2:] == ["FakeBackend.apply_reset"] * 2


def test_a_validation_holds_for_its_own_model_rows_and_declaration_only(checks):
    backend = FakeBackend(LAYOUT, 4, declared=DECLARED)
    equal = dataclasses.replace(LAYOUT)  # another object: nobody compares whole layouts
    for options in ({"layout": equal}, {"num_envs": 3}, {"declared": ("body_mass", "gravity")}):
        backend.apply_reset(MASK, validate(full(), **options))
    assert checks == ["Env.reset", "FakeBackend.apply_reset"] * 3


def test_a_copy_with_other_parts_is_a_payload_that_nobody_has_validated():
    payload = dataclasses.replace(validate(full()), qvel=torch.full((2, 8), math.nan))
    assert payload.validation is None
    with pytest.raises(ResetRejectedError, match="qvel of row 0, column 0 is nan"):
        FakeBackend(LAYOUT, 4, declared=DECLARED).apply_reset(MASK, payload)


def test_a_rejected_payload_is_not_remembered():
    payload = full()
    payload.qpos[0, 0] = math.nan
    with pytest.raises(ResetRejectedError, match="Env.reset: qpos of row 0"):
        validate(payload)
    assert payload.validation is None


def test_a_full_state_is_checked(checks):
    FakeBackend(LAYOUT, 4).set_state_tensor(torch.tensor([1]), torch.tensor([POSE]), torch.zeros(1, 8))
    assert checks == ["FakeBackend.set_state_tensor"]
