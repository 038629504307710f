"""Commands that are drawn anew on a condition of the config: which rows, when, and at what cost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from command_support import CountCfg, asked, build_hand, floating, place, pose, redrawn, steps, velocity_cfg
from manager_support import Feed, MakeEnv, base_cfg, calls, flag, group, ids, returns

from unilab_core import ConfigError
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, ResampleConditionCfg, mdp
from unilab_managers.mdp.commands import UniformPoseCommandCfg
from unisim import EntityCfg, SceneCfg, SimCfg

ALL, NONE = [True, True, True], [False, False, False]


def when(func: Any = flag, **params: Any) -> ResampleConditionCfg:
    return ResampleConditionCfg(func=func, params=params)


def counting(make_env: MakeEnv, feed: Feed, **settings: Any) -> ManagerBasedRlEnv:
    """Returns an environment whose command notes its redraws; its timer would run out after 100 s."""
    command = CountCfg(**({"resampling_time_range": (100.0, 100.0)} | settings))
    env = make_env(3, feed=feed, commands={"count": command})
    calls.clear()
    return env


def show(feed: Feed, *rows: int, column: int = 2) -> None:
    """Lets the condition hold in the rows given."""
    shown = torch.zeros(3, 3)
    shown[list(rows), column] = 1.0
    feed.probe(shown.tolist())


# ---------------------------------------------------------------- which rows, when


def test_the_rows_in_which_it_holds_are_drawn_anew_in_that_step(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed, resample_when=when())
    show(feed)
    steps(env, 1)
    show(feed, 1)
    steps(env, 2)
    show(feed, 0, 2)
    steps(env, 1)
    assert redrawn("count") == [NONE, [False, True, False], [False, True, False], [True, False, True]]
    assert env.command_manager.get_command("count")[:, 0].tolist() == [2.0, 3.0, 2.0]


def test_the_timer_begins_anew_with_it(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed, resampling_time_range=(0.1, 0.1), resample_when=when())  # 5 steps
    show(feed)
    steps(env, 3)
    show(feed, 1)
    steps(env, 1)
    show(feed)
    steps(env, 5)
    rows = [mask for mask in redrawn("count") if any(mask)]
    assert rows == [[False, True, False], [True, False, True], [False, True, False]]
    assert redrawn("count")[4] == [True, False, True]  # step 5
    assert redrawn("count")[8] == [False, True, False]  # step 9


def test_a_command_that_knows_by_itself_keeps_its_own_condition(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed, on_flag=True, resample_when=when(index=0))
    shown = torch.zeros(3, 3)
    shown[0, 0], shown[1, 2] = 1.0, 1.0
    feed.probe(shown.tolist())
    steps(env, 1)
    assert redrawn("count") == [[True, True, False]]


def test_without_a_condition_nothing_is_drawn_before_the_time(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed)
    show(feed, 0, 1, 2)
    steps(env, 3)
    assert [mask for mask in redrawn("count") if any(mask)] == []


def standing_still(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.command_manager.get_command("velocity")[:, 0] == 0.0


def fast(env: ManagerBasedRlEnv, limit: float) -> torch.Tensor:
    return env.scene["robot"].data.root_lin_vel_b[:, 0] > limit


def test_a_velocity_command_is_replaced_in_the_rows_that_have_reached_it(make_env: MakeEnv) -> None:
    feed = Feed()
    command = velocity_cfg(
        lin_vel_x=(-1.0, 1.0), resampling_time_range=(50.0, 50.0), resample_when=when(fast, limit=0.5)
    )
    env = make_env(3, **floating(feed=feed), commands={"velocity": command})
    place(feed, [pose()] * 3, [[0.0] * 7] * 3)
    steps(env, 1)
    before = env.command_manager.get_command("velocity").clone()
    still, moving = [0.0] * 7, [1.0, *[0.0] * 6]
    place(feed, [pose()] * 3, [still, moving, still])
    steps(env, 1)
    after = env.command_manager.get_command("velocity")
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert after[1, 0] != before[1, 0]


def test_it_sees_the_command_that_the_step_was_rewarded_for(make_env: MakeEnv) -> None:
    command = velocity_cfg(
        lin_vel_x=(-1.0, 1.0),
        rel_standing_envs=0.5,
        resampling_time_range=(50.0, 50.0),
        resample_when=when(standing_still),
    )
    env = make_env(64, **floating(), commands={"velocity": command}, seed=3)
    before = env.command_manager.get_command("velocity").clone()
    stood = before[:, 0] == 0.0
    assert 0 < int(stood.sum()) < 64
    steps(env, 1)
    after = env.command_manager.get_command("velocity")
    assert torch.equal(after[~stood], before[~stood])
    assert (after[stood] != before[stood]).any()


# ---------------------------------------------------------------- at what cost


def test_no_condition_asks_the_device_anything(make_env: MakeEnv) -> None:
    feed = Feed()
    command = velocity_cfg(resampling_time_range=(50.0, 60.0), resample_when=when())
    env = make_env(3, **floating(feed=feed), commands={"velocity": command})
    show(feed, 1)
    steps(env, 2)
    assert not asked(env.command_manager.compute).waits


def test_a_condition_costs_no_transfer(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed, resample_when=when())
    show(feed, 0)
    before = env.transfer_stats
    steps(env, 1)
    after = env.transfer_stats
    assert after.read.transfers - before.read.transfers == 1
    assert after.write == before.write
    assert after.verdict.transfers - before.verdict.transfers == 2


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("kind", ["float", "bool_columns", "none"])
def test_what_is_no_mask_is_refused(make_env: MakeEnv, kind: str) -> None:
    with pytest.raises(
        ConfigError, match=r"resample condition of commands term 'count'.* returned .*expected"
    ):
        counting(make_env, Feed(), resample_when=when(returns, kind=kind))


def test_a_parameter_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="indx"):
        when(flag, indx=1)


class After:
    """Holds in a row's n-th step, counted from its reset."""

    def __init__(self, cfg: ResampleConditionCfg, env: ManagerBasedRlEnv) -> None:
        self._count = torch.zeros(env.num_envs, dtype=torch.int64)

    def __call__(self, env: ManagerBasedRlEnv, number: int) -> torch.Tensor:
        self._count += 1
        return self._count == number

    def reset(self, env_ids: torch.Tensor) -> None:
        self._count[env_ids] = 0


