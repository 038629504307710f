"""Joint actions: which joints they drive, and what the control is of each kind."""

from typing import Any

import mujoco
import pytest
import torch
from action_support import driven_layout, rename_actuators, step
from manager_support import Feed, MakeEnv, group, mujoco_cfg

from unilab_core import ConfigError
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, mdp
from unilab_managers.managers.action_manager import ActionTermCfg
from unisim import EntityCfg, ModelLayout, SceneCfg, SimCfg

Position, Relative = mdp.JointPositionActionCfg, mdp.JointRelativePositionActionCfg
Velocity, Effort = mdp.JointVelocityActionCfg, mdp.JointEffortActionCfg
ABC = ("a", "b", "c")
INF = float("inf")


def first_control(
    make_env: MakeEnv, cfg: ActionTermCfg, row: list[float], layout: ModelLayout
) -> list[float]:
    """Returns the control of one row's first action."""
    return step(make_env(1, layout=layout, actions={"term": cfg}), row)[0]


# ---------------------------------------------------------------- joint position


def test_a_position_action_of_zero_holds_the_default_pose(make_env: MakeEnv) -> None:
    layout = driven_layout(*ABC, default=(0.5, -1.0, 2.0))
    assert first_control(make_env, Position(scale=0.5), [0.0, 0.0, 0.0], layout) == [0.5, -1.0, 2.0]
    assert first_control(make_env, Position(scale=0.5), [1.0, 2.0, -4.0], layout) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("default", [0.5, -1.0, 2.0]),
        (0.25, [0.25, 0.25, 0.25]),
        (0, [0.0, 0.0, 0.0]),
        ({"[ab]": 0.125}, [0.125, 0.125, 2.0]),
        ({"c": 1}, [0.5, -1.0, 1.0]),
    ],
)
def test_the_offset_of_a_position_action_is_the_default_pose_unless_told(
    make_env: MakeEnv, offset: Any, expected: list[float]
) -> None:
    layout = driven_layout(*ABC, default=(0.5, -1.0, 2.0))
    assert first_control(make_env, Position(offset=offset), [0.0, 0.0, 0.0], layout) == expected


def test_position_is_scaled_then_offset_then_clipped(make_env: MakeEnv) -> None:
    layout = driven_layout("a", default=(0.5,))
    for action, target in ((0.25, 1.0), (1.0, 1.25), (-1.0, -0.75), (-0.5, -0.5)):
        # 2 x action + 0.5 within (-0.75, 1.25)
        got = first_control(make_env, Position(scale=2.0, clip=(-0.75, 1.25)), [action], layout)
        assert got == [target], action


def test_a_clip_by_joint_leaves_the_others_their_actuators_range(make_env: MakeEnv) -> None:
    layout = driven_layout(*ABC, ranges={"a": (-2.0, 2.0)})
    cfg = Position(offset=0.0, clip={"b": (-0.5, 0.25)})
    assert first_control(make_env, cfg, [9.0, 9.0, 9.0], layout) == [2.0, 0.25, 9.0]
    assert first_control(make_env, cfg, [-9.0, -9.0, -9.0], layout) == [-2.0, -0.5, -9.0]


@pytest.mark.parametrize(("preserve_order", "expected"), [(True, [2.0, 3.0, 1.0]), (False, [1.0, 2.0, 3.0])])
def test_qa_040_names_that_cover_all_joints_still_say_the_order(
    make_env: MakeEnv, preserve_order: bool, expected: list[float]
) -> None:
    cfg = Position(joint_names=("c", "a", "b"), preserve_order=preserve_order)
    assert first_control(make_env, cfg, [1.0, 2.0, 3.0], driven_layout(*ABC)) == expected


def test_qa_040_default_offsets_and_settings_by_joint_follow_the_order_of_the_columns(
    make_env: MakeEnv,
) -> None:
    cfg = Position(
        joint_names=("c", "a", "b"), preserve_order=True, scale={"c": 10.0}, clip={"a": (0.0, 1.5)}
    )
    layout = driven_layout(*ABC, default=(0.25, 0.5, 0.75))
    # c = 10 x 1 + 0.75, a = 2 + 0.25 clipped at 1.5, b = 3 + 0.5
    assert first_control(make_env, cfg, [1.0, 2.0, 3.0], layout) == [1.5, 3.5, 10.75]


