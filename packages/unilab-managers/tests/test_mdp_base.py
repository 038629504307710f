"""Rewards, terminations and metrics of the base and of contacts, with numbers worked out by hand."""

import math
from typing import Any

import pytest
import torch
from feet_support import CONTACTS, FEET, FeetFeed, feet_env, feet_layout
from manager_support import Feed, MakeEnv, layout_of, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg, mdp
from unilab_managers.mdp.commands import UniformVelocityCommandCfg

ROOT = 0.75**0.5
UPRIGHT, UPSIDE_DOWN = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)
PITCHED = (ROOT, 0.0, 0.5, 0.0)
"""Pitch +60 deg."""
STILL = (0.0, 0.0, 0.0)


def posed(
    make_env: MakeEnv, quats: Any, position: Any = (), lin_vel_w: Any = (), ang_vel_b: Any = (), **cfg: Any
) -> ManagerBasedRlEnv:
    feed = Feed()
    n = len(quats)
    env = make_env(n, feed=feed, layout=layout_of(free_root=True), **cfg)
    position, lin_vel_w, ang_vel_b = (given or [STILL] * n for given in (position, lin_vel_w, ang_vel_b))
    feed.now["qpos"] = torch.tensor([[*p, *q, 0.0, 0.0] for p, q in zip(position, quats, strict=True)])
    feed.now["qvel"] = torch.tensor([[*v, *w, 0.0, 0.0] for v, w in zip(lin_vel_w, ang_vel_b, strict=True)])
    env.step(zeros(env))
    return env


def close(value: torch.Tensor, rows: Any) -> None:
    assert value.dtype == torch.float32
    assert value.tolist() == pytest.approx(list(rows), abs=1e-6)


def twist(*rows: tuple[float, float, float]) -> dict[str, Any]:
    still = (0.0, 0.0)
    cfg = UniformVelocityCommandCfg(
        lin_vel_x=still, lin_vel_y=still, ang_vel_z=still, resampling_time_range=(9.0, 9.0), fixed=rows
    )
    return {"twist": cfg}


# ---------------------------------------------------------------- rewards


def test_velocities_along_the_heading_know_no_pitch(make_env: MakeEnv) -> None:
    half = 0.5**0.5
    # Yaw +90 deg after a pitch of 60: (half, 0, 0, half) x PITCHED.
    yawed = (half * ROOT, -half * 0.5, half * 0.5, half * ROOT)
    env = posed(
        make_env,
        [PITCHED, yawed],
        lin_vel_w=[(1.0, 0.5, 9.0), (-0.5, 1.0, 9.0)],
        commands=twist((1.0, 0.5, 0.0), (0.5, 0.5, 0.0)),
    )
    close(mdp.track_lin_vel_xy_yaw_exp(env, "twist", std=0.5), [1.0, math.exp(-1.0)])


def test_turning_about_the_vertical_is_told_from_turning_about_the_bodys_z(make_env: MakeEnv) -> None:
    env = posed(
        make_env,
        [PITCHED, UPRIGHT],
        ang_vel_b=[(0.0, 0.0, 2.0), (5.0, 5.0, 0.5)],
        commands=twist((0.0, 0.0, 0.5), (0.0, 0.0, 1.0)),
    )
    close(
        mdp.track_ang_vel_z_world_exp(env, "twist", std=0.5), [math.exp(-1.0), math.exp(-1.0)]
    )  # 2 cos 60 = 1


def test_upright_is_told_from_upside_down(make_env: MakeEnv) -> None:
    env = posed(make_env, [UPRIGHT, PITCHED, UPSIDE_DOWN])
    close(mdp.upright_exp(env, std=0.5), [1.0, math.exp(-4.0), math.exp(-16.0)])  # distances 0, 1 and 2
    close(mdp.tilt(env), [0.0, math.pi / 3, math.pi])


def test_the_tilt_of_named_bodies_counts_by_the_square_of_its_sine() -> None:
    layout = feet_layout()
    feed = FeetFeed(layout)
    cfg = SceneEntityCfg(site_names=FEET)
    term = {"tilt": RewardTermCfg(func=mdp.body_orientation_l2, weight=1.0, params={"asset_cfg": cfg})}
    with feet_env(1, feed=feed, layout=layout, rewards=term) as env:
        feed.place(0, [0.0], quat=PITCHED)
        feed.place(1, [0.0], quat=(0.5**0.5, 0.5**0.5, 0.0, 0.0))
        close(env.step(zeros(env)).reward, [0.75 + 1.0])


def test_the_height_of_the_base_counts_by_its_error(make_env: MakeEnv) -> None:
    env = posed(make_env, [UPRIGHT] * 2, position=[(9.0, 9.0, 0.5), (0.0, 0.0, 0.2)])
    close(mdp.base_height_l2(env, target_height=0.4), [0.01, 0.04])
    close(mdp.base_height_exp(env, target_height=0.4, std=0.1), [math.exp(-1.0), math.exp(-4.0)])


def test_ends_are_counted_by_the_terms_that_are_named(make_env: MakeEnv) -> None:
    low = TerminationTermCfg(func=mdp.root_height_below_minimum, params={"minimum_height": 0.5})
    high = TerminationTermCfg(func=mdp.root_height_above_maximum, params={"maximum_height": 2.0})
    tilted = TerminationTermCfg(func=mdp.bad_orientation, params={"limit_angle": 1.0})
    ends = {"low": low, "tilted": tilted, "high": high}
    named = {
        "term": RewardTermCfg(func=mdp.terminated_by, weight=1.0, params={"term_names": ("low", "tilted")})
    }
    poses = [(0.0, 0.0, 0.1), (0.0, 0.0, 0.1), (0.0, 0.0, 2.5), (0.0, 0.0, 2.0)]
    env = posed(
        make_env,
        [UPRIGHT, PITCHED, UPRIGHT, UPRIGHT],
        position=poses,
        terminations=ends,
        rewards=named,
        autoreset=False,
        scale_rewards_by_dt=False,
    )
    assert env.state.reward.tolist() == [1.0, 2.0, 0.0, 0.0]
    assert env.state.terminated.tolist() == [True, True, True, False]


