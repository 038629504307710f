"""The environment's randomness: seeded, its own, and resumable."""

from __future__ import annotations

import random

import pytest
import torch

from unilab_core import EnvRng


def draws(rng):
    return torch.cat(
        [
            rng.uniform(-1.0, 2.0, (3,)),
            rng.normal(0.0, 1.0, 2),
            rng.integers(0, 10, (2,)).float(),
            rng.choice(torch.tensor([5.0, 7.0]), 3),
        ]
    )


def test_the_same_seed_gives_the_same_draws():
    assert torch.equal(draws(EnvRng(7, "cpu")), draws(EnvRng(7, "cpu")))


def test_another_seed_gives_other_draws():
    assert not torch.equal(draws(EnvRng(7, "cpu")), draws(EnvRng(8, "cpu")))


def test_seeding_again_starts_the_sequence_again():
    rng = EnvRng(7, "cpu")
    first = draws(rng)
    assert not torch.equal(draws(rng), first)
    rng.seed(7)
    assert torch.equal(draws(rng), first)


def test_qa_077_global_generators_neither_change_nor_matter():
    np = pytest.importorskip("numpy")
    torch.manual_seed(0)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    expected = draws(EnvRng(7, "cpu"))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    torch.rand(5)
    assert torch.equal(draws(EnvRng(7, "cpu")), expected)


def test_a_state_taken_out_and_put_back_continues_the_sequence():
    rng = EnvRng(7, "cpu")
    rng.uniform(0.0, 1.0, 5)
    state = rng.get_state()
    expected = draws(rng)
    other = EnvRng(99, "cpu")
    other.set_state(state)
    assert torch.equal(draws(other), expected)


def test_a_state_taken_out_does_not_move_with_the_generator():
    rng = EnvRng(7, "cpu")
    state = rng.get_state()
    kept = state.clone()
    draws(rng)
    assert torch.equal(state, kept)


def test_uniform_draws_fill_their_interval():
    values = EnvRng(0, "cpu").uniform(-2.0, 3.0, (1000, 2))
    assert values.shape == (1000, 2)
    assert values.dtype == torch.float32
    assert values.min() >= -2.0
    assert values.max() <= 3.0
    assert values.min() < -1.9
    assert values.max() > 2.9


def test_bounds_may_differ_by_column():
    low, high = torch.tensor([0.0, 10.0]), torch.tensor([1.0, 20.0])
    values = EnvRng(0, "cpu").uniform(low, high, (100, 2))
    assert (values >= low).all()
    assert (values <= high).all()


def test_normal_draws_have_the_mean_and_deviation_asked_for():
    values = EnvRng(0, "cpu").normal(5.0, torch.tensor([0.1, 2.0]), (20_000, 2))
    torch.testing.assert_close(values.mean(0), torch.tensor([5.0, 5.0]), atol=0.05, rtol=0)
    torch.testing.assert_close(values.std(0), torch.tensor([0.1, 2.0]), atol=0.05, rtol=0)


def test_integers_leave_out_the_upper_end():
    values = EnvRng(0, "cpu").integers(2, 5, 300)
    assert values.dtype == torch.int64
    assert sorted(set(values.tolist())) == [2, 3, 4]


def test_a_choice_draws_only_from_its_values_with_replacement():
    values = EnvRng(0, "cpu").choice(torch.tensor([4, 8, 9]), (50, 2))
    assert values.shape == (50, 2)
    assert sorted(set(values.flatten().tolist())) == [4, 8, 9]


@pytest.mark.parametrize(
    ("seed", "error"), [(True, TypeError), (1.0, TypeError), ("1", TypeError), (-1, ValueError)]
)
def test_a_seed_must_be_a_non_negative_int(seed, error):
    with pytest.raises(error, match="EnvRng.seed: seed is"):
        EnvRng(seed, "cpu")


def test_draws_of_no_rows_are_empty_and_consume_nothing():
    rng = EnvRng(3, "cpu")
    before = rng.get_state()
    assert rng.uniform(0.0, 1.0, (0, 2)).shape == (0, 2)
    assert torch.equal(rng.get_state(), before)


@pytest.mark.parametrize("limits", [(0.0, 1.0), (0, 1), (torch.tensor(0.0), torch.tensor(1.0))])
def test_a_uniform_draw_between_0_and_1_is_the_generator_s_own(limits):
    own = torch.rand((4, 3), generator=torch.Generator().manual_seed(7))
    assert torch.equal(EnvRng(7, "cpu").uniform(*limits, (4, 3)), own)


def test_a_uniform_draw_between_other_limits_is_stretched_and_moved():
    own = torch.rand(5, generator=torch.Generator().manual_seed(7))
    assert torch.equal(EnvRng(7, "cpu").uniform(-1.0, 3.0, 5), own * 4.0 - 1.0)
    assert torch.equal(EnvRng(7, "cpu").uniform(0.0, 2.0, 5), own * 2.0)
    assert torch.equal(EnvRng(7, "cpu").uniform(1.0, 1.0, 5), torch.ones(5))


@pytest.mark.parametrize("call", ["uniform", "normal"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", ["array", "list", "text"])
def test_a_bound_that_is_neither_a_number_nor_a_tensor_is_refused_before_anything_is_drawn(call, place, kind):
    np = pytest.importorskip("numpy")
    given = {"array": np.zeros(3, dtype=np.float32), "list": [0.0, 1.0], "text": "0"}[kind]
    rng, twin = EnvRng(3, "cpu"), EnvRng(3, "cpu")
    name = {"uniform": ("low", "high"), "normal": ("mean", "std")}[call][place]
    arguments = [0.0, 1.0]
    arguments[place] = given
    message = rf"EnvRng.{call}: {name} is a {type(given).__name__}, expected a number or a torch.Tensor; .*as_tensor"
    with pytest.raises(TypeError, match=message):
        getattr(rng, call)(*arguments, 3)
    assert torch.equal(rng.get_state(), twin.get_state())


def test_numbers_of_numpy_and_tensors_bound_draws_as_numbers_do():
    np = pytest.importorskip("numpy")
    plain = EnvRng(3, "cpu").uniform(-1.0, 2.0, 4)
    assert torch.equal(EnvRng(3, "cpu").uniform(np.float64(-1.0), np.int64(2), 4), plain)
    assert torch.equal(EnvRng(3, "cpu").uniform(torch.tensor(-1.0), torch.full((4,), 2.0), 4), plain)
    assert torch.equal(
        EnvRng(3, "cpu").uniform(np.float64(0.0), np.float32(1.0), 4), EnvRng(3, "cpu").uniform(0, 1, 4)
    )
