"""Rewards where they end: a floor under sums that are no numbers, and terms whose weight a reset takes away."""

import pytest
import torch
from action_support import same
from manager_support import DT, Feed, MakeEnv, calls, column, ones, zeros

from unilab_core import NonFiniteError, ResetRejectedError
from unilab_managers import (
    CurriculumTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)

SHOWN = {"shown": RewardTermCfg(func=column, weight=1.0, params={"index": 0})}


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
def test_a_floor_makes_no_number_of_what_is_none(make_env: MakeEnv, value: float) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, rewards=SHOWN, reward_floor=0.0)
    feed.probe([[1.0, 0.0, 0.0], [value, 0.0, 0.0]])
    with pytest.raises(NonFiniteError, match=r"reward is not finite at rows \[1\].*reward terms \['shown'\]"):
        env.step(zeros(env))


def test_a_floor_raises_what_is_lower_and_leaves_the_rest(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, rewards=SHOWN, reward_floor=-1.0, scale_rewards_by_dt=False)
    feed.probe([[2.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    assert env.step(zeros(env)).reward.tolist() == [2.0, -1.0, -1.0]


def switches_off(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Takes the weight of a reward away when episodes end, once told to."""
    if "off" in calls:
        env.reward_manager.set_weight("one", 0.0)


def fails(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Rejects resets, once told to."""
    if "off" in calls:
        raise ArithmeticError("no")


def test_a_rejected_reset_of_one_row_gives_all_rows_back_what_they_were_paid(make_env: MakeEnv) -> None:
    n = 20_000  # so many rows that only those being reset are saved
    env = make_env(
        n,
        rewards={"one": RewardTermCfg(func=ones, weight=1.0)},
        curriculum={"off": CurriculumTermCfg(func=switches_off, mode="episode")},
        events={"fails": EventTermCfg(func=fails, mode="reset")},
        scale_rewards_by_dt=False,
    )
    env.step(zeros(env))
    before = env.state_dict()
    calls.append("off")
    with pytest.raises(ResetRejectedError):
        env.reset(torch.tensor([7]))
    assert same(env.state_dict(), before)
    assert env.reward_manager.term_values()["one"].sum().item() == n


def test_a_term_whose_weight_was_taken_away_adds_nothing_more(make_env: MakeEnv) -> None:
    env = make_env(2, rewards={"one": RewardTermCfg(func=ones, weight=1.0)}, scale_rewards_by_dt=False)
    env.step(zeros(env))
    env.reward_manager.set_weight("one", 0.0)
    assert env.reward_manager.term_values()["one"].tolist() == [1.0, 1.0]  # of the last step
    assert env.step(zeros(env)).reward.tolist() == [0.0, 0.0]
    assert env.reward_manager.term_values()["one"].tolist() == [0.0, 0.0]
    assert env.reward_manager.episode_sums()["one"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("finite", [False, True])
def test_a_time_limit_of_a_finite_horizon_is_an_end(make_env: MakeEnv, finite: bool) -> None:
    env = make_env(
        2,
        is_finite_horizon=finite,
        episode_length_s=2 * DT,
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
        rewards={
            "dead": RewardTermCfg(func=mdp.is_terminated, weight=-10.0),
            "alive": RewardTermCfg(func=mdp.is_alive, weight=1.0),
        },
        scale_rewards_by_dt=False,
    )
    assert env.step(zeros(env)).reward.tolist() == [1.0, 1.0]
    state = env.step(zeros(env))
    assert state.reward.tolist() == ([-10.0, -10.0] if finite else [1.0, 1.0])
    assert state.terminated.tolist() == [finite] * 2
    assert env.step(zeros(env)).reward.tolist() == [1.0, 1.0]


def last_of_shown(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns what the term `shown` added in the step before: a view of the manager's own."""
    return env.reward_manager.term_values()["shown"]


def test_a_term_may_return_what_another_added_in_the_step_before(make_env: MakeEnv) -> None:
    feed = Feed()
    terms = {**SHOWN, "again": RewardTermCfg(func=last_of_shown, weight=1.0)}
    env = make_env(1, feed=feed, rewards=terms, scale_rewards_by_dt=False)
    rewards = []
    for value in (2.0, 5.0, 11.0):
        feed.probe([[value, 0.0, 0.0]])
        rewards.append(env.step(zeros(env)).reward.tolist())
    assert rewards == [[2.0], [5.0 + 2.0], [11.0 + 5.0]]


COLUMNS = {
    name: RewardTermCfg(func=column, weight=weight, params={"index": index})
    for index, (name, weight) in enumerate({"a": 1.0, "b": -0.3, "c": 1.7}.items())
}


def test_terms_are_added_before_anything_is_rounded(make_env: MakeEnv) -> None:
    feed = Feed()
    equal = {name: cfg.model_copy(update={"weight": 1.0}) for name, cfg in COLUMNS.items()}
    env = make_env(2, feed=feed, rewards=equal, scale_rewards_by_dt=False)
    # In float32 the first two make 2**25, whichever order; together they are 2**25 + 1, so 1 is left.
    feed.probe([[2.0**25, 1.0, -(2.0**25)], [1.0, 2.0**25, -(2.0**25)]])
    assert env.step(zeros(env)).reward.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
def test_a_row_is_paid_the_same_bits_whatever_rows_are_beside_it(make_env: MakeEnv, rows: int) -> None:
    values = torch.randn(65, 3, generator=torch.Generator().manual_seed(5)).tolist()
    paid = []
    for number in (65, rows):
        feed = Feed()
        env = make_env(number, feed=feed, rewards=COLUMNS)
        feed.probe(values[:number])
        paid.append(env.step(zeros(env)).reward.clone())
    assert torch.equal(paid[0][:rows], paid[1])