# ---------------------------------------------------------------- terminations


def test_leaving_a_box_is_out_of_bounds_and_its_border_is_not(make_env: MakeEnv) -> None:
    places = [(1.0, -2.0, 0.0), (1.125, 0.0, 0.0), (0.0, -2.125, 0.0), (0.0, 0.0, 99.0), (0.0, 0.0, -0.5)]
    env = posed(make_env, [UPRIGHT] * 5, position=places)
    flat = mdp.out_of_bounds(env, x_range=(-1.0, 1.0), y_range=(-2.0, 2.0))
    assert flat.tolist() == [False, True, True, False, False]
    assert mdp.out_of_bounds(env, z_range=(0.0, 10.0)).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "x_range, y_range and z_range are all None; expected at least one"),
        ({"y_range": (1.0, -1.0)}, r"y_range is \(1.0, -1.0\), expected lowest <= highest"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(
    make_env: MakeEnv, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"terminations term 'out'.*{message}"):
        make_env(
            layout=layout_of(free_root=True),
            terminations={"out": TerminationTermCfg(func=mdp.out_of_bounds, params=params)},
        )


def test_joints_out_of_their_range_or_too_fast_end_the_episode(make_env: MakeEnv) -> None:
    feed = Feed()
    fast = TerminationTermCfg(func=mdp.joint_vel_out_of_limits, params={"max_velocity": {"hinge": 2.0}})
    env = make_env(
        3,
        feed=feed,
        layout=layout_of(limits={"robot/slider": (-1.0, 0.5)}),
        terminations={"fast": fast},
        autoreset=False,
    )
    feed.now["qpos"] = torch.tensor([[0.5, 99.0], [-1.125, 0.0], [0.75, 0.0]])
    feed.now["qvel"] = torch.tensor([[99.0, 2.0], [0.0, -2.5], [0.0, 0.0]])
    assert env.step(zeros(env)).terminated.tolist() == [False, True, False]
    assert mdp.joint_pos_out_of_limits(env).tolist() == [False, True, True]
    assert mdp.joint_pos_out_of_limits(env, tolerance=0.125).tolist() == [False, False, True]
    assert mdp.joint_pos_out_of_limits(env, tolerance=0.25).tolist() == [False] * 3
    hinge = SceneEntityCfg(joint_names=("hinge",))
    assert mdp.joint_pos_out_of_limits(env, asset_cfg=hinge).tolist() == [False] * 3


def test_a_state_that_is_not_finite_is_found_in_its_row(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, terminations={}, autoreset=False)
    feed.now["qpos"] = torch.tensor([[3e38, 3e38], [0.0, math.inf], [0.0, 0.0]])
    feed.now["qvel"] = torch.tensor([[0.0, 0.0], [0.0, 0.0], [math.nan, 0.0]])
    env.step(zeros(env))
    assert mdp.non_finite(env).tolist() == [False, True, True]


@pytest.mark.parametrize("substeps", [False, True])
def test_qa_062_an_illegal_contact_of_one_substep_ends_the_episode_where_substeps_are_kept(
    substeps: bool,
) -> None:
    layout = feet_layout(("found", "force"))
    feed = FeetFeed(layout)
    hit = TerminationTermCfg(func=mdp.illegal_contact, params={**CONTACTS, "threshold": 10.0})
    with feet_env(
        2,
        feed=feed,
        layout=layout,
        substeps=substeps,
        decimation=4,
        terminations={"hit": hit},
        autoreset=False,
    ) as env:
        nothing = torch.zeros(2, 4)
        for name in CONTACTS["sensor_names"]:
            feed.now[f"sensor:{name}"] = nothing
        assert env.step(zeros(env)).terminated.tolist() == [False, False]
        struck = nothing.clone()
        struck[1] = torch.tensor([1.0, 30.0, 0.0, -40.0])
        feed.by_substep[6] = {"sensor:right_contact": struck}
        assert env.step(zeros(env)).terminated.tolist() == [False, substeps]
        if substeps:
            env.reset(torch.tensor([1]))
        assert env.step(zeros(env)).terminated.tolist() == [False, False]


def test_contacts_count_by_number_and_by_what_exceeds_a_limit() -> None:
    layout = feet_layout(("found", "force"), num=2, reduce="maxforce")
    feed = FeetFeed(layout)
    terms = {
        "number": RewardTermCfg(
            func=mdp.undesired_contacts, weight=1.0, params={**CONTACTS, "threshold": 5.0}
        ),
        "excess": RewardTermCfg(func=mdp.contact_forces, weight=1.0, params={**CONTACTS, "limit": 8.0}),
    }
    with feet_env(3, feed=feed, layout=layout, rewards=terms) as env:
        feed.contact(0, found=[1, 1, 0], force=[(3.0, 4.0, 0.0), (6.0, 0.0, 8.0), (0.0, 0.0, 0.0)])
        feed.contact(1, found=[1, 1, 0], force=[(5.125, 0.0, 0.0), (0.0, -9.0, 0.0), (0.0, 0.0, 0.0)])
        env.step(zeros(env))
        assert env.reward_manager.term_values()["number"].tolist() == [1.0, 2.0, 0.0]
        assert env.reward_manager.term_values()["excess"].tolist() == [0.0, 3.0, 0.0]