def test_a_class_may_remember_rows(make_env: MakeEnv) -> None:
    env = counting(make_env, Feed(), resample_when=when(After, number=3))
    steps(env, 1)
    env.reset(ids(1))
    steps(env, 3)
    assert [mask for mask in redrawn("count")[-3:] if any(mask)] == [
        [True, False, True],
        [False, True, False],
    ]
    assert "commands.count.resample_when" in str(sorted(env.command_manager.row_state_roots()))


# ---------------------------------------------------------------- poses


def hand(command: UniformPoseCommandCfg) -> ManagerBasedRlEnv:
    cfg = base_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_hand)}),
        sim=SimCfg(timestep=0.01, num_threads=1, gravity=(0.0, 0.0, 0.0)),
        decimation=2,
        num_envs=2,
        observations={"obs": group(joints=ObservationTermCfg(func=mdp.joint_pos))},
        commands={"goal": command},
    )
    env = ManagerBasedRlEnv(cfg)
    env.reset()
    return env


def goal_at(x: float, yaw: float, **reached: Any) -> UniformPoseCommandCfg:
    """A pose x m ahead of the trunk, turned by yaw; the hand is 0.3 m ahead, not turned."""
    return UniformPoseCommandCfg(
        body_name="hand",
        resampling_time_range=(50.0, 60.0),
        pos_x=(x, x),
        pos_y=(0.0, 0.0),
        pos_z=(0.0, 0.0),
        yaw=(yaw, yaw),
        resample_when=when(mdp.pose_reached, command_name="goal", **reached),
    )


@pytest.mark.parametrize(
    ("reached", "is_reached"),
    [
        ({"distance": 0.11}, True),
        ({"distance": 0.09}, False),
        ({"angle": 0.21}, True),
        ({"angle": 0.19}, False),
        ({"distance": 0.11, "angle": 0.19}, False),
        ({"distance": 0.09, "angle": 0.21}, False),
        ({"distance": 0.11, "angle": 0.21}, True),
    ],
)
def test_a_pose_is_drawn_anew_where_the_body_has_reached_it(
    reached: dict[str, float], is_reached: bool
) -> None:
    with hand(goal_at(0.4, 0.2, **reached)) as env:
        assert mdp.pose_reached(env, "goal", **reached).tolist() == [is_reached] * 2
        left = env.command_manager.get_term("goal").steps_left
        left.fill_(100)
        steps(env, 1)
        assert [int(n) >= 2500 for n in left] == [is_reached] * 2


def test_a_pose_is_reached_in_some_respect() -> None:
    with pytest.raises(ConfigError, match="neither distance nor angle is given"):
        hand(goal_at(0.4, 0.0))


def test_only_a_pose_is_reached(make_env: MakeEnv) -> None:
    command = velocity_cfg(resample_when=when(mdp.pose_reached, command_name="velocity", distance=1.0))
    with pytest.raises(ConfigError, match="is a UniformVelocityCommand, expected a UniformPoseCommand"):
        make_env(1, **floating(), commands={"velocity": command})


def test_half_a_turn_is_half_a_turn() -> None:
    with hand(goal_at(0.3, math.pi, distance=1.0)) as env:
        term = env.command_manager.get_term("goal")
        far, turned = term.errors()  # type: ignore[attr-defined]
        assert far.tolist() == [pytest.approx(0.0, abs=1e-6)] * 2
        assert turned.tolist() == [pytest.approx(math.pi, abs=1e-4)] * 2


class HeldBefore:
    """Holds in the rows that were shown a flag at any time of their episode."""

    def __init__(self, cfg: ResampleConditionCfg, env: ManagerBasedRlEnv) -> None:
        self.held = torch.zeros(env.num_envs, dtype=torch.bool)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.held |= flag(env)
        return self.held

    def reset(self, env_ids: torch.Tensor) -> None:
        self.held[env_ids] = False


def test_what_a_condition_remembers_is_part_of_the_environments_state(make_env: MakeEnv) -> None:
    feed = Feed()
    env = counting(make_env, feed, resample_when=when(HeldBefore))
    show(feed, 1)
    steps(env, 1)
    saved = env.state_dict()
    show(feed, 0)
    steps(env, 1)
    env.load_state_dict(saved)
    show(feed)
    calls.clear()
    steps(env, 1)
    assert redrawn("count") == [[False, True, False]]
