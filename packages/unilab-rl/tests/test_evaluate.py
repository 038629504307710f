"""An evaluation counts whole episodes, the same number from every row."""

import math

import pytest
import torch
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_core import ConfigError
from unilab_rl import RandomPolicy, ZeroPolicy, evaluate
from unilab_rl.runtime.evaluate import split_episodes


def env(**changes):
    terminate = changes.pop("terminate", None)
    return ScriptedEnv(ScriptedEnvCfg(**changes), terminate=terminate)


def test_every_row_contributes_its_first_episodes_however_long_they_last():
    # Row 0 dies at age 1, the others time out at age 5: by steps row 0 would contribute five times as many episodes.
    scripted = env(terminate=lambda step, age: (torch.arange(4) == 0) & (age == 1))
    result = evaluate(scripted, ZeroPolicy(2), episodes_per_env=2, seed=11)
    assert result.episodes == 8
    assert result.length_mean == (2 * 1 + 6 * 5) / 8
    assert result.return_mean == pytest.approx((2 * 1 + 6 * 5) / 8)
    assert result.terminated_share == 0.25
    assert result.truncated_share == 0.75
    assert scripted.seeds[-2:] == [11, 12]  # how a time limit begins depends on none before it


def test_the_interval_is_that_of_students_t():
    # Returns by hand: 1, 5, 5, 5: mean 4, deviation 2, t(3) = 3.182: 3.182 * 2 / sqrt(4) = 3.182.
    result = evaluate(env(terminate=lambda step, age: (torch.arange(4) == 0) & (age == 1)), ZeroPolicy(2))
    assert (result.return_mean, result.return_std) == (pytest.approx(4.0), pytest.approx(2.0))
    assert result.return_ci95 == pytest.approx(3.182)


def test_one_episode_has_no_interval():
    result = evaluate(env(num_envs=1), ZeroPolicy(2))
    assert (result.episodes, result.return_std, result.return_ci95) == (1, None, None)


def test_many_episodes_use_the_normal_quantile():
    result = evaluate(env(num_envs=36, terminate=lambda step, age: torch.arange(36) % 2 == 0), ZeroPolicy(2))
    # Half the returns are 1, half 5: deviation 2 * sqrt(36 / 35).
    assert result.return_ci95 == pytest.approx(1.96 * 2 * math.sqrt(36 / 35) / 6)


def test_rewards_are_given_per_step_and_per_simulated_second():
    result = evaluate(env(gain=3.0), ZeroPolicy(2))
    assert (result.reward_per_step, result.reward_per_s) == (3.0, 6.0)


def test_each_time_limit_begins_with_a_reset_of_all_rows():
    seen = []

    def policy(obs):
        seen.append(obs["obs"][0, 0].item())
        return torch.zeros(4, 2)

    # Row 0 is in its second episode when the first time limit ends, in its fourth when the second one begins.
    evaluate(env(steps=3, fall_at=2), policy, episodes_per_env=2)
    assert seen == [0.0, 1.0, 100.0, 200.0, 201.0, 300.0]


def test_both_flags_at_once_count_as_a_termination():
    result = evaluate(env(terminate=lambda step, age: age == 5), ZeroPolicy(2))
    assert (result.terminated_share, result.truncated_share) == (1.0, 0.0)


def test_rows_that_never_finish_are_an_error_that_names_them():
    scripted = env()
    scripted.max_episode_length, scripted.step = 3, ScriptedEnv(ScriptedEnvCfg(steps=100)).step
    with pytest.raises(
        ConfigError,
        match=r"rows \[0, 1, 2, 3\] have not finished an episode in 3 steps; the task has no time",
    ):
        evaluate(scripted, ZeroPolicy(2))


@pytest.mark.parametrize(
    ("episodes", "rows"), [(1, (1, 1)), (64, (64, 1)), (1024, (1024, 1)), (1025, (513, 2))]
)
def test_episodes_are_spread_evenly_over_at_most_1024_rows(episodes, rows):
    assert split_episodes(episodes) == rows


