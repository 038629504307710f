"""Step and interval events: when they fire, for which rows, and what a step costs in which none is due."""

import logging
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from event_support import Fired, fired, interval, run, steps_of
from manager_support import DT, MakeEnv, calls, fails, ids, zeros

from unilab_core import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, TerminationTermCfg, mdp
from unilab_managers.mdp.events import push_root
from unisim.testing import make_layout

# Durations that ceil or int would take for one step more or less, with the steps they are at 0.02 s.
EXACT = {0.14: 7, 0.28: 14, 0.56: 28, 1.12: 56, 2.22: 111, 0.58: 29, 0.94: 47, 1.14: 57, 0.15: 8, 0.02: 1}


def step_event(**settings: Any) -> EventTermCfg:
    fields: dict[str, Any] = {"func": fired, "mode": "step"}
    return EventTermCfg(**(fields | settings))


def started(make_env: MakeEnv, num_envs: int = 2, **options: Any) -> ManagerBasedRlEnv:
    """Returns an environment that was reset once; what construction and that reset called is forgotten."""
    env = make_env(num_envs, **options)
    calls.clear()
    return env


# ---------------------------------------------------------------- when


def test_qa_027_timers_of_functions_and_classes_start_anew_with_their_row(make_env: MakeEnv) -> None:
    events = {"a": interval(0.06, tag="a", func=Fired), "b": interval(0.10, tag="b")}
    env = started(make_env, events=events)
    run(env, 3)
    env.reset(ids(1))
    assert env.event_manager.steps_left("b").tolist() == [2, 5]
    assert env.event_manager.steps_left("a").tolist() == [3, 3]
    run(env, 12)
    assert steps_of(0, "b") == [5, 10, 15]
    assert steps_of(1, "b") == [8, 13]
    assert steps_of(0, "a") == [3, 6, 9, 12, 15]
    assert steps_of(1, "a") == [3, 6, 9, 12, 15]  # that of step 3 ran before the reset


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({}, []), ({"resample_on_reset": False}, [7, 14, 21]), ({"is_global_time": True}, [7, 14, 21])],
)
def test_qa_029_a_timer_that_starts_anew_at_every_reset_never_outlives_a_short_episode(
    make_env: MakeEnv, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], steps: list[int]
) -> None:
    with caplog.at_level(logging.WARNING, logger="unilab_managers"):
        env = started(
            make_env,
            events={"late": interval(0.14, **settings)},
            terminations={"end": TerminationTermCfg(func=mdp.time_out)},
            episode_length_s=0.1,
        )
    run(env, 22)
    assert [steps_of(0), steps_of(1)] == [steps, steps]
    warned = [record.getMessage() for record in caplog.records]
    if steps:
        assert warned == []
    else:
        assert warned == [
            "events term 'late' never fires: its timer starts anew at every reset and takes at least 7 steps, an "
            "episode takes 5; set resample_on_reset=False or is_global_time=True, or a shorter interval_range_s"
        ]


def test_a_timer_as_long_as_the_episode_fires_in_its_last_step_and_is_not_warned_of(
    make_env: MakeEnv, caplog: pytest.LogCaptureFixture
) -> None:
    ends = {"end": TerminationTermCfg(func=mdp.time_out)}
    with caplog.at_level(logging.WARNING, logger="unilab_managers"):
        env = started(make_env, events={"e": interval(0.1)}, terminations=ends, episode_length_s=0.1)
    run(env, 11)
    assert steps_of(0) == [5, 10]
    assert caplog.records == []


@pytest.mark.parametrize("seconds", EXACT)
def test_qa_117_an_interval_is_the_whole_steps_that_its_seconds_are(
    make_env: MakeEnv, seconds: float
) -> None:
    env = started(make_env, 1, events={"e": interval(seconds)})
    run(env, 2 * EXACT[seconds])
    assert steps_of(0) == [EXACT[seconds], 2 * EXACT[seconds]]


def test_qa_117_the_ends_of_a_range_are_whole_steps_and_both_are_drawn(make_env: MakeEnv) -> None:
    env = started(make_env, 400, events={"e": interval(0.58, 0.66)})  # int would begin at 28
    assert sorted(set(env.event_manager.steps_left("e").tolist())) == [29, 30, 31, 32, 33]


def test_an_interval_of_one_step_fires_in_every_step_also_right_after_a_reset(make_env: MakeEnv) -> None:
    env = started(make_env, events={"e": interval(0.02), "longer": interval(0.02, 0.04, tag="longer")})
    for _ in range(4):
        env.step(zeros(env))
        env.reset(ids(1))
    assert steps_of(0) == steps_of(1) == [1, 2, 3, 4]
    # Two rows, four steps, each redrawn as 1 or 2: no gap is longer.
    gaps = [
        b - a
        for row in (0, 1)
        for a, b in zip([0, *steps_of(row, "longer")], steps_of(row, "longer"), strict=False)
    ]
    assert set(gaps) <= {1, 2}