def test_columns_come_in_the_order_of_the_models_joints_whatever_that_of_its_actuators(
    make_env: MakeEnv,
) -> None:
    layout = driven_layout(*ABC, actuated=["robot/c", "robot/a", "robot/b"])
    env = make_env(1, layout=layout, actions={"term": Position()})
    assert env.action_manager.labels == ("term:a", "term:b", "term:c")
    assert step(env, [1.0, 2.0, 3.0]) == [[3.0, 1.0, 2.0]]


def test_an_actuator_is_addressed_by_the_joint_that_it_drives(make_env: MakeEnv) -> None:
    layout = rename_actuators(driven_layout(*ABC), "motor_1", "motor_2", "motor_3")
    env = make_env(1, layout=layout, actions={"term": Position(joint_names=("c", "b"), scale={"c": 2.0})})
    assert env.action_manager.labels == ("term:b", "term:c")
    assert step(env, [1.0, 1.0]) == [[0.0, 1.0, 2.0]]


def test_a_joint_with_two_actuators_is_refused(make_env: MakeEnv) -> None:
    layout = driven_layout("a", "b", actuated=["robot/a", "robot/b", "robot/a"])
    layout = rename_actuators(layout, "a", "b", "brake")
    message = (
        r"actions term 'term': joint 'a' has the actuators \('a', 'brake'\); an action drives a joint by one"
    )
    with pytest.raises(ConfigError, match=message):
        make_env(1, layout=layout, actions={"term": Position()})
    assert first_control(make_env, Position(joint_names=("b",)), [3.0], layout) == [0.0, 3.0, 0.0]


def test_a_joint_without_an_actuator_has_no_column(make_env: MakeEnv) -> None:
    layout = driven_layout(*ABC, actuated=["robot/a", "robot/c"])
    assert make_env(1, layout=layout, actions={"term": Position()}).action_manager.labels == (
        "term:a",
        "term:c",
    )
    with pytest.raises(ConfigError, match="joint_names, of joints with an actuator: 'b' matches nothing"):
        make_env(1, layout=layout, actions={"term": Position(joint_names=("b",))})


# ---------------------------------------------------------------- the other kinds


def test_a_relative_action_starts_from_where_the_joint_is(make_env: MakeEnv) -> None:
    feed = Feed()
    layout = driven_layout(*ABC)
    cfg = Relative(joint_names=("c", "a"), preserve_order=True, scale={"a": 0.5}, clip={"c": (-1.0, 1.0)})
    env = make_env(2, feed=feed, layout=layout, actions={"term": cfg})
    feed.now = {"qpos": torch.tensor([[0.25, 7.0, 0.5], [-0.25, 7.0, -0.5]])}
    assert step(env, [0.0, 0.0], [0.0, 0.0]) == [[0.0, 0.0, 0.0]] * 2
    # a = position + 0.5 x action, c = position + action within +-1
    assert step(env, [0.25, 1.0], [-0.75, 1.0]) == [[0.75, 0.0, 0.75], [0.25, 0.0, -1.0]]


def test_velocity_and_effort_are_scaled_offset_and_clipped(make_env: MakeEnv) -> None:
    settings: dict[str, Any] = {"scale": {"a": 2.0}, "offset": {"b": -0.5}, "clip": (-1.0, 3.0)}
    for kind in (Velocity, Effort):
        layout = driven_layout("a", "b", default=(5.0, 5.0))  # of no concern to them
        assert first_control(make_env, kind(**settings), [1.0, 1.0], layout) == [2.0, 0.5]
        assert first_control(make_env, kind(**settings), [2.0, -1.0], layout) == [3.0, -1.0]


def test_kinds_stand_side_by_side_in_the_order_of_declaration(make_env: MakeEnv) -> None:
    terms = {
        "wheel": Velocity(joint_names=("c",), scale=4.0),
        "arm": Position(joint_names=("a",)),
        "push": Effort(joint_names=("d",), offset=0.5),
    }
    layout = driven_layout(*ABC, "d", default=(0.25, 0.0, 0.0, 0.0))
    env = make_env(1, layout=layout, actions=terms)
    assert env.action_manager.labels == ("wheel:c", "arm:a", "push:d")
    assert step(env, [1.0, 2.0, 3.0]) == [[2.25, 0.0, 4.0, 3.5]]


