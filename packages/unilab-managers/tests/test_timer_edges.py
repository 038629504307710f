"""Timers of events and commands where they begin, at their limits, and in what they say."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch
from command_support import CountCfg, CountTerm
from event_support import fired, interval, run, steps_of
from manager_support import DT, MakeEnv, calls, ids

from unilab_core.errors import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv
from unilab_managers.managers.command_manager import CommandTermCfg


class Countdown:
    """A step event that counts down by itself, and notes what it is told."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        self.left = torch.full((env.num_envs,), 3)
        self.told: list[bool] = []

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
        self.left[env_ids] -= 1

    def fires_next(self) -> torch.Tensor:
        return self.left <= 1

    def timer_judged(self, due: bool) -> None:
        self.told.append(due)


def told(env: ManagerBasedRlEnv, name: str) -> list[bool]:
    term = env.event_manager._terms[name].instance
    assert isinstance(term, Countdown)
    return term.told


def test_a_term_with_a_timer_of_its_own_is_told_what_was_found(make_env: MakeEnv) -> None:
    env = make_env(2, events={"down": EventTermCfg(func=Countdown, mode="step")})
    told(env, "down").clear()
    for due in (False, True):
        env.event_manager.timers_judged({"events/down": due})
    assert told(env, "down") == [False, True]


@pytest.mark.parametrize("mode", ["startup", "reset"])
def test_a_term_with_a_timer_of_its_own_belongs_to_steps(make_env: MakeEnv, mode: Any) -> None:
    message = (
        "events term 'down': Countdown counts down by itself, once per call; "
        f"mode is '{mode}', expected 'step'"
    )
    with pytest.raises(ConfigError, match=message):
        make_env(2, events={"down": EventTermCfg(func=Countdown, mode=mode)})


def test_an_interval_that_may_end_within_an_episode_is_not_warned_of(
    make_env: MakeEnv, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="unilab_managers"):
        make_env(2, events={"e": interval(0.08, 0.30)}, episode_length_s=0.1)
    assert caplog.records == []


@pytest.mark.parametrize("is_global_time", [False, True])
def test_a_timer_that_always_takes_the_same_time_draws_nothing(
    make_env: MakeEnv, is_global_time: bool
) -> None:
    env = make_env(2, events={"e": interval(0.04, is_global_time=is_global_time)})
    calls.clear()
    before = env.rng.get_state()
    run(env, 5)
    env.reset(ids(1))
    assert torch.equal(env.rng.get_state(), before)
    assert steps_of(0) == [2, 4]


def test_the_calls_that_are_recorded_are_the_terms_of_steps_and_of_timers(make_env: MakeEnv) -> None:
    events = {
        "begin": EventTermCfg(func=fired, mode="startup", params={"tag": "begin"}),
        "timed": interval(1.0, tag="timed"),
        "again": EventTermCfg(func=fired, mode="reset", params={"tag": "again"}),
        "each": EventTermCfg(func=fired, mode="step", params={"tag": "each"}),
    }
    env = make_env(2, events=events)
    calls.clear()
    recordable = env.event_manager.recordable_calls()
    for _, call in recordable:
        call()
    assert [phase for phase, _ in recordable] == ["advance", "advance"]
    assert calls == [("each", 0, [0, 1]), ("timed", 0, [0, 1])]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"mode": "reset"}, "events.apply: mode 'reset' needs global_env_step_count"),
        (
            {"mode": "interval"},
            "events.apply: mode 'interval' needs dt, the time since the last call in s",
        ),
        (
            {"mode": "interval", "dt": DT, "env_ids": ids(1)},
            "events.apply: mode 'interval' got 1 of 2 rows; timers run for all rows together, pass env_ids=None",
        ),
        (
            {"mode": "interval", "dt": 0.03},
            "events.apply: dt is 0.03 s, expected a whole number of control steps of 0.02 s",
        ),
    ],
)
def test_a_wrong_call_of_apply_says_exactly_what_was_expected(
    make_env: MakeEnv, call: dict[str, Any], message: str
) -> None:
    env = make_env(2, events={"e": interval(1.0)})
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        env.event_manager.apply(**call)


# ---------------------------------------------------------------- commands


def test_the_timers_of_a_command_are_looked_at_until_somebody_has_judged_them(make_env: MakeEnv) -> None:
    env = make_env(2, commands={"count": CountCfg()}, reset=False)
    calls.clear()
    for _ in range(5):
        env.command_manager.compute()
    assert [call[0] for call in calls] == ["count"] * 5
    assert env.command_manager.get_command("count")[:, 0].tolist() == [1.0, 1.0]


def test_before_any_reset_there_is_no_log(make_env: MakeEnv) -> None:
    env = make_env(2, commands={"count": CountCfg()}, reset=False)
    assert env.command_manager.pop_log() == {}


def test_a_command_that_fails_after_the_commit_of_a_reset_is_named(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(2, commands={"count": CountCfg(), "other": CountCfg()})
    with monkeypatch.context() as patch:
        patch.setattr(CountTerm, "_update_command", lambda *_: {}["missing"])
        with pytest.raises(KeyError) as failed:
            env.command_manager.refresh(ids(1))
    assert failed.value.__notes__ == ["commands term 'count'"]


def test_a_command_config_without_a_term_is_named(make_env: MakeEnv) -> None:
    class Unfinished(CommandTermCfg):
        resampling_time_range: tuple[float, float] = (1.0, 1.0)

    with pytest.raises(ConfigError, match=r"Unfinished does not implement make\(\)"):
        make_env(commands={"none": Unfinished()})
