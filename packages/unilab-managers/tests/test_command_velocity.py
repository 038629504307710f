"""Velocity commands: draws, headings, standing rows, fixed grids, and errors in the root's own frame."""

from __future__ import annotations

import math

import pytest
import torch
from command_support import asked, episodes, floating, place, pose, same, steps, velocity_cfg
from manager_support import Feed, MakeEnv, base_cfg, flag, ids

from unilab_core.errors import ConfigError, ResetRejectedError, UnknownNameError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, TerminationTermCfg
from unilab_managers.mdp.commands import UniformVelocityCommand

QUARTER = math.pi / 2
POINT = [0.5, -0.25, 0.125]
RANGES = {"lin_vel_x": (-0.5, 1.0), "lin_vel_y": (-0.4, 0.4), "ang_vel_z": (0.1, 0.7)}


def twist(env: ManagerBasedRlEnv) -> UniformVelocityCommand:
    term = env.command_manager.get_term("twist")
    assert isinstance(term, UniformVelocityCommand)
    return term


# ---------------------------------------------------------------- draws


def test_a_reset_draws_within_the_ranges_and_spreads_over_them(make_env: MakeEnv) -> None:
    env = make_env(2000, **floating(commands={"twist": velocity_cfg(**RANGES)}))
    command = twist(env).command
    low, high = command.min(dim=0).values, command.max(dim=0).values
    for column, (least, most) in enumerate(RANGES.values()):
        assert least <= low[column] < least + 0.01 * (most - least)
        assert most - 0.01 * (most - least) < high[column] <= most
    assert twist(env).labels == ("lin_vel_x", "lin_vel_y", "ang_vel_z")


def test_only_the_rows_that_are_reset_get_a_new_command(make_env: MakeEnv) -> None:
    env = make_env(4, **floating(commands={"twist": velocity_cfg(**RANGES)}))
    before = twist(env).command.clone()
    env.reset(ids(3, 1))
    changed = (twist(env).command != before).any(dim=1)
    assert changed.tolist() == [False, True, False, True]


def test_the_order_of_ids_does_not_matter(make_env: MakeEnv) -> None:
    drawn = []
    for rows in (ids(0, 2), ids(2, 0)):
        env = make_env(3, **floating(commands={"twist": velocity_cfg(**RANGES)}))
        env.reset(rows)
        drawn.append(twist(env).command.clone())
    assert torch.equal(*drawn)


def test_a_timer_that_runs_out_redraws_in_the_step(make_env: MakeEnv) -> None:
    env = make_env(2, **floating(commands={"twist": velocity_cfg(**RANGES)}))
    first = twist(env).command.clone()
    steps(env, 4)
    assert torch.equal(twist(env).command, first)
    steps(env, 1)
    assert bool((twist(env).command != first).all())