# ---------------------------------------------------------------- bounds


def test_the_bounds_of_each_kind_are_the_raw_actions_that_reach_its_clip(make_env: MakeEnv) -> None:
    terms = {
        "position": Position(joint_names=("a",), scale=0.5, clip=(-1.0, 2.0)),
        "turned": Velocity(joint_names=("b",), scale=-2.0, offset=0.5, clip=(-0.5, 1.5)),
        "free": Position(joint_names=("c",)),
        "relative": Relative(joint_names=("d",), clip=(-1.0, 1.0)),
        "half": Effort(joint_names=("e",), scale=-0.5),
    }
    layout = driven_layout(*ABC, "d", "e", default=(1.0, 0.0, 0.0, 0.0, 0.0), ranges={"e": (-1.0, INF)})
    low, high = make_env(1, layout=layout, actions=terms).action_bounds
    # position: (-1 - 1) / 0.5, (2 - 1) / 0.5; turned: (1.5 - 0.5) / -2, (-0.5 - 0.5) / -2
    assert low.tolist() == [-4.0, -0.5, -INF, -INF, -INF]
    assert high.tolist() == [2.0, 0.5, INF, INF, 2.0]


def test_qa_104_an_unlimited_actuator_is_not_clamped(make_env: MakeEnv) -> None:
    env = make_env(1, layout=driven_layout("a", "b"), actions={"term": Position()})
    assert step(env, [3.0, -1e6]) == [[3.0, -1e6]]
    assert [bound.tolist() for bound in env.action_bounds] == [[-INF, -INF], [INF, INF]]


def build_servo() -> Any:
    """Returns a new `mujoco.MjSpec`: an unlimited hinge that a position actuator of 20 Nm/rad drives."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    arm = spec.worldbody.add_body(name="arm")
    arm.add_joint(
        name="hinge", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], armature=0.02, damping=[1, 0, 0]
    )
    arm.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0, 0, 0, 0, 0, 0.5], size=[0.02, 0, 0], mass=0.1,
        contype=0, conaffinity=0,
    )  # fmt: skip
    servo = spec.add_actuator(name="servo", target="hinge", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    servo.set_to_position(kp=20.0)
    return spec


def servo_env(**cfg: Any) -> ManagerBasedRlEnv:
    robot = EntityCfg(spec=build_servo, joint_pos={"hinge": 0.5})
    fields: dict[str, Any] = {
        "scene": SceneCfg(entities={"robot": robot}),
        "sim": SimCfg(timestep=0.01, num_threads=1, gravity=(0.0, 0.0, 0.0)),
        "observations": {"obs": group(position=ObservationTermCfg(func=mdp.joint_pos))},
        "events": {},
        "terminations": {},
        "num_envs": 2,
    }
    return ManagerBasedRlEnv(mujoco_cfg(**(fields | cfg)))


def test_qa_104_the_target_of_an_unlimited_joint_is_reached() -> None:
    with servo_env(actions={"servo": Position(scale=2.5)}) as env:
        env.reset()
        for _ in range(200):
            env.step(torch.tensor([[1.0], [0.0]]))
        # 2.5 x 1 + 0.5 = 3 rad, and the default pose. Damping 1 over 20 Nm/rad settles within 4 s.
        assert env.scene["robot"].data.joint_pos[:, 0].tolist() == pytest.approx([3.0, 0.5], abs=1e-3)


def test_a_relative_action_of_zero_lets_a_servo_stay_where_it_is() -> None:
    with servo_env(actions={"servo": Relative(scale=0.1)}) as env:
        env.reset()
        for _ in range(20):
            env.step(torch.tensor([[0.0], [1.0]]))
        still, moved = env.scene["robot"].data.joint_pos[:, 0].tolist()
        assert still == pytest.approx(0.5, abs=1e-6)
        # 20 steps of 0.02 s after a target 0.1 ahead: damping 1 and 20 Nm/rad move it by about 2 rad/s.
        assert 0.5 + 0.3 < moved < 0.5 + 0.8
