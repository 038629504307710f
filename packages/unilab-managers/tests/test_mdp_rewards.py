"""Reward terms against numbers worked out by hand."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, flag, layout_of, mujoco_cfg, with_default, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg
from unilab_managers.mdp import rewards as terms

HALF, ROOT = 0.5, 0.75**0.5
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
TURNED = (0.5**0.5, 0.0, 0.0, 0.5**0.5)
"""Yaw +90 deg: what is forward for the body is the world's y."""
PITCHED = (ROOT, 0.0, HALF, 0.0)
"""Pitch +60 deg."""


def posed(
    make_env: MakeEnv,
    quats: Sequence[Sequence[float]],
    lin_vel_w: Sequence[Sequence[float]],
    ang_vel_b: Sequence[Sequence[float]],
    **cfg: Any,
) -> ManagerBasedRlEnv:
    feed = Feed()
    env = make_env(len(quats), feed=feed, layout=layout_of(free_root=True), **cfg)
    feed.now["qpos"] = torch.tensor([[0.0, 0.0, 1.0, *q, 0.0, 0.0] for q in quats])
    feed.now["qvel"] = torch.tensor([[*v, *w, 0.0, 0.0] for v, w in zip(lin_vel_w, ang_vel_b, strict=True)])
    env.step(zeros(env))
    return env


def commanded(
    env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch, rows: Sequence[Sequence[float]]
) -> None:
    commands = {"twist": torch.tensor(rows)}
    monkeypatch.setattr(
        env, "command_manager", SimpleNamespace(get_command=commands.__getitem__), raising=False
    )


def close(value: torch.Tensor, rows: Sequence[float]) -> None:
    assert value.dtype == torch.float32
    assert value.tolist() == pytest.approx(list(rows), abs=1e-6)


STILL = (0.0, 0.0, 0.0)


