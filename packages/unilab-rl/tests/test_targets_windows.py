"""Windows stop at the first end, and what a value behind them adds is discounted by the steps really taken."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unilab_rl.targets import bootstrapped_target, clipped_double_target, n_step_return, soft_target

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_qa_093_a_time_out_inside_the_window_cuts_it_and_its_discount():
    # Two steps until the time-out: R = 1 + 0.99, and Q(final) = 10 counts 0.99^2.
    window = n_step_return(
        torch.ones(1, 3, dtype=torch.float64), flags([0, 1, 0]), flags([1, 1, 1]), gamma=0.99
    )
    assert window.rewards.tolist() == pytest.approx([1.99], abs=1e-12)
    assert window.discounts.tolist() == pytest.approx([0.9801], abs=1e-12)
    assert window.num_steps.tolist() == [2]
    for terminated, expected in ((False, 11.791), (True, 1.99)):
        target = bootstrapped_target(window.rewards, window.discounts, flags(terminated), doubles(10.0))
        assert target.tolist() == pytest.approx([expected], abs=1e-12)


def test_qa_093_an_uncut_window_takes_all_its_steps():
    window = n_step_return(
        torch.ones(1, 3, dtype=torch.float64), flags([0, 0, 0]), flags([1, 1, 1]), gamma=0.99
    )
    target = bootstrapped_target(window.rewards, window.discounts, flags(False), doubles(10.0))
    assert target.tolist() == pytest.approx([2.9701 + 9.70299], abs=1e-12)


def test_qa_095_only_a_true_end_is_not_bootstrapped():
    # Truncated, terminated, both: only `terminated` is told.
    target = bootstrapped_target(
        torch.ones(3), torch.full((3,), 0.99), flags(False, True, True), torch.full((3,), 10.0)
    )
    torch.testing.assert_close(target, torch.tensor([10.9, 1.0, 1.0]))


@EXAMPLES
@given(
    st.lists(st.tuples(st.floats(-5, 5, width=32), st.booleans(), st.booleans()), min_size=1, max_size=9),
    st.sampled_from([0.0, 0.97, 1.0]),
)
def test_a_window_equals_walking_step_by_step(steps, gamma):
    total, count = 0.0, 0
    for reward, ended, available in [(*steps[0][:2], True), *steps[1:]]:
        if not available:
            break
        total += gamma**count * reward
        count += 1
        if ended:
            break
    held = [True, *(step[2] for step in steps[1:])]
    rewards = [step[0] if there else math.nan for step, there in zip(steps, held, strict=True)]
    window = n_step_return(doubles(rewards), flags([step[1] for step in steps]), flags(held), gamma=gamma)
    assert window.num_steps.tolist() == [count]
    assert window.rewards.tolist() == pytest.approx([total], abs=1e-12)
    assert window.discounts.tolist() == pytest.approx([gamma**count], rel=1e-12)


def test_each_window_of_a_batch_is_cut_by_itself():
    rewards = torch.tensor([[1.0, 2.0, 4.0]]).repeat(3, 1)
    window = n_step_return(
        rewards, flags([0, 0, 0], [1, 0, 0], [0, 0, 1]), flags([1, 1, 1], [1, 1, 1], [1, 1, 0]), gamma=0.5
    )
    assert window.rewards.tolist() == [3.0, 1.0, 2.0]
    assert window.discounts.tolist() == [0.125, 0.5, 0.25]
    assert window.num_steps.tolist() == [3, 1, 2]


def test_the_discount_of_a_long_window_in_single_precision_is_rounded_once():
    n = 512
    window = n_step_return(
        torch.zeros(1, n), torch.zeros(1, n, dtype=torch.bool), torch.ones(1, n, dtype=torch.bool), gamma=0.99
    )
    assert window.discounts.dtype == torch.float32
    assert float(window.discounts) == float(torch.tensor(0.99**n, dtype=torch.float32))


def test_what_lies_behind_a_true_end_is_not_read():
    target = bootstrapped_target(
        doubles(1.0, 1.0), doubles(0.5, 0.5), flags(True, False), doubles(math.nan, 2.0)
    )
    assert target.tolist() == [1.0, 2.0]


def test_the_clipped_double_target_takes_the_lowest_critic_of_each_row():
    values = torch.tensor([[1.0, 4.0, 9.0], [2.0, 3.0, 9.0], [5.0, 5.0, 9.0]])
    target = clipped_double_target(torch.ones(3), torch.full((3,), 0.5), flags(False, False, True), values)
    assert target.tolist() == [1.5, 2.5, 1.0]


def test_the_soft_target_adds_the_entropy_behind_the_window_and_none_behind_a_true_end():
    # 1 + 0.5 (min(4, 6) - 0.25 * -2) = 3.25
    values = doubles([4.0, 4.0], [6.0, 6.0])
    for temperature in (0.25, torch.tensor(0.25, dtype=torch.float64)):
        target = soft_target(
            doubles(1.0, 1.0), doubles(0.5, 0.5), flags(False, True), values, doubles(-2.0, -2.0), temperature
        )
        assert target.tolist() == [3.25, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_targets_have_the_dtype_of_the_arguments(dtype):
    one = torch.ones(2, dtype=dtype)
    args = (one, one, flags(False, True))
    assert bootstrapped_target(*args, one).dtype == dtype
    assert clipped_double_target(*args, one.repeat(2, 1)).dtype == dtype
    assert soft_target(*args, one.repeat(2, 1), one, 0.1).dtype == dtype
    assert (
        n_step_return(one.repeat(2, 1), flags([0, 0], [0, 0]), flags([1, 1], [1, 1]), gamma=0.9)[0].dtype
        == dtype
    )


one = torch.ones(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: bootstrapped_target(one, one, flags(0, 0, 0), one.unsqueeze(1)),
            ValueError,
            r"bootstrapped_target: next_values has shape \(3, 1\), expected \(3,\)",
        ),
        (
            lambda: bootstrapped_target(one.sum(), one, flags(0, 0, 0), one),
            ValueError,
            r"bootstrapped_target: rewards has shape \(\), expected",
        ),
        (
            lambda: bootstrapped_target(one, one, one, one),
            TypeError,
            "bootstrapped_target: terminated has dtype torch.float32, expected torch.bool",
        ),
        (
            lambda: bootstrapped_target(one, one.long(), flags(0, 0, 0), one),
            TypeError,
            "discounts has dtype torch.int64, expected a floating one",
        ),
        (
            lambda: clipped_double_target(one, one, flags(0, 0, 0), one),
            ValueError,
            r"clipped_double_target: next_values has shape \(3,\), expected \(E, B\)",
        ),
        (
            lambda: soft_target(one, one, flags(0, 0, 0), torch.ones(0, 3), one, 0.1),
            ValueError,
            r"soft_target: next_values has shape \(0, 3\), expected \(E, B\) of at least one critic",
        ),
        (
            lambda: soft_target(one, one, flags(0, 0, 0), torch.ones(2, 3), one.unsqueeze(1), 0.1),
            ValueError,
            r"soft_target: next_log_probs has shape \(3, 1\), expected \(3,\)",
        ),
        (
            lambda: n_step_return(one, flags(0, 0, 0), flags(1, 1, 1), gamma=0.9),
            ValueError,
            r"n_step_return: rewards has shape \(3,\), expected \(B, n\)",
        ),
        (
            lambda: n_step_return(torch.ones(2, 3), flags(0, 0, 0), flags(1, 1, 1), gamma=0.9),
            ValueError,
            r"n_step_return: ended has shape \(3,\), expected \(2, 3\)",
        ),
    ],
)
def test_what_would_broadcast_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
