"""Running statistics equal those of everything seen at once, and the last reward of an episode is its own."""

import math
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_support import WaitCounter

from unilab_core import ConfigError
from unilab_rl.replay import ObservationNormalizer, RewardScaler

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)


@EXAMPLES
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.sampled_from([0.0, 1e3, -1e7]),
    st.integers(0, 1000),
)
def test_statistics_are_those_of_all_rows_at_once(sizes, offset, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(size, 3, generator=generator) + offset for size in sizes]
    normalizer = ObservationNormalizer(3)
    for batch in rows:
        normalizer.update(batch)
    seen = torch.cat(rows)
    assert int(normalizer.count) == len(seen)
    for column in range(3):
        # Exact fractions inside: no rounding until the end.
        values = seen[:, column].tolist()
        mean = math.fsum(values) / len(values) if values else 0.0
        var = pstdev(values) ** 2 if values else 1.0
        assert float(normalizer.mean[column]) == pytest.approx(mean, rel=1e-12, abs=1e-12)
        assert float(normalizer.var[column]) == pytest.approx(var, rel=1e-8, abs=1e-12)


def test_the_count_and_the_mean_go_on_beyond_the_last_count_of_single_precision():
    normalizer = ObservationNormalizer(1)
    normalizer.update(torch.zeros(2, 1))
    normalizer.count.fill_(2**24)
    normalizer.mean.fill_(1.0)
    normalizer.var.fill_(4.0)
    for _ in range(3):
        normalizer.update(torch.tensor([[3.0]]))
    # Merged by hand: n rows of mean 1 and variance 4, and three of 3.
    total = 2**24 + 3
    mean = (2**24 + 9) / total
    squares = 2**24 * (4 + 1) + 27
    assert int(normalizer.count) == total
    assert float(normalizer.mean) == pytest.approx(mean, rel=1e-14)
    assert float(normalizer.var) == pytest.approx(squares / total - mean**2, rel=1e-12)


def test_observations_come_out_with_mean_zero_and_variance_one():
    normalizer = ObservationNormalizer(2, eps=1e-6)
    obs = torch.tensor([[1.0, -40.0], [3.0, 40.0], [5.0, 0.0]])
    normalizer.update(obs)
    result = normalizer(obs)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.mean(dim=0), torch.zeros(2), rtol=0, atol=1e-6)
    torch.testing.assert_close(result.std(dim=0, correction=0), torch.ones(2), rtol=0, atol=1e-5)
    assert torch.equal(normalizer(obs.view(3, 1, 2)), result.view(3, 1, 2))


def test_qa_089_eps_is_added_to_the_standard_deviation():
    normalizer = ObservationNormalizer(1, eps=0.5)
    # Before anything was seen: mean 0, standard deviation 1.
    assert normalizer(torch.tensor([[3.0]])).tolist() == [[2.0]]
    normalizer.update(torch.tensor([[-1.0], [3.0]]))
    # Mean 1, standard deviation 2: (6 - 1) / 2.5
    assert normalizer(torch.tensor([[6.0]])).tolist() == [[2.0]]


def test_in_evaluation_mode_the_statistics_stay():
    normalizer, scaler = ObservationNormalizer(1), RewardScaler(1, gamma=0.5)
    normalizer.update(torch.tensor([[2.0], [4.0]]))
    scaler.update(torch.tensor([2.0]), torch.tensor([False]))
    held = [
        {name: value.clone() for name, value in each.state_dict().items()} for each in (normalizer, scaler)
    ]
    normalizer.eval()
    scaler.eval()
    normalizer.update(torch.tensor([[100.0]]))
    scaler.update(torch.tensor([100.0]), torch.tensor([True]))
    for each, before in zip((normalizer, scaler), held, strict=True):
        assert all(torch.equal(value, before[name]) for name, value in each.state_dict().items())