def test_a_timer_of_one_or_two_steps_redrawn_as_one_by_a_reset_fires_in_the_next_step(
    make_env: MakeEnv,
) -> None:
    env = started(make_env, 1, events={"e": interval(0.02, 0.04)})
    ones = 0
    for _ in range(40):
        env.reset()
        left = int(env.event_manager.steps_left("e"))
        calls.clear()
        run(env, 1)
        assert len(calls) == (left == 1)
        ones += left == 1
    assert 0 < ones < 40


def test_a_global_timer_fires_for_all_rows_at_once_and_no_reset_changes_it(make_env: MakeEnv) -> None:
    env = started(make_env, 3, events={"e": interval(0.06, 0.10, is_global_time=True)})
    for _ in range(30):
        before = env.event_manager.steps_left("e")
        env.reset(ids(0, 2))
        env.reset()
        assert torch.equal(env.event_manager.steps_left("e"), before)
        run(env, 1)
    assert all(rows == [0, 1, 2] for _, _, rows in calls)
    steps = steps_of(0)
    gaps = {b - a for a, b in pairwise(steps)}
    assert len(calls) >= 6
    assert gaps == {3, 4, 5}


def test_timers_of_rows_differ_and_one_row_does_not_fire_for_another(make_env: MakeEnv) -> None:
    env = started(make_env, 50, events={"e": interval(0.02, 0.20)})
    left = env.event_manager.steps_left("e")
    assert sorted(set(left.tolist())) == list(range(1, 11))
    run(env, 10)
    assert [steps_of(row)[0] for row in range(50)] == left.tolist()


def test_manual_and_automatic_resets_leave_equal_timers(make_env: MakeEnv) -> None:
    events = {"e": interval(0.10, 0.30), "kept": interval(0.10, 0.30, tag="kept", resample_on_reset=False)}
    ends = {"end": TerminationTermCfg(func=mdp.time_out)}
    automatic = started(make_env, events=events, terminations=ends, episode_length_s=0.08)
    manual = started(make_env, events=events, terminations=ends, episode_length_s=0.08, autoreset=False)
    for _ in range(3):
        run(automatic, 4)
        run(manual, 4)
        manual.reset()
        for name in events:
            left = automatic.event_manager.steps_left(name)
            assert torch.equal(manual.event_manager.steps_left(name), left)
        assert torch.equal(manual.rng.get_state(), automatic.rng.get_state())


def test_twins_draw_the_same_timers_whatever_the_order_of_other_rows_resets(make_env: MakeEnv) -> None:
    events = {"e": interval(0.10, 2.0)}
    one, two = (started(make_env, 4, events=events, seed=3) for _ in range(2))
    other = started(make_env, 4, events=events, seed=4)
    one.reset(ids(3, 1))
    two.reset(ids(1, 3))
    assert torch.equal(one.event_manager.steps_left("e"), two.event_manager.steps_left("e"))
    assert not torch.equal(one.event_manager.steps_left("e"), other.event_manager.steps_left("e"))


def test_qa_077_first_timers_are_drawn_at_construction_from_the_environments_own_seed(
    make_env: MakeEnv,
) -> None:
    made = []
    for seed in (42, 42, 43):
        torch.rand(7)  # other code draws from the global generator
        random.random()
        env = make_env(20, events={"e": interval(0.02, 9.0)}, seed=seed, reset=False)
        made.append(env.event_manager.steps_left("e"))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert bool((made[0] >= 1).all())


def test_a_state_that_is_loaded_brings_timers_and_what_is_known_of_them(make_env: MakeEnv) -> None:
    events = {"e": interval(0.06, 0.12), "all": interval(0.06, 0.12, tag="all", is_global_time=True)}
    env, twin = started(make_env, events=events, seed=1), started(make_env, events=events, seed=2)
    run(env, 7)
    twin.load_state_dict(env.state_dict())
    outcomes = []
    for each in (env, twin):
        calls.clear()
        run(each, 20)
        outcomes.append(list(calls))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0]) >= 4


# ---------------------------------------------------------------- order


def test_step_events_run_before_interval_events_each_in_their_order(make_env: MakeEnv) -> None:
    events = {
        "i2": interval(0.02, tag="i2"),
        "s2": step_event(params={"tag": "s2"}),
        "i1": interval(0.02, tag="i1", is_global_time=True),
        "s1": step_event(params={"tag": "s1"}),
    }
    env = started(make_env, events=events)
    run(env, 2)
    assert [tag for tag, _, _ in calls] == ["s2", "s1", "i2", "i1"] * 2
    assert [step for _, step, _ in calls] == [1] * 4 + [2] * 4
    assert all(rows == [0, 1] for _, _, rows in calls)


