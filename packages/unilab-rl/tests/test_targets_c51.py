"""The projection onto fixed atoms keeps the mass, and the mean where nothing is clamped."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unilab_rl.targets import c51_support, lower_mean_distribution, project_c51

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)
ATOMS, LOW, HIGH = 11, -5.0, 5.0


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def project(probabilities, reward, discount, terminated=False, bonus=None, low=LOW, high=HIGH):
    return project_c51(
        doubles(probabilities),
        doubles(reward),
        doubles(discount),
        torch.tensor([terminated]),
        v_min=low,
        v_max=high,
        next_bonus=None if bonus is None else doubles(bonus),
    ).squeeze(0)


def by_triangles(probabilities, reward, discount, terminated, bonus, low, high):
    """sum_i p_i max(0, 1 - |place_i - j|): the same projection, from the side of the atom that receives."""
    count = len(probabilities)
    spacing = (high - low) / (count - 1)
    result = [0.0] * count
    for i, mass in enumerate(probabilities):
        atom = low + i * spacing
        moved = reward if terminated else reward + discount * (atom + bonus)
        place = (min(max(moved, low), high) - low) / spacing
        for j in range(count):
            result[j] += mass * max(0.0, 1.0 - abs(place - j))
    return result


def one_hot(atom):
    return [float(atom == each) for each in range(ATOMS)]


distributions = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=13).map(
    lambda weights: [weight / math.fsum(weights) for weight in weights]
)
numbers = st.floats(-8, 8)


@EXAMPLES
@given(distributions, numbers, st.floats(0, 1), st.booleans(), st.floats(-2, 2))
def test_the_projection_equals_its_definition_and_keeps_the_mass(p, reward, discount, terminated, bonus):
    projected = project(p, reward, discount, terminated, bonus)
    expected = by_triangles(p, reward, discount, terminated, bonus, LOW, HIGH)
    assert projected.tolist() == pytest.approx(expected, abs=1e-12)
    assert float(projected.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(projected.min()) >= 0.0


@EXAMPLES
@given(distributions, st.floats(-1, 1), st.floats(0, 0.7), st.floats(-0.5, 0.5))
def test_the_mean_is_kept_where_no_place_is_clamped(p, reward, discount, bonus):
    support = c51_support(len(p), LOW, HIGH, dtype=torch.float64, device="cpu")
    before = reward + discount * (float(doubles(p) @ support) + bonus)
    assert float(project(p, reward, discount, bonus=bonus) @ support) == pytest.approx(before, abs=1e-12)


@pytest.mark.parametrize(
    ("reward", "atom"), [(-5.0, 0), (-2.0, 3), (0.0, 5), (4.0, 9), (5.0, 10), (9.0, 10), (-9.0, 0)]
)
def test_a_place_on_an_atom_or_beyond_the_last_takes_all_mass(reward, atom):
    uniform = [1 / ATOMS] * ATOMS
    projected = project(uniform, reward, 0.9, terminated=True)
    assert projected.tolist() == pytest.approx(one_hot(atom), abs=1e-15)
    assert int((projected != 0).sum()) == 1


def test_shifting_by_whole_atoms_moves_the_mass_and_gathers_it_at_the_end():
    p = [0.0] * 8 + [0.25, 0.25, 0.5]
    assert project(p, 2.0, 1.0).tolist() == [0.0] * 10 + [1.0]
    assert project(p, -2.0, 1.0).tolist() == [0.0] * 6 + [0.25, 0.25, 0.5, 0.0, 0.0]


def test_behind_true_ends_a_batch_is_two_hot_at_its_rewards():
    probabilities = torch.rand(4, ATOMS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities /= probabilities.sum(dim=1, keepdim=True)
    projected = project_c51(
        probabilities,
        doubles(-4.75, 0.5, 1.0, 3.9),
        torch.full((4,), 0.99, dtype=torch.float64),
        torch.ones(4, dtype=torch.bool),
        v_min=LOW,
        v_max=HIGH,
    )
    expected = torch.zeros(4, ATOMS, dtype=torch.float64)
    expected[0, :2] = doubles(0.75, 0.25)
    expected[1, 5:7] = doubles(0.5, 0.5)
    expected[2, 6] = 1.0
    expected[3, 8:10] = doubles(0.1, 0.9)
    torch.testing.assert_close(projected, expected, rtol=0, atol=1e-12)


def test_rows_do_not_know_each_other():
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(5, ATOMS, generator=generator)
    rewards, discounts = torch.randn(5, generator=generator), torch.rand(5, generator=generator)
    ends = torch.tensor([True, False, False, True, False])
    whole = project_c51(p, rewards, discounts, ends, v_min=LOW, v_max=HIGH)
    for row in range(5):
        one = slice(row, row + 1)
        single = project_c51(p[one], rewards[one], discounts[one], ends[one], v_min=LOW, v_max=HIGH)
        assert torch.equal(single, whole[one])


def test_a_number_that_is_none_shows_in_its_own_row_and_breaks_nothing():
    p = torch.full((3, ATOMS), 1 / ATOMS)
    bonus = torch.tensor([0.0, math.nan, math.nan])
    ends = torch.tensor([False, False, True])
    projected = project_c51(p, torch.zeros(3), torch.ones(3), ends, v_min=LOW, v_max=HIGH, next_bonus=bonus)
    assert projected.isnan().any(dim=1).tolist() == [False, True, False]


def test_the_lower_distribution_comes_whole_from_one_critic():
    support = c51_support(3, -1.0, 1.0, dtype=torch.float32, device="cpu")
    first = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    second = torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    chosen = lower_mean_distribution(torch.stack((first, second)), support)
    # In the second row both means are 0: the first critic stays.
    assert torch.equal(chosen, torch.stack((second[0], first[1], first[2])))


p, one = torch.full((2, 3), 1 / 3), torch.ones(2)
ends = torch.zeros(2, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: project_c51(p, one.unsqueeze(1), one, ends, v_min=0, v_max=1),
            ValueError,
            r"project_c51: rewards has shape \(2, 1\), expected \(2,\)",
        ),
        (
            lambda: project_c51(p[0], one, one, ends, v_min=0, v_max=1),
            ValueError,
            r"project_c51: probabilities has shape \(3,\), expected \(B, M\)",
        ),
        (
            lambda: project_c51(p, one, one, ends.float(), v_min=0, v_max=1),
            TypeError,
            "project_c51: terminated has dtype torch.float32, expected torch.bool",
        ),
        (
            lambda: project_c51(p, one, one, ends, v_min=1, v_max=1),
            ValueError,
            "project_c51: v_min is 1 and v_max 1, expected v_min < v_max",
        ),
        (
            lambda: project_c51(p[:, :1], one, one, ends, v_min=0, v_max=1),
            ValueError,
            "project_c51: 1 atoms, expected at least 2",
        ),
        (
            lambda: c51_support(1, 0.0, 1.0, dtype=torch.float32, device="cpu"),
            ValueError,
            "c51_support: 1 atoms, expected at least 2",
        ),
        (
            lambda: lower_mean_distribution(p, torch.ones(3)),
            ValueError,
            r"lower_mean_distribution: probabilities has shape \(2, 3\), expected \(E, B, M\)",
        ),
        (
            lambda: lower_mean_distribution(p.unsqueeze(0), torch.ones(4)),
            ValueError,
            r"lower_mean_distribution: support has shape \(4,\), expected \(3,\)",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
