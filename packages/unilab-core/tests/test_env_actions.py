"""Actions are checked before anything changes, and never modified."""

from __future__ import annotations

import array
import math

import pytest
import torch
from core_support import ScriptedEnv, assert_same, copied, steps, zeros

from unilab_core import NonFiniteError

WRONG = [
    ([[0.0], [0.0], [0.0]], TypeError, "actions is a list, expected a float32 torch.Tensor"),
    (array.array("f", [0.0] * 3), TypeError, "actions is a array, expected a float32 torch.Tensor"),
    (None, TypeError, "actions is a NoneType, expected a float32 torch.Tensor"),
    (
        torch.zeros(3, 1, dtype=torch.float64),
        TypeError,
        r"actions is torch.float64, expected torch.float32; convert with actions.float\(\)",
    ),
    (torch.zeros(3, 1, dtype=torch.int64), TypeError, "actions is torch.int64, expected torch.float32"),
    (torch.zeros(3), ValueError, r"actions has shape \(3,\), expected \(3, 1\)"),
    (torch.zeros(2, 1), ValueError, r"actions has shape \(2, 1\), expected \(3, 1\)"),
    (torch.zeros(3, 2), ValueError, r"actions has shape \(3, 2\), expected \(3, 1\)"),
    (torch.zeros(3, 1, device="meta"), ValueError, "actions is on meta, expected cpu"),
    (torch.zeros(3, 4)[:, 2:3], ValueError, r"actions is not contiguous; pass actions.contiguous\(\)"),
    (torch.zeros(1, 1).expand(3, 1), ValueError, "actions is not contiguous"),
    (
        torch.tensor([[0.0], [math.nan], [0.0]]),
        NonFiniteError,
        r"actions is not finite at rows \[1\], columns \[0\]",
    ),
    (
        torch.tensor([[0.0], [0.0], [math.inf]]),
        NonFiniteError,
        r"actions is not finite at rows \[2\], columns \[0\]",
    ),
]


@pytest.mark.parametrize(("actions", "error", "message"), WRONG)
def test_wrong_actions_are_refused_and_the_next_step_is_that_of_a_twin(actions, error, message):
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        for each in (env, twin):
            each.reset()
            each.step(torch.full((3, 1), 0.5))
        before = copied(env.state)
        with pytest.raises(error, match=f"^ScriptedEnv.step: {message}"):
            env.step(actions)
        assert not env.faulted
        assert_same(copied(env.state), before)
        assert torch.equal(env.last_action, twin.last_action)
        assert env.step_counter == twin.step_counter == 1
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


def test_wrong_actions_reach_no_hook_that_may_change_something():
    with ScriptedEnv() as env:
        env.reset()
        env.calls.clear()
        with pytest.raises(NonFiniteError):
            env.step(torch.full((3, 1), math.nan))
        assert env.calls == [("_control", None)]


def test_qa_066_one_bad_row_is_named_and_the_others_equal_a_run_without_it():
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        env.reset()
        twin.reset()
        bad = torch.tensor([[1.0], [math.nan], [1.0]])
        with pytest.raises(NonFiniteError, match=r"rows \[1\]"):
            env.step(bad)
        good = torch.tensor([[1.0], [0.0], [1.0]])
        assert_same(copied(env.step(good)), copied(twin.step(good)))


def test_a_control_that_is_not_finite_is_named_before_physics_moves():
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_control"] = lambda actions: 1.0 / actions
        with pytest.raises(NonFiniteError, match=r"ScriptedEnv.step: control is not finite at rows \[0, 2\]"):
            env.step(torch.tensor([[0.0], [1.0], [0.0]]))
        assert not env.faulted
        assert env.step_counter == 0


def test_the_callers_actions_are_never_modified():
    with ScriptedEnv() as env:
        env.reset()
        actions = torch.tensor([[0.5], [-3.0], [2.0]])
        kept = actions.clone()
        env.step(actions)
        env.step(actions)
        assert torch.equal(actions, kept)


def test_actions_that_change_after_the_step_change_nothing():
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        env.reset()
        twin.reset()
        actions = torch.full((3, 1), 0.5)
        env.step(actions)
        twin.step(torch.full((3, 1), 0.5))
        actions.fill_(99.0)
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


def test_qa_046_actions_with_a_gradient_give_the_same_step_and_no_growing_graph():
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        env.reset()
        twin.reset()
        env.inject["_rewards"] = lambda: env.last_action[:, 0]
        twin.inject["_rewards"] = lambda: twin.last_action[:, 0]
        leaf = torch.full((3, 1), 0.5, requires_grad=True)
        for _ in range(3):
            state = env.step(leaf * 2.0)
            twin.step(torch.ones(3, 1))
        assert not any(values.requires_grad for values in copied(state).values())
        assert_same(copied(state), copied(twin.state))


@pytest.mark.parametrize(
    "strided",
    [
        lambda values: torch.cat([torch.zeros(3, 3), values], dim=1)[:, 3:],
        lambda values: torch.stack([values[:, 0]] * 2)[0][:, None].t().contiguous().t(),
    ],
)
def test_qa_046_a_view_with_strides_is_refused_or_gives_the_contiguous_result(strided):
    values = torch.tensor([[0.1], [0.2], [0.3]])
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        env.reset()
        twin.reset()
        expected = copied(twin.step(values))
        view = strided(values)
        if not view.is_contiguous():
            with pytest.raises(ValueError, match="not contiguous"):
                env.step(view)
            view = view.contiguous()
        assert_same(copied(env.step(view)), expected)


def test_a_longer_list_of_bad_rows_is_cut_in_the_message():
    with ScriptedEnv(20) as env:
        env.reset()
        with pytest.raises(NonFiniteError, match=r"rows \[0, 1, 2, 3, 4, 5, 6, 7\], columns"):
            env.step(torch.full((20, 1), math.nan))
        assert steps(env, 1) is not None