def test_startup_events_run_once_for_all_rows_before_the_first_reset(make_env: MakeEnv) -> None:
    env = make_env(3, events={"begin": EventTermCfg(func=fired, mode="startup")}, reset=False)
    assert calls[-1] == ("event", 0, [0, 1, 2])
    calls.clear()
    env.reset()
    run(env, 3)
    assert calls == []


def test_every_step_and_interval_term_is_tried_at_construction(make_env: MakeEnv) -> None:
    for mode in ({"mode": "step"}, {"mode": "interval", "interval_range_s": (50.0, 50.0)}):
        events = {"bad": EventTermCfg(func=fails, **mode)}
        with pytest.raises(ConfigError, match=r"events term 'bad': KeyError: 'no such thing'"):
            make_env(2, events=events)


def test_a_step_event_writes_what_observations_of_the_same_step_show(make_env: MakeEnv) -> None:
    events = {"push": interval(0.06, func=push_root, params={"velocity_range": {"x": (1.0, 1.0)}})}
    layout = make_layout(free_root=True, timestep=DT, sensors={"probe": (3, "position")})
    env = started(make_env, 1, events=events, layout=layout)
    speeds = []
    for _ in range(6):
        run(env, 1)
        speeds.append(float(env.scene["robot"].data.root_lin_vel_w[0, 0]))
    assert speeds == [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]


# ---------------------------------------------------------------- apply


def test_apply_runs_the_terms_of_one_mode(make_env: MakeEnv) -> None:
    events = {
        "begin": EventTermCfg(func=fired, mode="startup", params={"tag": "begin"}),
        "again": EventTermCfg(func=fired, mode="reset", params={"tag": "again"}),
        "each": step_event(params={"tag": "each"}),
        "timed": interval(0.04, tag="timed"),
    }
    env = started(make_env, 3, events=events)
    manager = env.event_manager
    manager.apply(mode="startup")
    manager.apply(mode="step", env_ids=ids(2, 1))
    manager.apply(mode="reset", env_ids=slice(1), global_env_step_count=0)
    manager.apply(mode="interval", dt=DT)
    manager.apply(mode="interval", dt=DT)
    assert calls == [
        ("begin", 0, [0, 1, 2]),
        ("each", 0, [2, 1]),
        ("again", 0, [0]),
        ("timed", 0, [0, 1, 2]),
    ]


def test_apply_lets_several_steps_pass_at_once(make_env: MakeEnv) -> None:
    env = started(
        make_env, events={"e": interval(0.06), "all": interval(0.06, tag="all", is_global_time=True)}
    )
    run(env, 1)  # the verdict of this step knows of the next one only
    env.event_manager.apply(mode="interval", dt=4 * DT)
    assert [tag for tag, _, _ in calls] == ["event", "all"]
    assert (
        env.event_manager.steps_left("e").tolist() == env.event_manager.steps_left("all").tolist() == [3, 3]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"mode": "interval"}, "mode 'interval' needs dt"),
        ({"mode": "interval", "dt": 0.0}, "dt is 0.0 s, expected a whole number of control steps of 0.02 s"),
        ({"mode": "interval", "dt": -0.02}, "dt is -0.02 s"),
        ({"mode": "interval", "dt": 0.03}, "dt is 0.03 s"),
        (
            {"mode": "interval", "dt": 0.02, "env_ids": ids(1)},
            "got 1 of 2 rows; timers run for all rows together",
        ),
        ({"mode": "reset"}, "mode 'reset' needs global_env_step_count"),
        ({"mode": "intervall", "dt": 0.02}, "unknown mode 'intervall'; did you mean 'interval'"),
    ],
)
def test_a_wrong_call_of_apply_runs_nothing(make_env: MakeEnv, call: dict[str, Any], message: str) -> None:
    env = started(make_env, events={"e": interval(0.02), "s": step_event()})
    with pytest.raises(ValueError, match=message):
        env.event_manager.apply(**call)
    assert calls == []
    assert env.event_manager.steps_left("e").tolist() == [1, 1]


def test_steps_left_names_the_nearest_interval_term(make_env: MakeEnv) -> None:
    env = started(make_env, events={"push": interval(1.0), "other": step_event()})
    with pytest.raises(KeyError, match="unknown interval term 'posh'; did you mean 'push'"):
        env.event_manager.steps_left("posh")
    with pytest.raises(KeyError, match="unknown interval term 'other'"):
        env.event_manager.steps_left("other")
