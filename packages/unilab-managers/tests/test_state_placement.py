"""What managers and buffers hold lies on the environment's device, whatever device torch makes new tensors on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from command_support import CountCfg
from event_support import fired, interval, run, steps_of
from manager_support import MakeEnv, calls, ids

from unilab_core import EnvRng
from unilab_managers import EventTermCfg
from unilab_managers.buffers import DelayBuffer, DelayLags

CPU = torch.device("cpu")


@pytest.fixture
def elsewhere() -> Iterator[torch.device]:
    """Tensors that are given no device are made where they cannot be computed with those of an environment."""
    with torch.device("meta") as device:
        yield device


def test_lags_and_frames_lie_where_the_lags_are_drawn(elsewhere: torch.device) -> None:
    lags = DelayLags(3, 0, 2, rng=EnvRng(0, CPU), hold_prob=0.5, update_period=2)
    buffer = DelayBuffer(lags, 1)
    rows, frame = torch.arange(3, device=CPU), torch.tensor([[1.0], [2.0], [3.0]], device=CPU)
    buffer.reset(rows)
    buffer.fill(rows, frame)
    for _ in range(3):
        buffer.push(frame)
    assert buffer.read().tolist() == [[1.0], [2.0], [3.0]]
    assert lags.values.device == CPU


def test_timers_and_marks_of_events_lie_on_the_device_of_the_environment(make_env: MakeEnv) -> None:
    events = {
        "timed": interval(0.04, tag="timed"),
        "drawn": interval(0.04, 0.06, tag="drawn"),
        "rare": EventTermCfg(
            func=fired, mode="reset", params={"tag": "rare"}, min_step_count_between_reset=3
        ),
    }
    with torch.device("meta"):
        env = make_env(2, events=events, reset=False)
    calls.clear()
    env.reset()
    run(env, 2)
    env.reset(ids(1))
    run(env, 2)
    assert steps_of(0, "timed") == [2, 4]
    assert steps_of(1, "rare") == [0]


def test_timers_and_metrics_of_commands_lie_on_the_device_of_the_environment(make_env: MakeEnv) -> None:
    with torch.device("meta"):
        env = make_env(2, commands={"count": CountCfg(metrics_start_s=0.02)}, reset=False)
    env.command_manager.get_term("count").values = torch.zeros(2, 3)  # the test's own, made elsewhere
    env.reset()
    run(env, 6)
    assert env.command_manager.get_command("count")[:, 0].tolist() == [2.0, 2.0]
    assert float(env.command_manager.reset()["Metrics/count/redraws/count"]) == 2.0


def test_all_rows_of_a_command_are_reset_on_the_device_of_the_environment(make_env: MakeEnv) -> None:
    env = make_env(2, commands={"count": CountCfg()})
    term = env.command_manager.get_term("count")
    with torch.device("meta"):
        term.reset(None)
        env.command_manager.reset(None)
    assert term.command[:, 0].tolist() == [3.0, 3.0]


def test_all_that_counts_steps_is_whole_numbers(make_env: MakeEnv) -> None:
    events = {
        "e": interval(0.04),
        "rare": EventTermCfg(func=fired, mode="reset", min_step_count_between_reset=2),
    }
    env = make_env(2, events=events, commands={"count": CountCfg()})
    values = env.state_dict()["values"]
    counters = ("events._left", "commands.count.steps_left", "commands.count._age")
    assert {values[name].dtype for name in counters} == {torch.int64}
