"""Actions between the bounds of the environment, and the density of squashed ones."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import AffineTransform, Independent, Normal, TanhTransform, TransformedDistribution

from unilab_core import ConfigError
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.squashed_normal import squashed_sample

INF = math.inf


def bounds(low, high, **settings):
    return ActionBounds(torch.tensor(low), torch.tensor(high), **settings)


@pytest.mark.parametrize(("low", "high", "action"), [(-2.0, 2.0, 0.9242), (-1.0, 3.0, 1.9242)])
def test_half_a_tanh_lands_where_it_should(low, high, action):
    squashed = torch.tensor([[0.5]]).tanh()
    made = bounds([low], [high])
    assert made(squashed).item() == pytest.approx(action, abs=1e-4)
    assert made.squash(made(squashed)).item() == pytest.approx(0.4621, abs=1e-4)


@given(
    low=st.floats(-1e4, 1e4, width=32),
    width=st.floats(2**-6, 1e4, width=32),
    squashed=st.floats(-1.0, 1.0, width=32) | st.sampled_from([-1.0, 1.0]),
)
def test_rounding_leaves_no_action_outside_of_the_bounds(low, width, squashed):
    lowest = torch.tensor([low])
    highest = lowest + width
    made = ActionBounds(lowest, highest)
    action = made(torch.tensor([[squashed]]))
    assert lowest <= action <= highest
    # To what the float32 action itself can tell.
    tolerance = 4 * 2**-23 * (abs(low) + width) / (width / 2)
    assert made.squash(action).item() == pytest.approx(squashed, abs=max(tolerance, 1e-6))


def test_the_ends_are_reached():
    made = bounds([-1.0, -0.5], [3.0, 0.25])
    assert made(torch.tensor([[-1.0, 1.0]])).tolist() == [[-1.0, 0.25]]
    assert made(torch.tensor([[1.0, -1.0]])).tolist() == [[3.0, -0.5]]


def test_the_volume_is_the_sum_of_the_logarithms_of_the_half_widths():
    assert bounds([-1.0, -0.5], [3.0, 0.25]).log_volume.item() == pytest.approx(math.log(2.0 * 0.375))


def test_uniform_actions_fill_the_bounds_from_the_given_generator():
    made = bounds([-1.0, 10.0], [3.0, 10.5])
    before = torch.get_rng_state()
    actions = made.uniform(4000, torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(actions, made.uniform(4000, torch.Generator().manual_seed(0)))
    assert bool((actions >= made.low).all())
    assert bool((actions <= made.high).all())
    # A uniform variable of half width h has the deviation h / sqrt(3).
    assert actions.mean(0).tolist() == pytest.approx([1.0, 10.25], abs=0.1)
    assert actions.std(0).tolist() == pytest.approx([2 / math.sqrt(3), 0.25 / math.sqrt(3)], rel=0.05)


def test_a_limit_replaces_infinite_bounds_and_no_others():
    made = bounds([-INF, -INF, 2.0, -0.5], [INF, 1.0, INF, 0.25], action_limit=3.0)
    assert made.low.tolist() == [-3.0, -5.0, 2.0, -0.5]
    assert made.high.tolist() == [3.0, 1.0, 8.0, 0.25]


def test_an_infinite_bound_without_a_limit_names_the_setting():
    with pytest.raises(
        ConfigError, match=r"actions \[1, 2\] of 3 have an infinite bound.*learner\.action_limit"
    ):
        bounds([-1.0, -INF, 0.0], [1.0, 1.0, INF])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (
            [0.0, 1.0],
            [1.0, 1.0],
            r"action 1 is bounded by \[1, 1\], expected finite bounds, the lower one first",
        ),
        ([0.0, 2.0], [1.0, 1.0], r"action 1 is bounded by \[2, 1\]"),
        ([0.0, math.nan], [1.0, 1.0], r"action 1 is bounded by \[nan, 1\]"),
        ([0.0, -3e38], [1.0, 3e38], r"action 1 is bounded by \[-3e\+38, 3e\+38\]"),
        ([INF, 0.0], [INF, 1.0], "infinite bound"),
        ([0.0, 0.0], [1.0], r"shapes \(2,\) and \(1,\), expected \(A,\) twice"),
        ([], [], r"shapes \(0,\) and \(0,\)"),
    ],
)
def test_bounds_that_are_no_range_are_refused(low, high, words):
    with pytest.raises(ConfigError, match=words):
        bounds(low, high)


def test_a_limit_does_not_save_bounds_on_the_wrong_side():
    with pytest.raises(ConfigError, match="action 0 is bounded by"):
        bounds([INF], [INF], action_limit=1.0)


def test_no_state_holds_the_bounds():
    assert bounds([-1.0], [1.0]).state_dict() == {}


def test_the_worked_log_probabilities():
    zero = torch.zeros(1, 1)
    squashed, log_prob = squashed_sample(zero, zero, torch.full((1, 1), 0.5))
    assert squashed.item() == pytest.approx(0.4621, abs=1e-4)
    assert log_prob.item() == pytest.approx(-0.8037, abs=1e-4)
    assert (log_prob - bounds([-2.0], [2.0]).log_volume).item() == pytest.approx(-1.4969, abs=1e-4)


@given(
    mean=st.floats(-4.0, 4.0, width=32),
    log_std=st.floats(-3.0, 0.5, width=32),
    noise=st.floats(-3.0, 3.0, width=32),
)
def test_the_density_is_that_of_torch(mean, log_std, noise):
    made = bounds([-1.0, 10.0], [3.0, 10.5])
    means, log_stds, noises = (
        torch.tensor([[value, -0.5 * value]], dtype=torch.float64) for value in (mean, log_std, noise)
    )
    squashed, log_prob = squashed_sample(means.float(), log_stds.float(), noises.float())
    distribution = TransformedDistribution(
        Independent(Normal(means, log_stds.exp()), 1),
        [
            TanhTransform(cache_size=1),  # keeps what was squashed: inverting it would round
            AffineTransform(made.centre.double(), made.half_width.double(), cache_size=1, event_dim=1),
        ],
    )
    action = means + log_stds.exp() * noises
    for transform in distribution.transforms:
        action = transform(action)
    assert made(squashed).flatten().tolist() == pytest.approx(action.flatten().tolist(), abs=1e-5)
    expected = distribution.log_prob(action).item()
    assert (log_prob - made.log_volume).item() == pytest.approx(expected, rel=1e-5, abs=2e-5)


@pytest.mark.parametrize("unsquashed", [-300.0, -40.0, -12.0, 0.0, 9.0, 20.0, 300.0])
def test_the_density_of_saturated_actions_is_exact(unsquashed):
    """A Normal at its mean, so only log(1 - tanh(u)^2) = log 4 - 2|u| - 2 log(1 + exp(-2|u|)) matters."""
    mean = torch.tensor([[unsquashed]], requires_grad=True)
    squashed, log_prob = squashed_sample(mean, torch.zeros(1, 1), torch.zeros(1, 1))
    size = abs(unsquashed)
    log_slope = math.log(4.0) - 2 * size - 2 * math.log1p(math.exp(-2 * size))
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - log_slope, rel=1e-6)
    assert abs(squashed.item()) <= 1.0
    log_prob.backward()
    # d/du of -log(1 - tanh(u)^2) is 2 tanh(u).
    assert mean.grad.item() == pytest.approx(2 * math.tanh(unsquashed), abs=1e-6)
