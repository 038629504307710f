"""The plan knows one order of calls; every other raises RuntimeError."""

from __future__ import annotations

import math

import pytest
import torch
from unisim_support import fake_plan, reset_rows, write_rows

from unisim import NonFiniteError, ResetPayload, ResetRejectedError

CTRL = torch.zeros(3, 1)


@pytest.fixture
def plan():
    return fake_plan()[1]


def controlled(plan):
    plan.write_control(CTRL)


def stepped(plan):
    plan.write_control(CTRL)
    plan.step(2)


def reset(plan):
    reset_rows(plan, [1])


def written(plan):
    write_rows(plan, [1], qvel=[[1.0, 0.0]])


CALLS = {
    "write_control": lambda plan: plan.write_control(CTRL),
    "step": lambda plan: plan.step(2),
    "read": lambda plan: plan.read(),
    "apply_reset": lambda plan: reset_rows(plan, [0]),
    "write_rows": lambda plan: write_rows(plan, [0], qvel=[[1.0, 0.0]]),
    "read_selected": lambda plan: plan.read_selected(),
}
WRONG = [
    (lambda plan: None, "step", r"call write_control\(ctrl\) first"),
    (lambda plan: None, "read_selected", "call apply_reset or write_rows first"),
    (controlled, "write_control", r"step\(\) and read\(\) the previous control first"),
    (controlled, "read", r"call step\(nsteps\) first"),
    (controlled, "apply_reset", r"finish the step with read\(\) first"),
    (controlled, "write_rows", r"finish the step with read\(\) first"),
    (controlled, "read_selected", "call apply_reset or write_rows first"),
    (stepped, "step", r"call write_control\(ctrl\) first"),
    (stepped, "write_control", r"step\(\) and read\(\) the previous control first"),
    (stepped, "apply_reset", r"finish the step with read\(\) first"),
    (stepped, "write_rows", r"finish the step with read\(\) first"),
    (reset, "write_control", r"call read_selected\(\) first"),
    (reset, "read", r"call read_selected\(\) first"),
    (reset, "apply_reset", r"call read_selected\(\) first"),
    (reset, "write_rows", r"call read_selected\(\) first"),
    (written, "write_control", r"call read_selected\(\) first"),
    (written, "read", r"call read_selected\(\) first"),
    (written, "apply_reset", r"call read_selected\(\) first"),
]


@pytest.mark.parametrize(
    ("before", "call", "remedy"), WRONG, ids=[f"{before.__name__}-{call}" for before, call, _ in WRONG]
)
def test_a_call_out_of_order_raises_and_says_what_to_call_first(plan, before, call, remedy):
    before(plan)
    with pytest.raises(RuntimeError, match=f"HostBridgeTransferPlan.{call}: wrong order; {remedy}"):
        CALLS[call](plan)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_a_closed_plan_raises(plan, call):
    plan.close()
    with pytest.raises(RuntimeError, match=f"HostBridgeTransferPlan.{call}: the plan is closed"):
        CALLS[call](plan)


def test_closing_a_plan_twice_is_allowed(plan):
    plan.close()
    plan.close()


def test_a_packet_may_be_read_again(plan):
    first = plan.read().clone()
    assert torch.equal(plan.read(), first)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_control_that_is_not_finite_is_rejected_before_physics_moves(value):
    backend, plan = fake_plan()
    reset_rows(plan, [0, 1, 2], qvel=[[1.0, 0.0]] * 3)
    plan.read_selected()
    before = backend.get_state_views()
    ctrl = CTRL.clone()
    ctrl[1] = value
    plan.write_control(ctrl)
    with pytest.raises(NonFiniteError, match=r"control of rows \[1\] is not finite; physics has not moved"):
        plan.step(2)
    assert all(torch.equal(values, before[name]) for name, values in backend.get_state_views().items())


def test_after_a_rejected_control_another_one_may_be_written(plan):
    plan.write_control(torch.full((3, 1), math.nan))
    with pytest.raises(NonFiniteError):
        plan.step(2)
    plan.write_control(CTRL)
    plan.step(2)
    plan.read()


@pytest.mark.parametrize("shape", [(3,), (1, 1), (2, 1), (3, 2)])
def test_a_control_of_another_shape_is_refused(plan, shape):
    with pytest.raises(ValueError, match=r"write_control: ctrl has shape .*expected \(3, 1\)"):
        plan.write_control(torch.zeros(shape))


def test_a_control_of_another_dtype_is_refused(plan):
    with pytest.raises(TypeError, match=r"write_control: ctrl is torch.float64, expected torch.float32"):
        plan.write_control(torch.zeros(3, 1, dtype=torch.float64))


def test_a_control_is_not_modified_and_may_change_after_it_was_written(plan):
    ctrl = torch.ones(3, 1)
    plan.write_control(ctrl)
    ctrl.fill_(5.0)
    plan.step(1)
    assert plan.read()[:, 4].tolist() == [1.0, 1.0, 1.0]
    assert ctrl.tolist() == [[5.0]] * 3


def test_a_control_with_a_gradient_leaves_no_graph_in_the_packet(plan):
    plan.write_control(torch.zeros(3, 1, requires_grad=True) * 2.0)
    plan.step(1)
    assert not plan.read().requires_grad


ONE = torch.tensor([1])
MASK = torch.tensor([False, True, False])


@pytest.mark.parametrize(
    ("mask", "payload", "message"),
    [
        (
            torch.tensor([0, 1, 0]),
            ResetPayload(ONE),
            r"mask is torch.int64 \(3,\), expected torch.bool \(3,\)",
        ),
        (torch.tensor([True]), ResetPayload(ONE), r"mask is torch.bool \(1,\), expected torch.bool \(3,\)"),
        (~MASK, ResetPayload(ONE), "the mask is not true exactly at the payload's env_ids"),
        (MASK, ResetPayload(torch.tensor([7])), r"env_ids \[7\] out of range, expected 0 <= id < 3"),
        (MASK, ResetPayload(ONE, qpos=torch.zeros(2, 2)), r"qpos is torch.float32 \(2, 2\)"),
        (MASK, ResetPayload(ONE, qpos=torch.zeros(1, 2).double()), r"qpos is torch.float64 \(1, 2\)"),
        (MASK, ResetPayload(ONE, qpos=torch.zeros(1, 900)), "bytes do not fit the compiled packet"),
        (MASK, ResetPayload(ONE, qpos=torch.zeros(1, 3)), r"qpos is torch.float32 \(1, 3\)"),
        (MASK, ResetPayload(ONE, qpos=torch.full((1, 2), math.nan)), "qpos of row 1, column 0 is nan"),
    ],
)
def test_a_payload_that_is_not_valid_is_rejected_and_nothing_is_written(mask, payload, message):
    backend, plan = fake_plan()
    before = plan.read().clone()
    with pytest.raises(ResetRejectedError, match=message):
        plan.apply_reset(mask, payload)
    assert torch.equal(plan.read(), before)
    assert torch.equal(backend.get_state_views()["qpos"], before[:, 0:2])