def test_statistics_travel_with_the_state_of_the_module_and_keep_their_dtypes():
    scaler = RewardScaler(2, gamma=0.9)
    scaler.update(torch.tensor([1.0, 2.0]), torch.tensor([False, True]))
    normalizer = ObservationNormalizer(2)
    normalizer.update(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    for module, twin in ((scaler, RewardScaler(2, gamma=0.9)), (normalizer, ObservationNormalizer(2))):
        twin.load_state_dict(module.state_dict())
        for name, value in module.state_dict().items():
            assert torch.equal(twin.state_dict()[name], value)
            assert value.dtype == (torch.int64 if name == "count" else torch.float64)
    assert set(normalizer.state_dict()) == {"mean", "var", "count"}
    assert set(scaler.state_dict()) == {"running_returns", "mean", "var", "count", "largest"}


def test_updates_in_and_outside_of_inference_mode_go_together_and_nobody_waits():
    counter = WaitCounter()
    normalizer, scaler = ObservationNormalizer(1), RewardScaler(2, gamma=0.9)
    obs, rewards, done = torch.ones(2, 1), torch.ones(2), torch.tensor([True, False])
    with counter:
        for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
            with mode():
                normalizer.update(obs)
                scaler.update(rewards, done, refused=done)
                normalizer(obs)
                scaler(rewards)
    assert not counter.counts
    assert int(normalizer.count) == 6
    assert int(scaler.count) == 3


def test_gradients_pass_through_and_none_reach_the_statistics():
    normalizer = ObservationNormalizer(1, eps=1.0)
    obs = torch.tensor([[2.0]], requires_grad=True)
    normalizer.update(obs * 2)
    normalizer(obs).sum().backward()
    assert obs.grad.tolist() == [[1.0]]
    assert not normalizer.mean.requires_grad


KINDS = st.sampled_from(["go", "go", "go", "done", "refused", "nonfinite"])


@EXAMPLES
@given(
    st.lists(st.tuples(*[st.tuples(st.floats(-4, 4, width=32), KINDS)] * 2), min_size=1, max_size=20),
    st.sampled_from([0.0, 0.5, 0.99]),
)
def test_the_scale_of_rewards_is_that_of_all_returns_so_far(steps, gamma):
    scaler = RewardScaler(2, gamma=gamma)
    running, seen = [0.0, 0.0], []
    for step in steps:
        for env, (reward, kind) in enumerate(step):
            if kind in ("refused", "nonfinite"):
                running[env] = 0.0
                continue
            running[env] = gamma * running[env] + reward
            seen.append(running[env])
            if kind == "done":
                running[env] = 0.0
        scaler.update(
            torch.tensor([math.nan if kind == "nonfinite" else reward for reward, kind in step]),
            torch.tensor([kind == "done" for _, kind in step]),
            refused=torch.tensor([kind == "refused" for _, kind in step]),
        )
        assert scaler.running_returns.tolist() == pytest.approx(running, abs=1e-12)
    assert int(scaler.count) == len(seen)
    spread = pstdev(seen) if seen else 1.0
    largest = max(map(abs, seen), default=0.0)
    assert float(scaler.mean) == pytest.approx(fmean(seen) if seen else 0.0, abs=1e-12)
    assert float(scaler.scale()) == pytest.approx(max(math.sqrt(spread**2 + 1e-8), largest / 5), rel=1e-9)


def test_the_reward_of_the_end_belongs_to_the_episode_that_ended():
    scaler = RewardScaler(1, gamma=0.5)
    for reward, done in ((1.0, False), (8.0, True), (2.0, False)):
        scaler.update(torch.tensor([reward]), torch.tensor([done]))
    # G: 1, 0.5 + 8 = 8.5, and 2 in the next episode, not 2 + 4.
    assert scaler.running_returns.tolist() == [2.0]
    assert float(scaler.largest) == 8.5
    assert float(scaler.mean) == pytest.approx((1 + 8.5 + 2) / 3, rel=1e-14)


def test_rewards_and_sums_of_them_are_divided_by_the_greater_of_spread_and_bound():
    scaler = RewardScaler(2, gamma=0.9)
    assert scaler(torch.tensor([3.0])).tolist() == pytest.approx([3.0])  # nothing seen yet: as they are
    scaler.update(torch.tensor([10.0, 10.0]), torch.tensor([False, False]))
    # No spread; 10 / 5 = 2 bounds the returns to 5.
    assert scaler(torch.tensor([3.0, -4.0])).tolist() == [1.5, -2.0]
    scaler = RewardScaler(2, gamma=0.9)
    scaler.update(torch.tensor([10.0, -10.0]), torch.tensor([False, False]))
    torch.testing.assert_close(scaler(torch.tensor([[5.0]])), torch.tensor([[0.5]]))
    assert scaler(torch.tensor([5.0])).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ObservationNormalizer(0), ConfigError, "width is 0, expected at least 1"),
        (lambda: ObservationNormalizer(2, eps=0.0), ConfigError, "eps is 0.0, expected a positive number"),
        (
            lambda: ObservationNormalizer(2).update(torch.zeros(2)),
            ValueError,
            r"observations have shape \(2,\), expected \(B, 2\)",
        ),
        (lambda: RewardScaler(0, gamma=0.9), ConfigError, "num_envs is 0, expected at least 1"),
        (lambda: RewardScaler(1, gamma=1.5), ConfigError, "gamma is 1.5, expected 0 <= gamma <= 1"),
        (
            lambda: RewardScaler(1, gamma=0.9, bound=0.0),
            ConfigError,
            "bound is 0.0 and eps 1e-08, expected positive",
        ),
        (
            lambda: RewardScaler(2, gamma=0.9).update(torch.zeros(2, 1), torch.zeros(2, dtype=torch.bool)),
            ValueError,
            r"rewards has shape \(2, 1\), expected \(2,\)",
        ),
    ],
)
def test_wrong_settings_and_shapes_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
