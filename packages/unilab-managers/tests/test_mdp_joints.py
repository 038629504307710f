"""Rewards and metrics of joints, actuators and actions, with numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, ids, layout_of, with_default, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, MetricsTermCfg, RewardTermCfg, mdp
from unilab_managers.mdp.commands import UniformVelocityCommandCfg

SLIDER = SceneEntityCfg(joint_names=("slider",), actuator_names=("slider",))
STATE: dict[str, Any] = {
    "qpos": torch.tensor([[0.5, -1.0], [0.0, 0.25]]),
    "qvel": torch.tensor([[2.0, -3.0], [0.5, 1.0]]),
    "qacc": torch.tensor([[1.0, 10.0], [-2.0, 0.0]]),
    "actuator_force": torch.tensor([[4.0, -5.0], [-6.0, 0.5]]),
}


def reward(func: Any, **params: Any) -> dict[str, RewardTermCfg]:
    return {"term": RewardTermCfg(func=func, weight=1.0, params=params)}


def paid(make_env: MakeEnv, func: Any, layout: Any = None, **params: Any) -> list[float]:
    feed = Feed()
    env = make_env(
        2,
        feed=feed,
        layout=with_default(layout or layout_of(), 0.5, 1.0),
        rewards=reward(func, **params),
        scale_rewards_by_dt=False,
    )
    feed.now.update(STATE)
    rewards: list[float] = env.step(zeros(env)).reward.tolist()
    return rewards


@pytest.mark.parametrize(
    ("func", "both", "slider"),
    [
        (mdp.joint_vel_l2, [13.0, 1.25], [4.0, 0.25]),
        (mdp.joint_acc_l2, [101.0, 4.0], [1.0, 4.0]),
        (mdp.joint_deviation_l1, [2.0, 1.25], [0.0, 0.5]),
        (mdp.joint_torques_l2, [41.0, 36.25], [16.0, 36.0]),
        (mdp.joint_power_l1, [23.0, 3.5], [8.0, 3.0]),
    ],
)
def test_sums_over_joints_or_those_asked_for(
    make_env: MakeEnv, func: Any, both: list[float], slider: list[float]
) -> None:
    assert paid(make_env, func) == pytest.approx(both)
    assert paid(make_env, func, asset_cfg=SLIDER) == pytest.approx(slider)


def test_a_gear_turns_the_force_of_an_actuator_into_that_on_its_joint(make_env: MakeEnv) -> None:
    layout = layout_of()
    geared = tuple(replace(a, gear=gear) for a, gear in zip(layout.actuators, (2.0, -1.0), strict=True))
    layout = replace(layout, actuators=geared)
    assert paid(make_env, mdp.joint_torques_l2, layout) == pytest.approx([64.0 + 25.0, 144.0 + 0.25])
    assert paid(make_env, mdp.joint_power_l1, layout) == pytest.approx([16.0 + 15.0, 6.0 + 0.5])


def test_power_goes_by_the_joint_that_an_actuator_drives_whatever_their_order(make_env: MakeEnv) -> None:
    layout = layout_of(actuated=["robot/hinge", "robot/slider"])
    assert paid(make_env, mdp.joint_power_l1, layout) == pytest.approx([12.0 + 10.0, 6.0 + 0.25])


def test_an_actuator_that_drives_no_joint_of_its_own_is_refused_unless_it_is_left_out(
    make_env: MakeEnv,
) -> None:
    layout = layout_of(free_root=True)
    thruster = replace(
        layout, actuators=(layout.actuators[0], replace(layout.actuators[1], joint="robot/root"))
    )
    motion = {"effort": mdp.JointEffortActionCfg(joint_names=("slider",))}
    with pytest.raises(
        ConfigError, match=r"actuator 'robot/hinge' drives no slide or hinge joint of 'robot'"
    ):
        make_env(layout=thruster, actions=motion, rewards=reward(mdp.joint_torques_l2))
    make_env(layout=thruster, actions=motion, rewards=reward(mdp.joint_torques_l2, asset_cfg=SLIDER))


def test_only_what_exceeds_a_joints_own_limit_of_speed_counts(make_env: MakeEnv) -> None:
    limits = {"slider": 1.5, "hin.*": 2.0}
    assert paid(make_env, mdp.joint_vel_limits, max_velocity=limits) == pytest.approx([0.5 + 1.0, 0.0])
    assert paid(make_env, mdp.joint_vel_limits, max_velocity={"hinge": 2.5}) == pytest.approx([0.5, 0.0])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"hing": 1.0}, "max_velocity: 'hing' matches nothing; did you mean 'hinge'"),
        ({"hinge": 0.0}, r"max_velocity\['hinge'\] is 0.0, expected a number > 0"),
        ({"hinge": 1.0, ".*": 2.0}, "'hinge' is matched by two"),
    ],
)
def test_wrong_limits_of_speed_are_refused(make_env: MakeEnv, limits: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=f"rewards term 'term'.*{message}"):
        make_env(rewards=reward(mdp.joint_vel_limits, max_velocity=limits))


def test_a_robot_that_is_to_stand_shall_stay_in_its_posture(make_env: MakeEnv) -> None:
    still = (0.0, 0.0)
    twist = UniformVelocityCommandCfg(
        lin_vel_x=still,
        lin_vel_y=still,
        ang_vel_z=still,
        resampling_time_range=(9.0, 9.0),
        fixed=((0.0, 0.04, 0.0), (0.04, 0.0, 0.04)),  # shorter than 0.05, and longer
    )
    feed = Feed()
    layout = with_default(layout_of(free_root=True), *[0.0] * 3, 1.0, *[0.0] * 3, 0.5, 1.0)
    env = make_env(
        2,
        feed=feed,
        layout=layout,
        commands={"twist": twist},
        rewards=reward(mdp.stand_still_l1, command_name="twist"),
        scale_rewards_by_dt=False,
    )
    feed.now["qpos"] = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, -1.0]] * 2)
    assert env.step(zeros(env)).reward.tolist() == pytest.approx([2.5, 0.0])


# ---------------------------------------------------------------- actions


def act(env: ManagerBasedRlEnv, *rows: tuple[float, float]) -> list[float]:
    rewards: list[float] = env.step(torch.tensor(rows)).reward.tolist()
    return rewards


def test_the_size_of_an_action_counts_by_its_square(make_env: MakeEnv) -> None:
    env = make_env(2, rewards=reward(mdp.action_l2), scale_rewards_by_dt=False)
    assert act(env, (1.0, -2.0), (0.5, 0.0)) == [5.0, 0.25]


def test_the_second_difference_of_actions_counts_from_zeros_before_the_episode(make_env: MakeEnv) -> None:
    metric = {"acc": MetricsTermCfg(func=mdp.action_acc, reduce="last")}
    env = make_env(2, rewards=reward(mdp.action_acc_l2), metrics=metric, scale_rewards_by_dt=False)
    assert act(env, (1.0, 0.0), (0.0, 2.0)) == [1.0, 4.0]
    assert act(env, (3.0, 0.0), (0.0, 2.0)) == [1.0, 4.0]  # 3 - 2 x 1, 2 - 2 x 2
    assert act(env, (5.0, 4.0), (0.0, 2.0)) == [16.0, 0.0]  # 5 - 2 x 3 + 1 and 4; at rest since two steps
    assert env.metrics_manager._values.flatten().tolist() == [4.0, 0.0]
    env.reset(ids(1))
    assert env.trackers.share(mdp.ActionHistory).second_last.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert act(env, (5.0, 4.0), (0.0, 2.0)) == [4.0 + 16.0, 4.0]  # 5 - 2 x 5 + 3, 4 - 2 x 4; anew
    assert act(env, (5.0, 4.0), (0.0, 2.0)) == [0.0, 4.0]


# ---------------------------------------------------------------- metrics


def test_metrics_of_actuators_and_posture(make_env: MakeEnv) -> None:
    feed = Feed()
    terms = {"torque": mdp.joint_torque, "power": mdp.mechanical_power}
    env = make_env(2, feed=feed, metrics={n: MetricsTermCfg(func=f, reduce="last") for n, f in terms.items()})
    feed.now.update(STATE)
    env.step(zeros(env))
    torch.testing.assert_close(
        env.metrics_manager._values, torch.tensor([[4.5, 8.0 + 15.0], [3.25, -3.0 + 0.5]])
    )