def test_a_row_that_falls_begins_anew_and_every_fall_counts():
    # In 5 steps row 0 falls at 2 and 4 and is at age 1 when the time limit ends; the three others time out.
    result = evaluate(env(fall_at=2), ZeroPolicy(2))
    assert result.falls == 2
    assert (result.terminated_share, result.length_mean) == (0.25, (2 + 3 * 5) / 4)


def test_the_falls_of_all_time_limits_are_added_up():
    assert evaluate(env(fall_at=2), ZeroPolicy(2), episodes_per_env=3).falls == 6


def test_a_time_out_is_no_fall():
    assert evaluate(env(), ZeroPolicy(2)).falls == 0


def test_a_time_out_of_a_finite_horizon_is_no_fall():
    result = evaluate(env(is_finite_horizon=True), ZeroPolicy(2), episodes_per_env=2)
    assert (result.falls, result.terminated_share, result.truncated_share) == (0, 0.0, 1.0)


def test_falls_of_a_finite_horizon_are_those_before_its_time_limit():
    def terminate(step, age):
        # Row 0 falls in step 2 and, at age 3, in the last step; the three others time out in it.
        return torch.tensor([step in (2, 5), False, False, False])

    result = evaluate(env(terminate=terminate, is_finite_horizon=True), ZeroPolicy(2))
    assert (result.falls, result.terminated_share, result.truncated_share) == (2, 0.25, 0.75)


def test_metrics_are_sums_over_counts_of_all_episodes_that_ended_in_time():
    # Ages 2 and 2 of row 0, and 5 of three rows: 19 over 5 episodes; row 0's third one is cut off and left out.
    result = evaluate(env(fall_at=2, metrics=True), ZeroPolicy(2))
    assert result.metrics == {"Metrics/age": 19 / 5}


def test_only_metrics_are_reported_as_metrics():
    assert evaluate(env(), ZeroPolicy(2)).metrics == {}


def test_a_log_of_a_training_has_everything_under_eval():
    result = evaluate(env(fall_at=2, metrics=True, gain=2.0), ZeroPolicy(2))
    assert result.to_metrics() == {
        "Eval/return": (4 + 3 * 10) / 4,
        "Eval/length": 17 / 4,
        "Eval/reward_per_step": 2.0,
        "Eval/falls": 2.0,
        "Eval/Metrics/age": 19 / 5,
    }


def test_a_random_policy_fills_its_bounds_and_repeats_itself():
    bounds = (torch.tensor([-3.0, -torch.inf]), torch.tensor([-2.0, torch.inf]))
    before = torch.get_rng_state()
    obs = {"obs": torch.zeros(1000, 4)}
    drawn = RandomPolicy(bounds, 3)(obs)
    assert drawn.shape == (1000, 2)
    for column, (low, high) in enumerate([(-3.0, -2.0), (-1.0, 1.0)]):
        assert low <= drawn[:, column].min() < low + 0.01 * (high - low)
        assert high >= drawn[:, column].max() > high - 0.01 * (high - low)
    assert torch.equal(drawn, RandomPolicy(bounds, 3)(obs))
    assert not torch.equal(drawn, RandomPolicy(bounds, 4)(obs))
    assert torch.equal(before, torch.get_rng_state())


def test_a_fall_after_the_first_episode_does_not_make_that_one_terminal():
    class TimesOutEarly:
        """The scripted environment, whose episodes time out after 2 of the 5 steps of the time limit."""

        scripted = env(steps=2, terminate=lambda step, age: torch.full((4,), step == 3))
        max_episode_length = 5

        def __getattr__(self, name):
            return getattr(self.scripted, name)

    result = evaluate(TimesOutEarly(), ZeroPolicy(2))
    assert (result.length_mean, result.terminated_share, result.falls) == (2.0, 0.0, 4)
