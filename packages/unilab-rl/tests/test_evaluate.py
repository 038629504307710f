"""An evaluation counts whole episodes, the same number from every row."""

import math

import pytest
import torch
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_rl import evaluate
from unilab_rl.runtime.evaluate import ZeroPolicy, split_episodes


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
    assert scripted.seeds[-1] == 11


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


def test_the_policy_sees_the_first_observation_of_each_new_episode():
    seen = []

    def policy(obs):
        seen.append(obs["obs"][0, 0].item())
        return torch.zeros(4, 2)

    evaluate(env(steps=2), policy, episodes_per_env=2)
    assert seen == [0.0, 1.0, 100.0, 101.0]


def test_both_flags_at_once_count_as_a_termination():
    result = evaluate(env(terminate=lambda step, age: age == 5), ZeroPolicy(2))
    assert (result.terminated_share, result.truncated_share) == (1.0, 0.0)


def test_rows_that_never_finish_are_an_error_that_names_them():
    scripted = env()
    scripted.max_episode_length, scripted.step = 3, ScriptedEnv(ScriptedEnvCfg(steps=100)).step
    with pytest.raises(
        RuntimeError, match=r"rows \[0, 1, 2, 3\] have not finished 1 episodes of at most 3 steps"
    ):
        evaluate(scripted, ZeroPolicy(2))


@pytest.mark.parametrize(
    ("episodes", "rows"), [(1, (1, 1)), (64, (64, 1)), (1024, (1024, 1)), (1025, (513, 2))]
)
def test_episodes_are_spread_evenly_over_at_most_1024_rows(episodes, rows):
    assert split_episodes(episodes) == rows
