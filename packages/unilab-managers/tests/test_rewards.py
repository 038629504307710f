"""Rewards: the sum of raw value x weight x dt, before any row is reset."""

import pytest
import torch
from manager_support import (
    Feed,
    MakeEnv,
    base_cfg,
    calls,
    column,
    layout_of,
    noted_ones,
    ones,
    with_default,
    zeros,
)

from unilab_managers import ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg, mdp
from unisim import SimCfg


def root_height(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.root_pos_w[:, 2]


def fallen(env: ManagerBasedRlEnv) -> torch.Tensor:
    return root_height(env) < 0.5


def has_fallen(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.termination_manager.get_term("fallen").float()


def by_column(index: int, weight: float) -> RewardTermCfg:
    return RewardTermCfg(func=column, weight=weight, params={"index": index})


def reward(make_env: MakeEnv, rows: list[list[float]], **options: object) -> list[float]:
    feed = Feed()
    env = make_env(len(rows), feed=feed, **options)
    feed.probe(rows)
    return env.step(zeros(env)).reward.tolist()


def test_the_reward_is_the_sum_of_raw_times_weight_times_dt(make_env: MakeEnv) -> None:
    terms = {"a": by_column(0, 2.0), "b": by_column(1, -0.5), "c": by_column(2, 0.0)}
    rows = [[1.0, 2.0, 100.0], [0.0, -4.0, 100.0], [3.0, 0.0, 100.0]]
    # (2 x 1 - 0.5 x 2) x 0.02, (0.5 x 4) x 0.02, (2 x 3) x 0.02
    assert reward(make_env, rows, rewards=terms) == pytest.approx([0.02, 0.04, 0.12], rel=1e-6)


def test_without_scaling_by_dt_the_reward_is_the_sum_of_raw_times_weight(make_env: MakeEnv) -> None:
    terms = {"a": by_column(0, 2.0), "b": by_column(1, -0.5)}
    rows = [[1.0, 2.0, 0.0], [0.0, -4.0, 0.0]]
    assert reward(make_env, rows, rewards=terms, scale_rewards_by_dt=False) == [1.0, 2.0]


def test_no_terms_or_one_row_are_fine(make_env: MakeEnv) -> None:
    assert reward(make_env, [[1.0, 1.0, 1.0]], rewards={}) == [0.0]
    assert reward(
        make_env, [[0.5, 1.0, 1.0]], rewards={"a": by_column(0, 2.0)}, scale_rewards_by_dt=False
    ) == [1.0]


def test_a_term_of_weight_zero_runs_in_the_dry_first_reset_and_never_again(make_env: MakeEnv) -> None:
    env = make_env(rewards={"off": RewardTermCfg(func=noted_ones, weight=0.0)}, reset=False)
    assert calls == ["ones", "ones"]  # the two runs of the dry first reset
    calls.clear()
    env.reset()
    for _ in range(3):
        env.step(zeros(env))
    env.reset(torch.tensor([1]))
    assert calls == []


def test_every_other_term_is_called_once_a_step_in_order(make_env: MakeEnv) -> None:
    terms = {
        tag: RewardTermCfg(func=noted_ones, weight=1.0, params={"tag": tag}) for tag in ("second", "first")
    }
    env = make_env(rewards=terms)
    calls.clear()
    env.step(zeros(env))
    assert calls == ["second", "first"]


@pytest.mark.parametrize(
    ("timestep", "decimation", "expected"),
    [(0.02, 1, 0.04), (0.01, 1, 0.02), (0.01, 2, 0.04), (0.005, 4, 0.04)],
)
def test_qa_119_weights_are_per_second_whatever_the_step(
    make_env: MakeEnv, timestep: float, decimation: int, expected: float
) -> None:
    env = make_env(
        1,
        sim=SimCfg(timestep=timestep),
        decimation=decimation,
        rewards={"one": RewardTermCfg(func=ones, weight=2.0)},
    )
    steps = round(1.0 / (timestep * decimation))
    rewards = [float(env.step(zeros(env)).reward) for _ in range(steps)]
    assert rewards == pytest.approx([expected] * steps, rel=1e-6)
    assert sum(rewards) == pytest.approx(2.0, rel=1e-5)


def test_qa_119_a_one_off_bonus_is_worth_its_weight_times_dt(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(1, feed=feed, rewards={"goal": by_column(0, 10.0)})
    feed.probe([[1.0, 0.0, 0.0]])
    assert float(env.step(zeros(env)).reward) == pytest.approx(10 * 0.02)
    feed.probe([[0.0, 0.0, 0.0]])
    assert float(env.step(zeros(env)).reward) == 0.0


def test_qa_115_the_reward_of_a_step_that_ends_an_episode_is_of_the_state_it_ended_in(
    make_env: MakeEnv,
) -> None:
    feed = Feed()
    layout = with_default(layout_of("leg", free_root=True, actuated=["robot/leg"]), *STANDING)
    env = make_env(
        2,
        feed=feed,
        layout=layout,
        rewards={
            "height": RewardTermCfg(func=root_height, weight=1.0),
            "penalty": RewardTermCfg(func=has_fallen, weight=-1.0),
        },
        terminations={"fallen": TerminationTermCfg(func=fallen)},
    )
    up = torch.tensor([STANDING, STANDING])
    feed.now = {"qpos": up}
    for _ in range(4):
        env.step(zeros(env))
    down = up.clone()
    down[1, 2] = 0.2
    feed.now = {"qpos": down}
    state = env.step(zeros(env))
    # dt = 0.02: row 0 earns 1 x 0.02; row 1 earns 0.2 x 0.02 and pays 1 x 0.02, although it stands again by now.
    assert state.reward.tolist() == pytest.approx([0.02, 0.004 - 0.02])
    assert root_height(env).tolist() == [1.0, 1.0]
    log = state.info["episode"]
    full_s = env.max_episode_length * 0.02
    assert float(log["Episode_Reward/height/sum"]) == pytest.approx((4 * 0.02 + 0.004) / full_s)
    assert float(log["Episode_Reward/penalty/sum"]) == pytest.approx(-0.02 / full_s)


STANDING = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("scale_rewards_by_dt", [True, False])
def test_qa_039_a_fully_earned_term_of_weight_one_is_logged_as_one(
    make_env: MakeEnv, scale_rewards_by_dt: bool
) -> None:
    env = make_env(
        1,
        episode_length_s=20.0,
        scale_rewards_by_dt=scale_rewards_by_dt,
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
    )
    total = 0.0
    for _ in range(1000):
        state = env.step(zeros(env))
        total += float(state.reward)
    assert total == pytest.approx(20.0 if scale_rewards_by_dt else 1000.0, rel=1e-4)
    log = state.info["episode"]
    assert float(log["Episode_Reward/one/sum"]) == pytest.approx(1.0, rel=1e-4)
    assert int(log["Episode_Reward/one/count"]) == 1


def test_describe_names_the_terms_in_order(make_env: MakeEnv) -> None:
    env = make_env(rewards={"b": by_column(0, 1.0), "a": by_column(1, 0.0)})
    assert [term.name for term in env.describe().terms["rewards"]] == ["b", "a"]
    assert base_cfg().rewards.keys() == {"one"}
