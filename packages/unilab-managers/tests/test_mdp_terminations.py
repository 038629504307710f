"""Termination terms against numbers worked out by hand."""

import math

import pytest
import torch
from manager_support import Feed, MakeEnv, layout_of, zeros

from unilab_managers import ManagerBasedRlEnv, TerminationTermCfg
from unilab_managers.mdp import terminations as terms


def pitched(make_env: MakeEnv, *degrees: float, height: float = 1.0) -> ManagerBasedRlEnv:
    """One row per angle, pitched by it after a turn of 90 degrees."""
    feed = Feed()
    env = make_env(len(degrees), feed=feed, layout=layout_of(free_root=True))
    rows = []
    for angle in degrees:
        c, s, turn = math.cos(math.radians(angle) / 2), math.sin(math.radians(angle) / 2), 0.5**0.5
        # (turn, 0, 0, turn) x (c, 0, s, 0)
        rows.append([0.0, 0.0, height, turn * c, -turn * s, turn * s, turn * c, 0.0, 0.0])
    feed.now["qpos"] = torch.tensor(rows)
    env.step(zeros(env))
    return env


def test_a_body_that_leans_further_than_the_limit_is_badly_oriented(make_env: MakeEnv) -> None:
    env = pitched(make_env, 0.0, 59.9, 60.1, -60.1, 120.0, 180.0)
    bad = terms.bad_orientation(env, limit_angle=math.pi / 3)
    assert bad.tolist() == [False, False, True, True, True, True]
    assert terms.bad_orientation(env, limit_angle=2.5).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize(("height", "low"), [(0.25, False), (0.249, True), (0.3, False), (-1.0, True)])
def test_a_root_below_the_minimum_ends_the_episode(make_env: MakeEnv, height: float, low: bool) -> None:
    env = pitched(make_env, 0.0, 30.0, height=height)
    assert terms.root_height_below_minimum(env, minimum_height=0.25).tolist() == [low, low]


def test_only_the_time_limit_is_a_truncation_by_itself(make_env: MakeEnv) -> None:
    env = make_env(
        1,
        layout=layout_of(free_root=True),
        episode_length_s=0.02,
        autoreset=False,
        terminations={
            "time": TerminationTermCfg(func=terms.time_out),
            "low": TerminationTermCfg(func=terms.root_height_below_minimum, params={"minimum_height": 0.5}),
            "tilt": TerminationTermCfg(func=terms.bad_orientation, params={"limit_angle": 1.0}),
        },
    )
    state = env.step(zeros(env))
    assert state.truncated.tolist() == [True]
    assert state.terminated.tolist() == [True]  # the fake's root lies at height 0
    assert [bool(env.termination_manager.get_term(name)) for name in ("low", "tilt")] == [True, False]
