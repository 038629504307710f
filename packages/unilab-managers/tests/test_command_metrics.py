"""What commands measure: over the steps of each episode, before a redraw, and summed over episodes."""

from __future__ import annotations

import pytest
import torch
from command_support import CountCfg, episodes, steps
from manager_support import Feed, MakeEnv, flag, ids

from unilab_core.errors import ConfigError
from unilab_managers import ManagerBasedRlEnv, TerminationTermCfg

ENDS = {"flag": TerminationTermCfg(func=flag, params={"index": 1})}


def show(env: ManagerBasedRlEnv, feed: Feed, *rows: tuple[float, float]) -> dict[str, torch.Tensor]:
    """Steps once with these values shown and these rows done; returns the log of the episodes that ended."""
    feed.probe([[value, done, 0.0] for value, done in rows])
    log: dict[str, torch.Tensor] = steps(env, 1).info.get("episode", {})
    return log


def test_the_log_sums_the_mean_of_every_episode_that_ended(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, terminations=ENDS, commands={"count": CountCfg()})
    assert not show(env, feed, (1.0, 0.0), (10.0, 0.0), (2.0, 0.0))
    log = show(env, feed, (3.0, 1.0), (20.0, 0.0), (6.0, 1.0))
    # Rows 0 and 2 end after two steps: means (1 + 3) / 2 and (2 + 6) / 2.
    assert episodes(log, "Metrics/count/shown") == [6.0, 2]
    show(env, feed, (5.0, 0.0), (30.0, 0.0), (1.0, 0.0))
    log = show(env, feed, (5.0, 0.0), (40.0, 1.0), (1.0, 0.0))
    # Row 1 ends after four: (10 + 20 + 30 + 40) / 4. The mean of all three episodes is (6 + 25) / 3.
    assert episodes(log, "Metrics/count/shown") == [25.0, 1]
    log = show(env, feed, (8.0, 1.0), (7.0, 1.0), (4.0, 0.0))
    assert episodes(log, "Metrics/count/shown") == [6.0 + 7.0, 2]


def test_values_are_on_the_device_and_have_no_dimension(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg(), "other": CountCfg()})
    steps(env, 1)
    _, info = env.reset(ids(1))
    keys = {key for key in info["episode"] if key.startswith("Metrics/")}
    assert keys == {
        f"Metrics/{command}/{name}/{part}"
        for command in ("count", "other")
        for name in ("shown", "redraws")
        for part in ("sum", "count")
    }
    assert all(info["episode"][key].shape == () for key in keys)


def test_the_first_reset_and_a_second_one_without_a_step_end_no_episode(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()}, reset=False)
    for _ in range(2):
        _, info = env.reset()
        assert episodes(info["episode"], "Metrics/count/shown") == [0.0, 0]


def test_a_metric_sees_the_command_that_the_step_was_taken_under(make_env: MakeEnv) -> None:
    env = make_env(1, commands={"count": CountCfg()})
    steps(env, 5)  # the fifth step redraws, after the metrics
    assert env.command_manager.get_command("count")[0, 0] == 2.0
    _, info = env.reset()
    assert episodes(info["episode"], "Metrics/count/redraws") == [1.0, 1]


def test_the_beginning_of_an_episode_is_left_out(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, commands={"count": CountCfg(metrics_start_s=0.04)})
    feed.probe([[100.0, 0.0, 0.0]] * 2)
    steps(env, 2)
    feed.probe([[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    steps(env, 1)
    feed.probe([[2.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    steps(env, 1)
    _, info = env.reset(ids(0))
    assert episodes(info["episode"], "Metrics/count/shown") == [1.5, 1]
    steps(env, 2)
    _, info = env.reset()
    # Row 0 ends within what is left out and counts for nothing; row 1 has 3, 5, 5, 5.
    assert episodes(info["episode"], "Metrics/count/shown") == [4.5, 1]


def test_steps_are_those_that_a_row_has_lived_through(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(1, feed=feed, commands={"count": CountCfg(metrics_start_s=0.04)})
    env.episode_length = torch.tensor([1000])  # as a training does to spread the ends of episodes
    feed.probe([[4.0, 0.0, 0.0]])
    steps(env, 3)
    _, info = env.reset()
    assert episodes(info["episode"], "Metrics/count/shown") == [4.0, 1]


def test_a_manual_reset_of_the_manager_returns_its_log_once(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, commands={"count": CountCfg()})
    feed.probe([[2.0, 0.0, 0.0], [6.0, 0.0, 0.0]])
    steps(env, 2)
    assert episodes(env.command_manager.reset(ids(1)), "Metrics/count/shown") == [6.0, 1]
    assert env.command_manager.pop_log() == {}
    _, info = env.reset()
    assert episodes(info["episode"], "Metrics/count/shown") == [2.0, 1]


def test_sums_that_are_not_finite_can_be_forgotten(make_env: MakeEnv) -> None:
    env = make_env(3, commands={"count": CountCfg()})
    sums = env.command_manager.get_term("count").metric_sums
    sums[:, 0] = torch.tensor([1.0, float("nan"), float("inf")])
    env.command_manager.forget_non_finite(ids(1))
    assert sums[:, 0].tolist() == [1.0, 0.0, float("inf")]


def test_a_start_before_the_episode_is_refused() -> None:
    with pytest.raises(ConfigError, match="metrics_start_s"):
        CountCfg(metrics_start_s=-0.1)