@pytest.mark.parametrize(("share", "standing"), [(0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
def test_a_share_of_the_rows_is_told_to_stand(make_env: MakeEnv, share: float, standing: float) -> None:
    env = make_env(
        4000,
        **floating(commands={"twist": velocity_cfg(rel_standing_envs=share, heading=(2.0, 2.0))}),
    )
    still = (twist(env).command == 0).all(dim=1)
    assert float(still.float().mean()) == pytest.approx(standing, abs=0.03)
    assert twist(env).command[~still, :2].unique(dim=0).tolist() == ([POINT[:2]] if share < 1 else [])


# ---------------------------------------------------------------- headings


def heading_env(make_env: MakeEnv, feed: Feed, num_envs: int = 2, **changes: object) -> ManagerBasedRlEnv:
    settings = {"heading": (1.0, 1.0), "heading_control_stiffness": 0.5, "ang_vel_z": (-1.0, 1.0)}
    cfg = velocity_cfg(**(settings | {"resampling_time_range": (9.0, 9.0)} | changes))
    return make_env(num_envs, **floating(feed=feed, commands={"twist": cfg}))


def test_a_row_turns_towards_its_heading_in_proportion_to_what_is_missing(make_env: MakeEnv) -> None:
    feed = Feed()
    env = heading_env(make_env, feed)
    place(feed, [pose(0.6), pose(1.4)])
    steps(env, 1)
    assert twist(env).command[:, 2].tolist() == pytest.approx([0.5 * 0.4, -0.5 * 0.4], abs=1e-6)
    assert twist(env).command[:, :2].tolist() == [POINT[:2]] * 2


def test_the_shorter_way_round_is_taken(make_env: MakeEnv) -> None:
    feed = Feed()
    env = heading_env(make_env, feed, heading=(-3.0, -3.0))
    place(feed, [pose(3.0), pose(-2.5)])
    steps(env, 1)
    assert twist(env).command[:, 2].tolist() == pytest.approx([0.5 * (2 * math.pi - 6.0), -0.25], abs=1e-6)


def test_the_range_of_yaw_rates_bounds_the_rate_that_a_heading_asks_for(make_env: MakeEnv) -> None:
    feed = Feed()
    env = heading_env(make_env, feed, ang_vel_z=(-0.25, 0.125))
    place(feed, [pose(-1.0), pose(2.5)])
    steps(env, 1)
    assert twist(env).command[:, 2].tolist() == [0.125, -0.25]


def test_rows_without_a_heading_keep_the_drawn_rate(make_env: MakeEnv) -> None:
    feed = Feed()
    env = heading_env(make_env, feed, 4000, rel_heading_envs=0.25, ang_vel_z=(0.125, 0.125))
    assert twist(env).command[:, 2].unique().tolist() == [0.125]  # both kinds ask for at least that much
    twist(env).set_ranges(ang_vel_z=(-1.0, 1.0))
    steps(env, 1)
    turning = (twist(env).command[:, 2] - 0.5).abs() < 1e-5  # 0.5 of what is missing from 0 to 1
    assert float(turning.float().mean()) == pytest.approx(0.25, abs=0.03)
    assert twist(env).command[~turning, 2].unique().tolist() == [0.125]


def test_rows_that_are_not_reset_keep_their_headings(make_env: MakeEnv) -> None:
    env = heading_env(make_env, Feed(), 200, heading=(-3.0, 3.0), rel_heading_envs=0.5, ang_vel_z=(-9.0, 9.0))
    before = twist(env).command.clone()
    env.reset(torch.arange(0, 200, 2))
    assert bool((twist(env).command[::2] != before[::2]).any(dim=1).all())
    steps(env, 1)  # turns to where the headings are now
    assert torch.allclose(twist(env).command[1::2], before[1::2], atol=1e-5)


def test_a_row_that_was_reset_turns_from_where_the_reset_put_it(make_env: MakeEnv) -> None:
    feed = Feed()
    env = heading_env(make_env, feed)
    place(feed, [pose(0.6), pose(0.6)])
    steps(env, 1)
    env.reset(ids(1))  # back to a heading of 0
    assert twist(env).command[:, 2].tolist() == pytest.approx([0.2, 0.5], abs=1e-6)


def test_qa_035_a_refresh_leaves_the_other_rows_alone(make_env: MakeEnv) -> None:
    env = heading_env(make_env, Feed())
    before = twist(env).command.clone()
    twist(env).set_ranges(ang_vel_z=(-0.25, 0.25))
    env.reset(ids(1))
    assert before[:, 2].tolist() == pytest.approx([0.5, 0.5])
    assert torch.equal(twist(env).command[0], before[0])
    assert twist(env).command[1, 2] == 0.25


# ---------------------------------------------------------------- fixed commands


def test_fixed_commands_are_held_in_turn_and_nothing_is_drawn(make_env: MakeEnv) -> None:
    grid = ((1.0, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, -0.5))
    cfg = velocity_cfg(fixed=grid, heading=(1.0, 1.0), rel_standing_envs=1.0)
    env = make_env(5, **floating(commands={"twist": cfg}))
    before = env.rng.get_state()
    expected = [list(grid[row % 3]) for row in range(5)]
    assert twist(env).command.tolist() == expected
    steps(env, 6)
    env.reset(ids(1, 4))
    assert twist(env).command.tolist() == expected
    assert torch.equal(env.rng.get_state(), before)
    assert "remainder" not in asked(env.command_manager.compute).operators  # no heading is looked at


# ---------------------------------------------------------------- metrics


def test_errors_are_between_the_command_and_the_velocity_in_the_roots_own_frame(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, **floating(feed=feed, commands={"twist": velocity_cfg()}))
    # Row 0 faces +y and moves along +y at 1 m/s: forward at 1. Row 1 faces +x and does the same: to the left at 1.
    moving = [0.0, 1.0, 0.0, 0.0, 0.0, 0.625, 0.0]
    place(feed, [pose(QUARTER), pose(0.0)], [moving, moving])
    steps(env, 2)
    log = env.command_manager.reset()
    # |0.5 - 1| and |0.5 - 0|; |-0.25 - 0| and |-0.25 - 1|; |0.125 - 0.625| twice.
    assert episodes(log, "Metrics/twist/error_lin_vel_x") == pytest.approx([1.0, 2], abs=1e-5)
    assert episodes(log, "Metrics/twist/error_lin_vel_y") == pytest.approx([1.5, 2], abs=1e-5)
    assert episodes(log, "Metrics/twist/error_ang_vel_z") == pytest.approx([1.0, 2], abs=1e-5)


def test_errors_go_into_the_log_of_the_episode(make_env: MakeEnv) -> None:
    feed = Feed()
    ends = {"flag": TerminationTermCfg(func=flag, params={"index": 1})}
    env = make_env(2, **floating(feed=feed, terminations=ends, commands={"twist": velocity_cfg()}))
    steps(env, 2)
    feed.probe([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    log = steps(env, 1).info["episode"]
    assert episodes(log, "Metrics/twist/error_lin_vel_x") == pytest.approx([0.5, 1])
    assert episodes(log, "Metrics/twist/error_lin_vel_y") == pytest.approx([0.25, 1])


# ---------------------------------------------------------------- ranges that change


def test_new_ranges_are_drawn_from_and_the_config_stays(make_env: MakeEnv) -> None:
    commands = {"twist": velocity_cfg()}
    env = make_env(2, **floating(commands=commands))
    twist(env).set_ranges(lin_vel_x=(0.75, 0.75), ang_vel_z=(0.0, 0.0))
    assert twist(env).command.tolist() == [POINT, POINT]
    env.reset(ids(1))
    assert twist(env).command.tolist() == [POINT, [0.75, -0.25, 0.0]]
    assert twist(env).ranges.read() == {
        "lin_vel_x": (0.75, 0.75), "lin_vel_y": (-0.25, -0.25), "ang_vel_z": (0.0, 0.0),
    }  # fmt: skip
    assert env.cfg == base_cfg(commands=commands)


@pytest.mark.parametrize(
    ("ranges", "error", "message"),
    [
        ({"lin_vel_z": (0.0, 1.0)}, UnknownNameError, "unknown range 'lin_vel_z'; did you mean 'lin_vel_x'"),
        ({"heading": (0.0, 1.0)}, UnknownNameError, "unknown range 'heading'"),
        ({"lin_vel_y": (1.0, 0.0)}, ValueError, r"lin_vel_y \(1.0, 0.0\) is inverted"),
        ({"lin_vel_y": (0.0, math.inf)}, ValueError, r"lin_vel_y is \(0.0, inf\); expected two"),
        ({"lin_vel_y": (0.0,)}, ValueError, r"lin_vel_y is \(0.0,\); expected two"),
    ],
)
def test_ranges_that_make_no_sense_are_refused_and_none_is_changed(
    make_env: MakeEnv, ranges: dict[str, tuple[float, float]], error: type[Exception], message: str
) -> None:
    env = make_env(1, **floating(commands={"twist": velocity_cfg()}))
    before = twist(env).ranges.read()
    with pytest.raises(error, match=f"commands term 'twist': {message}"):
        twist(env).set_ranges(lin_vel_x=(0.0, 1.0), **ranges)
    assert twist(env).ranges.read() == before


def widen_and_fail(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if env.step_counter:
        twist(env).set_ranges(lin_vel_x=(-9.0, 9.0))
        raise KeyError("no such thing")


def test_a_rejected_reset_takes_new_ranges_back(make_env: MakeEnv) -> None:
    event = EventTermCfg(func=widen_and_fail, mode="reset")
    env = make_env(2, **floating(commands={"twist": velocity_cfg()}, events={"fails": event}))
    steps(env, 1)
    before = env.state_dict()
    with pytest.raises(ResetRejectedError, match="events term 'fails'"):
        env.reset(ids(0))
    assert same(env.state_dict(), before)
    twist(env).set_ranges(lin_vel_x=(-9.0, 9.0))  # what was taken back can be set again
    assert twist(env).ranges.read()["lin_vel_x"] == (-9.0, 9.0)


def test_qa_084_ranges_that_were_changed_are_restored(make_env: MakeEnv) -> None:
    commands = {"twist": velocity_cfg(heading=(0.0, 0.0))}
    env, other = (make_env(2, seed=seed, **floating(commands=commands)) for seed in (1, 2))
    twist(env).set_ranges(lin_vel_x=(-1.0, 2.0), heading=(-1.0, 1.0))
    state = env.state_dict()
    other.load_state_dict(state)
    assert twist(other).ranges.read() == twist(env).ranges.read()
    assert same(other.state_dict(), state)


@pytest.mark.parametrize("due", [False, True])
def test_no_step_and_no_reset_makes_the_host_wait(make_env: MakeEnv, due: bool) -> None:
    env = make_env(4, **floating(commands={"twist": velocity_cfg(**RANGES, heading=(-1.0, 1.0))}))
    env.command_manager.timers_judged({"commands/twist": due})
    rows = ids(1, 3)
    assert not asked(env.command_manager.compute).waits
    assert not asked(lambda: env.command_manager.reset_resolved(rows)).waits
    assert not asked(lambda: env.command_manager.refresh(rows)).waits
    assert not asked(lambda: twist(env).set_ranges(lin_vel_x=(0.0, 2.0))).waits


@pytest.mark.parametrize(
    "changes",
    [
        {"lin_vel_x": (1.0, 0.0)},
        {"heading": (1.0, 0.0)},
        {"heading_control_stiffness": 0.0},
        {"rel_heading_envs": 1.5},
        {"rel_standing_envs": -0.5},
        {"fixed": ()},
        {"fixed": ((1.0, 2.0),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        velocity_cfg(**changes)