def test_tracking_compares_the_commands_with_the_velocity_in_the_bodys_own_frame(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each body moves along the world's y: forward for the turned one, to the left for the other.
    env = posed(make_env, [TURNED, UPRIGHT], [(0.0, 1.0, 5.0)] * 2, [STILL] * 2)
    commanded(env, monkeypatch, [(1.0, 0.0, 9.0)] * 2)
    close(terms.track_lin_vel_xy_exp(env, "twist", std=0.5), [1.0, math.exp(-2.0 / 0.25)])
    close(terms.track_lin_vel_xy_exp(env, "twist", std=2.0), [1.0, math.exp(-2.0 / 4.0)])


def test_turning_is_compared_about_the_bodys_own_z(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = posed(make_env, [UPRIGHT, PITCHED], [STILL] * 2, [(3.0, 4.0, 0.75), (0.0, 0.0, -0.25)])
    commanded(env, monkeypatch, [(9.0, 9.0, 0.25)] * 2)
    close(terms.track_ang_vel_z_exp(env, "twist", std=0.5), [math.exp(-1.0), math.exp(-1.0)])
    close(terms.track_ang_vel_z_exp(env, "twist", std=1.0), [math.exp(-0.25), math.exp(-0.25)])


def test_a_tilt_counts_by_the_square_of_its_sine_and_a_heading_not_at_all(make_env: MakeEnv) -> None:
    env = posed(make_env, [TURNED, PITCHED, (HALF, HALF, HALF, HALF)], [STILL] * 3, [STILL] * 3)
    close(terms.flat_orientation_l2(env), [0.0, 0.75, 1.0])


def test_vertical_speed_is_that_along_the_bodys_z(make_env: MakeEnv) -> None:
    env = posed(make_env, [UPRIGHT, PITCHED], [(7.0, 7.0, -2.0), (0.0, 0.0, 2.0)], [STILL] * 2)
    close(terms.lin_vel_z_l2(env), [4.0, 1.0])  # pitched by 60 deg: 2 x cos 60 deg


def test_roll_and_pitch_rates_count_by_their_squares(make_env: MakeEnv) -> None:
    env = posed(make_env, [UPRIGHT, PITCHED], [STILL] * 2, [(1.0, -2.0, 9.0), (0.0, 0.5, 1.0)])
    close(terms.ang_vel_xy_l2(env), [5.0, 0.25])


def test_qa_042_the_action_rate_counts_from_zero_in_the_first_step_of_an_episode(make_env: MakeEnv) -> None:
    env = make_env(2)
    env.step(torch.tensor([[1.0, 2.0], [0.5, 0.0]]))
    close(terms.action_rate_l2(env), [5.0, 0.25])
    env.step(torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
    close(terms.action_rate_l2(env), [4.0, 0.0])
    env.reset(torch.tensor([1]))
    env.step(torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
    close(terms.action_rate_l2(env), [0.0, 0.25])


def test_a_row_that_terminates_is_not_alive_and_one_that_is_cut_is(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        3,
        feed=feed,
        autoreset=False,
        rewards={
            "alive": RewardTermCfg(func=terms.is_alive, weight=1.0),
            "dead": RewardTermCfg(func=terms.is_terminated, weight=10.0),
        },
        terminations={
            "fell": TerminationTermCfg(func=flag, params={"index": 0}),
            "cut": TerminationTermCfg(func=flag, params={"index": 1}, time_out=True),
        },
        scale_rewards_by_dt=False,
    )
    feed.probe([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)])
    state = env.step(zeros(env))
    assert state.truncated.tolist() == [False, True, False]
    assert state.reward.tolist() == [10.0, 1.0, 1.0]


# ---------------------------------------------------------------- joints


def limits_env(make_env: MakeEnv, qpos: Sequence[Sequence[float]], **params: Any) -> torch.Tensor:
    feed = Feed()
    layout = layout_of("slider", "hinge", limits={"robot/slider": (-1.0, 3.0)})
    term = RewardTermCfg(func=terms.joint_pos_limits, weight=1.0, params=params)
    env = make_env(len(qpos), feed=feed, layout=layout, rewards={"limits": term}, scale_rewards_by_dt=False)
    feed.now["qpos"] = torch.tensor(qpos)
    return env.step(zeros(env)).reward


def test_the_excess_over_the_soft_limits_is_summed_over_joints(make_env: MakeEnv) -> None:
    # The range -1 to 3 has its middle at 1; half of it is 0 to 2.
    rows = [(2.5, 0.0), (-0.75, 0.0), (1.0, 0.0), (0.0, 0.0), (4.0, 0.0)]
    close(limits_env(make_env, rows, soft_factor=0.5), [0.5, 0.75, 0.0, 0.0, 2.0])
    close(limits_env(make_env, rows, soft_factor=1.0), [0.0, 0.0, 0.0, 0.0, 1.0])


def test_qa_104_an_unlimited_joint_never_leaves_its_limits(make_env: MakeEnv) -> None:
    rows = [(0.5, 1e6), (0.5, -1e6)]
    for factor in (0.5, 0.95, 1.0):
        close(limits_env(make_env, rows, soft_factor=factor), [0.0, 0.0])


def test_qa_104_nor_does_an_unlimited_joint_of_the_engine() -> None:
    term = RewardTermCfg(func=terms.joint_pos_limits, weight=1.0, params={"soft_factor": 0.9})
    with ManagerBasedRlEnv(mujoco_cfg(rewards={"limits": term}, events={})) as env:
        env.reset()
        assert env.step(zeros(env)).reward.tolist() == [0.0] * 4  # the hinge starts at 2 rad


def test_only_the_joints_asked_for_are_limited(make_env: MakeEnv) -> None:
    hinge = SceneEntityCfg(joint_names=("hinge",))
    close(limits_env(make_env, [(99.0, 0.0)], soft_factor=0.5, asset_cfg=hinge), [0.0])


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.5])
def test_a_soft_factor_that_is_no_part_of_the_range_is_refused(make_env: MakeEnv, factor: float) -> None:
    with pytest.raises(ConfigError, match=f"rewards term 'limits'.*soft_factor is {factor}"):
        limits_env(make_env, [(0.0, 0.0)], soft_factor=factor)


def posture_env(make_env: MakeEnv, qpos: Sequence[Sequence[float]], weights: Any) -> torch.Tensor:
    feed = Feed()
    layout = with_default(layout_of("left_hip", "left_knee", "right_hip"), 0.5, -1.0, 0.0)
    term = RewardTermCfg(func=terms.joint_posture_exp, weight=1.0, params={"weights": weights})
    env = make_env(len(qpos), feed=feed, layout=layout, rewards={"pose": term}, scale_rewards_by_dt=False)
    feed.now["qpos"] = torch.tensor(qpos)
    return env.step(zeros(env)).reward


def test_the_posture_is_worth_less_the_farther_weighted_joints_are_from_home(make_env: MakeEnv) -> None:
    rows = [(0.5, -1.0, 0.0), (1.5, -1.0, 0.0), (0.5, 1.0, 0.0), (0.0, -0.5, 9.0)]
    worth = posture_env(make_env, rows, {"left_hip": 1.0, ".*_knee": 0.25})
    close(worth, [1.0, math.exp(-1.0), math.exp(-1.0), math.exp(-0.25 - 0.0625)])


def test_a_posture_weight_must_name_a_joint_once_and_be_positive(make_env: MakeEnv) -> None:
    for weights, message in (
        ({"left_kne": 1.0}, "'left_kne' matches nothing"),
        ({"left_.*": 1.0, ".*_knee": 0.5}, "'left_knee' is matched by two"),
        ({".*_hip": -1.0}, r"weights\['\.\*_hip'\] is -1.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            posture_env(make_env, [(0.0, 0.0, 0.0)], weights)
