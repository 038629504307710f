"""Timers: what a step costs in which none is due, and that they agree with a slow model under random resets."""

import random
from typing import Any

import pytest
import torch
from event_support import fired, interval, operators, run
from manager_support import DT, Feed, MakeEnv, calls, flag, ids

from unilab_managers import EventTermCfg, ManagerBasedRlEnv, TerminationTermCfg


def nothing(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    calls.append("nothing")


def step_event(**settings: Any) -> EventTermCfg:
    fields: dict[str, Any] = {"func": fired, "mode": "step"}
    return EventTermCfg(**(fields | settings))


def started(make_env: MakeEnv, num_envs: int = 2, **options: Any) -> ManagerBasedRlEnv:
    """Returns an environment that was reset once; what construction and that reset called is forgotten."""
    env = make_env(num_envs, **options)
    calls.clear()
    return env


# ---------------------------------------------------------------- what it costs


def judge(env: ManagerBasedRlEnv) -> dict[str, bool]:
    due = {name: bool(fires.any()) for name, fires in env.event_manager.timers().items()}
    env.event_manager.timers_judged(due)
    return due


def test_timers_say_what_fires_in_the_next_step(make_env: MakeEnv) -> None:
    events = {"e": interval(0.04), "all": interval(0.04, tag="all", is_global_time=True), "s": step_event()}
    env = started(make_env, events=events)
    assert {n: fires.tolist() for n, fires in env.event_manager.timers().items()} == {
        "events/e": [False, False]
    }
    run(env, 1)
    env.reset(ids(1))
    assert env.event_manager.timers()["events/e"].tolist() == [True, False]


def test_a_step_in_which_no_timer_is_due_costs_one_subtraction(make_env: MakeEnv) -> None:
    events = {
        "a": interval(0.06, tag="a"),
        "b": interval(0.10, tag="b"),
        "all": interval(0.20, tag="all", is_global_time=True),
    }
    env = started(make_env, events=events)
    manager = env.event_manager
    for step in range(1, 9):
        judge(env)
        with operators() as names:
            manager.apply_step()
        due = [name for name, every in (("a", 3), ("b", 5)) if step % every == 0]
        assert names.count("sub_") == 1
        assert names.count("masked_select") == len(due)  # one look at the device per timer that is due
        if not due:
            assert names == ["sub_"]
        assert not {"item", "_local_scalar_dense", "index", "nonzero"} & set(names)


def test_a_reset_makes_no_one_look_at_a_timer_that_cannot_fire_in_the_next_step(make_env: MakeEnv) -> None:
    env = started(make_env, events={"e": interval(0.04, 0.20)}, seed=1)
    judge(env)
    env.reset(ids(1))
    assert int(env.event_manager.steps_left("e").min()) > 1
    with operators() as names:
        env.event_manager.apply_step()
    assert names == ["sub_"]


def test_without_timers_a_step_costs_nothing(make_env: MakeEnv) -> None:
    env = started(
        make_env, events={"s": step_event(func=nothing), "r": EventTermCfg(func=fired, mode="reset")}
    )
    assert env.event_manager.timers() == {}
    calls.clear()
    with operators() as names:
        env.event_manager.apply_step()
    assert names == []
    assert calls == ["nothing"]


def test_a_timer_that_may_fire_is_looked_at_only_for_its_rows(make_env: MakeEnv) -> None:
    env = started(make_env, 3, events={"e": interval(0.04, 0.20)}, seed=5)
    seen: dict[int, list[int]] = {row: [] for row in range(3)}
    left = env.event_manager.steps_left("e").tolist()
    for step in range(1, 60):
        left = [n - 1 for n in left]
        calls.clear()
        run(env, 1)
        rows = [row for row in range(3) if left[row] == 0]
        assert calls == ([("event", step, rows)] if rows else [])
        drawn = env.event_manager.steps_left("e").tolist()
        for row in rows:
            seen[row].append(drawn[row])
        assert [drawn[r] for r in range(3) if r not in rows] == [left[r] for r in range(3) if r not in rows]
        left = drawn
    assert {steps for row in seen.values() for steps in row} == set(range(2, 11))


# ---------------------------------------------------------------- against a model


class SlowTimers:
    """Each row's timer as a plain number; what is drawn is read from the manager after each draw."""

    def __init__(self, left: list[int], *, resample: bool, shared: bool) -> None:
        self.left, self.resample, self.shared = left, resample, shared

    def step(self) -> list[int]:
        self.left = [n - 1 for n in self.left]
        return [row for row, n in enumerate(self.left) if n == 0]

    def check(self, drawn: list[int], redrawn: list[int], low: int, high: int) -> None:
        for row, now in enumerate(drawn):
            if row in redrawn:
                assert low <= now <= high
            else:
                assert now == self.left[row]
        self.left = drawn


TIMERS: dict[str, dict[str, Any]] = {
    "own": {},
    "kept": {"resample_on_reset": False},
    "all": {"is_global_time": True},
}


@pytest.mark.parametrize("seed", range(4))
def test_timers_agree_with_a_slow_model_under_random_resets(make_env: MakeEnv, seed: int) -> None:
    choose, n, low, high = random.Random(seed), 4, 1 + seed % 2, 6
    feed = Feed()
    feed.probe([[0.0] * 3] * n)
    events = {name: interval(low * DT, high * DT, tag=name, **settings) for name, settings in TIMERS.items()}
    ends = {"end": TerminationTermCfg(func=flag)}
    env = started(make_env, n, feed=feed, events=events, terminations=ends, seed=seed)
    manager = env.event_manager
    models = {
        name: SlowTimers(
            manager.steps_left(name).tolist(),
            resample=settings.get("resample_on_reset", True),
            shared=settings.get("is_global_time", False),
        )
        for name, settings in TIMERS.items()
    }
    for step in range(1, 200):
        ending = [row for row in range(n) if choose.random() < 0.1]
        feed.probe([[0.0, 0.0, float(row in ending)] for row in range(n)])
        calls.clear()
        run(env, 1)
        due = {name: model.step() for name, model in models.items()}
        expected = [(name, step, rows) for name, rows in due.items() if rows]
        assert calls == expected
        for name, model in models.items():
            own = model.resample and not model.shared
            model.check(manager.steps_left(name).tolist(), due[name] + (ending if own else []), low, high)
        if choose.random() < 0.3:
            rows = choose.sample(range(n), choose.randint(1, n))
            env.reset(ids(*rows))
            for model, name in zip(models.values(), models, strict=True):
                own = model.resample and not model.shared
                model.check(manager.steps_left(name).tolist(), rows if own else [], low, high)
