"""Advantages and targets of rollouts equal their definitions, written as loops over every later step."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unilab_rl.targets import gae, vtrace

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
NOT_READ = math.nan


def rollout(rewards, values, last, ends, finals, dtype=torch.float64):
    """Time-major arguments from lists over (T, N); an end is "", "t", "u" or "tu"."""
    terminated = torch.tensor([["t" in end for end in row] for row in ends])
    truncated = torch.tensor([["u" in end for end in row] for row in ends])
    timed_out = truncated & ~terminated
    final = torch.tensor(finals, dtype=dtype)
    return {
        "rewards": torch.tensor(rewards, dtype=dtype),
        "values": torch.tensor(values, dtype=dtype),
        "last_values": torch.tensor(last, dtype=dtype),
        "terminated": terminated,
        "truncated": truncated,
        "final_values": torch.where(timed_out, final, torch.full_like(final, NOT_READ)),
    }


@st.composite
def rollouts(draw):
    steps, rows = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    number = st.floats(-10, 10, width=32)

    def table(element):
        return [[draw(element) for _ in range(rows)] for _ in range(steps)]

    ends = table(st.sampled_from(["", "", "", "t", "u", "tu"]))
    last = [draw(number) for _ in range(rows)]
    parts = rollout(table(number), table(number), last, ends, table(number))
    return parts, torch.tensor(table(st.floats(-3, 3, width=32)), dtype=torch.float64)


def reached(parts, t, n):
    """What the step led to is worth, and whether the episode goes on."""
    if parts["terminated"][t, n]:
        return 0.0, False
    if parts["truncated"][t, n]:
        return float(parts["final_values"][t, n]), False
    if t + 1 == len(parts["rewards"]):
        return float(parts["last_values"][n]), False
    return float(parts["values"][t + 1, n]), True


def weighted_sum(parts, t, n, gamma, weight, factor):
    """sum_l gamma^l prod_{i<l} factor(t + i) weight(t + l) delta_{t+l} up to the end of the episode."""
    total, scale, step = 0.0, 1.0, t
    while True:
        value, goes_on = reached(parts, step, n)
        delta = float(parts["rewards"][step, n]) + gamma * value - float(parts["values"][step, n])
        total += scale * weight(step, n) * delta
        if not goes_on:
            return total
        scale *= gamma * factor(step, n)
        step += 1


def table_like(parts, function):
    steps, rows = parts["rewards"].shape
    return torch.tensor([[function(t, n) for n in range(rows)] for t in range(steps)], dtype=torch.float64)


def test_qa_001_a_time_out_is_bootstrapped_from_the_value_of_the_final_observation():
    # By hand: delta_1 = 1 + 0.99 * 10 - 2 = 8.9, and nothing passes from step 2 to step 1.
    # delta_0 = 1 + 0.99 * 2 - 1 = 1.98, advantage_0 = 1.98 + 0.99 * 0.95 * 8.9 = 10.35045.
    parts = rollout([[1.0]] * 3, [[1.0], [2.0], [3.0]], [4.0], [[""], ["u"], [""]], [[0.0], [10.0], [0.0]])
    advantages, returns = gae(**parts, gamma=0.99, lam=0.95)
    expected = torch.tensor([[10.35045], [8.9], [1.96]], dtype=torch.float64)
    torch.testing.assert_close(advantages, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(returns, expected + parts["values"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("end", ["t", "tu"])
def test_a_true_end_is_not_bootstrapped_and_wins_over_a_time_out(end):
    parts = rollout([[1.0]] * 3, [[1.0], [2.0], [3.0]], [4.0], [[""], [end], [""]], [[0.0], [10.0], [0.0]])
    advantages, _ = gae(**parts, gamma=0.99, lam=0.95)
    # delta_1 = 1 - 2 = -1; advantage_0 = 1.98 - 0.9405
    torch.testing.assert_close(
        advantages.flatten(), torch.tensor([1.0395, -1.0, 1.96], dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_an_end_at_the_last_step_reads_the_final_value_and_not_that_of_the_next_episode():
    parts = rollout([[1.0, 1.0]], [[2.0, 2.0]], [NOT_READ, NOT_READ], [["u", "t"]], [[10.0, 0.0]])
    advantages, _ = gae(**parts, gamma=0.5, lam=1.0)
    assert advantages.tolist() == [[4.0, -1.0]]


@EXAMPLES
@given(rollouts(), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.95, 1.0]))
def test_gae_is_the_discounted_sum_of_all_later_errors_of_the_episode(case, gamma, lam):
    parts, _ = case
    advantages, returns = gae(**parts, gamma=gamma, lam=lam)
    expected = table_like(
        parts, lambda t, n: weighted_sum(parts, t, n, gamma, lambda *_: 1.0, lambda *_: lam)
    )
    torch.testing.assert_close(advantages, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(returns, expected + parts["values"], rtol=1e-10, atol=1e-10)


@EXAMPLES
@given(rollouts(), st.sampled_from([0.9, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.5, 2.0]))
def test_vtrace_equals_its_definition(case, gamma, lam, bar):
    parts, log_ratios = case
    result = vtrace(log_ratios, **parts, gamma=gamma, lam=lam, rho_bar=bar, c_bar=1.5)

    def rho(t, n):
        return min(bar, math.exp(log_ratios[t, n]))

    def trace(t, n):
        return lam * min(1.5, math.exp(log_ratios[t, n]))

    def target(t, n):
        return float(parts["values"][t, n]) + weighted_sum(parts, t, n, gamma, rho, trace)

    def advantage(t, n):
        value, goes_on = reached(parts, t, n)
        following = target(t + 1, n) if goes_on else value
        return rho(t, n) * (float(parts["rewards"][t, n]) + gamma * following - float(parts["values"][t, n]))

    torch.testing.assert_close(result.targets, table_like(parts, target), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.advantages, table_like(parts, advantage), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.ratios, table_like(parts, rho), rtol=1e-12, atol=0)


@EXAMPLES
@given(rollouts(), st.sampled_from([0.0, 0.7, 1.0]))
def test_vtrace_of_one_and_the_same_policy_gives_the_returns_of_gae(case, lam):
    parts, log_ratios = case
    _, returns = gae(**parts, gamma=0.9, lam=lam)
    targets = vtrace(torch.zeros_like(log_ratios), **parts, gamma=0.9, lam=lam).targets
    torch.testing.assert_close(targets, returns, rtol=1e-10, atol=1e-10)


@EXAMPLES
@given(rollouts(), st.randoms(use_true_random=False))
def test_rows_do_not_know_each_other(case, random):
    parts, log_ratios = case
    order = list(range(parts["rewards"].shape[1]))
    random.shuffle(order)
    turned = {name: part[..., order] for name, part in parts.items()}
    for whole, other in (
        (gae(**parts, gamma=0.9, lam=0.8), gae(**turned, gamma=0.9, lam=0.8)),
        (vtrace(log_ratios, **parts, gamma=0.9), vtrace(log_ratios[:, order], **turned, gamma=0.9)),
    ):
        for one, two in zip(whole, other, strict=True):
            assert torch.equal(one[:, order], two)


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_however_different_the_policies_are_targets_stay_finite(size):
    parts = rollout([[1.0]] * 2, [[1.0], [2.0]], [3.0], [[""], [""]], [[0.0], [0.0]], dtype=torch.float32)
    result = vtrace(torch.full((2, 1), size), **parts, gamma=0.9, rho_bar=2.0)
    assert all(part.isfinite().all() for part in result)
    # Weight 2: delta_1 = 2 (1 + 2.7 - 2) = 3.4. Weight 0: targets are the values.
    assert float(result.targets[1]) == pytest.approx(5.4 if size > 0 else 2.0, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_arguments(dtype):
    parts = rollout([[1.0]], [[1.0]], [1.0], [[""]], [[0.0]], dtype=dtype)
    assert {part.dtype for part in gae(**parts, gamma=0.9, lam=0.9)} == {dtype}
    assert {part.dtype for part in vtrace(torch.zeros(1, 1, dtype=dtype), **parts, gamma=0.9)} == {dtype}


@pytest.mark.parametrize(
    ("name", "wrong", "error", "message"),
    [
        ("values", torch.zeros(3, 2), ValueError, r"values has shape \(3, 2\), expected \(3, 1\)"),
        ("last_values", torch.zeros(1, 1), ValueError, r"last_values has shape \(1, 1\), expected \(1,\)"),
        ("final_values", torch.zeros(3, 1).double(), TypeError, "final_values has dtype torch.float64"),
        ("last_values", torch.zeros(1).double(), TypeError, "last_values has dtype torch.float64"),
        (
            "terminated",
            torch.zeros(3, 1),
            TypeError,
            "terminated has dtype torch.float32, expected torch.bool",
        ),
        ("rewards", torch.zeros(3), ValueError, r"rewards has shape \(3,\), expected \(T, N\)"),
        (
            "rewards",
            torch.zeros(0, 1),
            ValueError,
            r"rewards has shape \(0, 1\), expected \(T, N\) of at least",
        ),
    ],
)
@pytest.mark.parametrize("function", ["gae", "vtrace"])
def test_what_would_broadcast_is_refused_by_name(function, name, wrong, error, message):
    parts = rollout([[1.0]] * 3, [[1.0]] * 3, [4.0], [[""]] * 3, [[0.0]] * 3, dtype=torch.float32)
    parts[name] = wrong
    call = partial(gae, lam=0.9) if function == "gae" else partial(vtrace, torch.zeros(3, 1))
    with pytest.raises(error, match=f"{function}: {message}"):
        call(**parts, gamma=0.9)


def test_a_weight_bound_that_is_not_positive_is_refused():
    parts = rollout([[1.0]], [[1.0]], [1.0], [[""]], [[0.0]])
    with pytest.raises(ValueError, match="rho_bar is 0.0 and c_bar 1.0, expected positive"):
        vtrace(torch.zeros(1, 1), **parts, gamma=0.9, rho_bar=0.0)
