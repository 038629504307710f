"""What a reset says about the episodes that it ends: sums and counts that add up over unequal batches."""

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, column, flag, ids, zeros

from unilab_managers import ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg, mdp

FLAGS = {
    "success": TerminationTermCfg(func=flag, params={"index": 1}),
    "timeout": TerminationTermCfg(func=flag, params={"index": 2}, time_out=True),
}
PAID = {"gain": RewardTermCfg(func=column, weight=2.0, params={"index": 0})}
FULL_S = 100.0
DT = 0.02


def episodes(log: dict[str, torch.Tensor], key: str) -> list[float]:
    """Returns sum and count."""
    return [float(log[f"{key}/sum"]), float(log[f"{key}/count"])]


def show(env: ManagerBasedRlEnv, feed: Feed, rows: list[list[float]]) -> dict[str, Any]:
    feed.probe(rows)
    return env.step(zeros(env)).info


def test_every_term_has_a_sum_and_a_count_on_the_device(make_env: MakeEnv) -> None:
    env = make_env(rewards=PAID, terminations=FLAGS)
    env.step(zeros(env))
    _, info = env.reset(ids(1))
    log = info["episode"]
    names = ("Episode_Reward/gain", "Episode_Termination/success", "Episode_Termination/timeout")
    assert {f"{name}/{part}" for name in names for part in ("sum", "count")} <= log.keys()
    assert all(value.ndim == 0 and value.device == env.device for value in log.values())


def test_the_first_reset_ends_no_episode(make_env: MakeEnv) -> None:
    env = make_env(rewards=PAID, terminations=FLAGS, reset=False)
    _, info = env.reset()
    for key in ("Episode_Reward/gain", "Episode_Termination/success", "length", "return"):
        assert episodes(info["episode"], key) == [0.0, 0]


def test_qa_110_only_the_rows_that_were_reset_are_counted_and_only_once(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(4, feed=feed, autoreset=False, rewards=PAID, terminations=FLAGS)
    info = show(env, feed, [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0]])
    assert "episode" not in info
    _, info = env.reset(ids(0))
    assert episodes(info["episode"], "Episode_Termination/success") == [1.0, 1]
    assert episodes(info["episode"], "Episode_Termination/timeout") == [0.0, 1]
    _, info = env.reset(ids(3, 1, 2))
    assert episodes(info["episode"], "Episode_Termination/success") == [0.0, 3]
    assert episodes(info["episode"], "Episode_Termination/timeout") == [3.0, 3]
    for _ in range(2):
        assert "episode" not in show(env, feed, [[1.0, 0.0, 0.0]] * 4)


def test_the_sums_of_an_automatic_reset_are_those_of_the_finished_episode(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, rewards=PAID, terminations=FLAGS)
    show(env, feed, [[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    log = show(env, feed, [[0.5, 1.0, 0.0], [3.0, 0.0, 0.0]])["episode"]
    assert episodes(log, "Episode_Reward/gain") == pytest.approx([(1.0 + 0.5) * 2.0 * DT / FULL_S, 1])
    log = show(env, feed, [[0.25, 1.0, 0.0], [3.0, 0.0, 1.0]])["episode"]
    # Row 0 has started anew and earned 0.25; row 1 has earned 3 three times. Their mean is over two episodes.
    assert episodes(log, "Episode_Reward/gain") == pytest.approx([(0.25 + 9.0) * 2.0 * DT / FULL_S, 2])
    assert episodes(log, "Episode_Termination/success") == [1.0, 2]
    assert episodes(log, "Episode_Termination/timeout") == [1.0, 2]
    assert episodes(log, "length") == [4.0, 2]


def test_an_episode_cut_by_a_manual_reset_counts_without_a_cause(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, rewards=PAID, terminations=FLAGS)
    show(env, feed, [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [4.0, 0.0, 0.0]])
    _, info = env.reset(ids(2, 1))
    assert episodes(info["episode"], "Episode_Reward/gain") == pytest.approx([6.0 * 2.0 * DT / FULL_S, 2])
    assert episodes(info["episode"], "Episode_Termination/success") == [0.0, 2]


def test_a_row_reset_twice_between_two_steps_is_counted_once(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, rewards=PAID, terminations=FLAGS)
    log = show(env, feed, [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])["episode"]
    assert episodes(log, "Episode_Termination/success") == [1.0, 1]
    _, info = env.reset(ids(0, 1))
    assert episodes(info["episode"], "Episode_Termination/success") == [0.0, 1]
    assert episodes(info["episode"], "Episode_Reward/gain") == pytest.approx([2.0 * DT / FULL_S, 1])


def test_a_time_out_is_logged_under_its_own_name(make_env: MakeEnv) -> None:
    env = make_env(2, episode_length_s=0.04, terminations={"cut": TerminationTermCfg(func=mdp.time_out)})
    env.step(zeros(env))
    log = env.step(zeros(env)).info["episode"]
    assert episodes(log, "Episode_Termination/cut") == [2.0, 2]
    assert episodes(log, "Episode_Reward/one") == pytest.approx([2.0, 2])


def test_a_term_of_weight_zero_is_logged_as_zero(make_env: MakeEnv) -> None:
    env = make_env(rewards={"off": RewardTermCfg(func=column, weight=0.0, params={"index": 0})})
    env.step(zeros(env))
    _, info = env.reset()
    assert episodes(info["episode"], "Episode_Reward/off") == [0.0, 3]
