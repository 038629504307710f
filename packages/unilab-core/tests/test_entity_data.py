"""State of an entity on MuJoCo: frames, staged values, and the rules of writing."""

from __future__ import annotations

import math

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, steps, zeros

from unilab_core import ConfigError, ResetRejectedError, SceneEntityCfg
from unisim.testing import make_layout

HALF = math.sqrt(0.5)
YAW_90 = [HALF, 0.0, 0.0, HALF]
HERE = [0.0, 0.0, 1.0]


def close(values, expected, atol=1e-6):
    torch.testing.assert_close(values, torch.tensor(expected), atol=atol, rtol=0)


def robot(stage, **options):
    """One row of the robot after a reset that `stage(data, ids)` staged."""
    env = RobotEnv(1, stage=lambda env, ids: stage(env.scene["robot"].data, ids), **options)
    env.reset()
    return env


def write(
    data, ids, pose=(*HERE, *YAW_90), linear=(0.0, 0.0, 0.0), angular=(0.0, 0.0, 0.0), velocity_first=False
):
    k = ids.numel()
    calls = [
        lambda: data.write_root_pose(torch.tensor([pose] * k), ids),
        lambda: data.write_root_velocity(torch.tensor([linear] * k), torch.tensor([angular] * k), ids),
    ]
    for call in reversed(calls) if velocity_first else calls:
        call()


def test_qa_048_a_world_angular_velocity_is_kept_in_the_body_frame_of_the_new_pose():
    with robot(lambda data, ids: write(data, ids, angular=(0.0, 1.0, 0.0))) as env:
        data = env.scene["robot"].data
        close(env.backend.get_state_views()["qvel"][0, 3:6], [1.0, 0.0, 0.0])
        close(data.root_ang_vel_w, [[0.0, 1.0, 0.0]])
        close(data.root_ang_vel_b, [[1.0, 0.0, 0.0]])


def test_qa_048_a_world_linear_velocity_turns_into_the_body_frame():
    with robot(lambda data, ids: write(data, ids, linear=(1.0, 0.0, 0.0))) as env:
        data = env.scene["robot"].data
        close(env.backend.get_state_views()["qvel"][0, 0:3], [1.0, 0.0, 0.0])
        close(data.root_lin_vel_w, [[1.0, 0.0, 0.0]])
        close(data.root_lin_vel_b, [[0.0, -1.0, 0.0]])


def test_qa_048_the_rotation_is_that_of_the_new_pose_whichever_is_written_first():
    with robot(lambda data, ids: write(data, ids, angular=(0.0, 1.0, 0.0), velocity_first=True)) as env:
        close(env.scene["robot"].data.root_ang_vel_w, [[0.0, 1.0, 0.0]])
        close(env.scene["robot"].data.root_ang_vel_b, [[1.0, 0.0, 0.0]])


@pytest.mark.parametrize("seed", range(5))
def test_qa_048_writing_what_was_read_changes_nothing(seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(4, generator=generator)
    pose = (0.1, -0.2, 1.3, *(q / q.norm()).tolist())
    linear = tuple(torch.randn(3, generator=generator).tolist())
    angular = tuple(torch.randn(3, generator=generator).tolist())
    with robot(lambda data, ids: write(data, ids, pose, linear, angular)) as env:
        data = env.scene["robot"].data
        before = {name: values.clone() for name, values in env.backend.get_state_views().items()}
        read = data.root_pos_w[0].tolist() + data.root_quat_w[0].tolist()
        velocities = tuple(data.root_lin_vel_w[0].tolist()), tuple(data.root_ang_vel_w[0].tolist())
        env.stage = lambda env, ids: write(data, ids, tuple(read), *velocities)
        env.reset()
        after = env.backend.get_state_views()
    torch.testing.assert_close(after["qpos"], before["qpos"], atol=1e-6, rtol=0)
    torch.testing.assert_close(after["qvel"], before["qvel"], atol=1e-6, rtol=0)


def test_a_body_read_of_the_root_agrees_with_its_state_in_every_step():
    # QA-025 asks that both sources agree to 1e-5.
    base = SceneEntityCfg(body_names=("base",))

    def look(env):
        return env.scene["robot"].data.bodies(base).lin_vel_w

    start = lambda data, ids: write(data, ids, linear=(1.0, 2.0, 0.0), angular=(0.5, -1.0, 2.0))  # noqa: E731
    with RobotEnv(
        1, stage=lambda env, ids: start(env.scene["robot"].data, ids), look=look, gravity=-9.81
    ) as env:
        env.reset()
        data = env.scene["robot"].data
        for _ in range(30):
            env.step(torch.full((1, 2), 0.3))
            handle = data.bodies(base)
            torch.testing.assert_close(handle.lin_vel_w[:, 0], data.root_lin_vel_w, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(handle.ang_vel_w[:, 0], data.root_ang_vel_w, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(handle.pos_w[:, 0], data.root_pos_w, atol=1e-6, rtol=0)
            torch.testing.assert_close(handle.quat_w[:, 0], data.root_quat_w, atol=1e-6, rtol=0)


def test_gravity_and_heading_of_a_turned_body():
    # Rolled by 90 degrees about x the world's down is the body's -y; its heading is still zero.
    with robot(lambda data, ids: write(data, ids, pose=(*HERE, HALF, HALF, 0.0, 0.0))) as env:
        close(env.scene["robot"].data.projected_gravity_b, [[0.0, -1.0, 0.0]])
        close(env.scene["robot"].data.heading_w, [0.0])
    with robot(lambda data, ids: write(data, ids)) as env:
        close(env.scene["robot"].data.projected_gravity_b, [[0.0, 0.0, -1.0]])
        close(env.scene["robot"].data.heading_w, [math.pi / 2])


def test_handles_give_bodies_in_the_order_asked_for():
    cfg = SceneEntityCfg(body_names=("foot", "leg"), preserve_order=True)
    with RobotEnv(2, look=lambda env: env.scene["robot"].data.bodies(cfg).pos_w) as env:
        env.reset()
        positions = env.scene["robot"].data.bodies(cfg).pos_w
        assert positions.shape == (2, 2, 3)
        close(positions[0], [[0.0, 0.0, 0.6], [0.0, 0.0, 0.9]])


def test_a_reset_refreshes_body_reads_of_its_rows_only():
    cfg = SceneEntityCfg(body_names=("foot",))
    with RobotEnv(2, look=lambda env: env.scene["robot"].data.bodies(cfg).pos_w) as env:
        env.reset()
        steps(env, 3)
        handle = env.scene["robot"].data.bodies(cfg)
        before = handle.pos_w.clone()
        env.stage = lambda env, ids: write(
            env.scene["robot"].data, ids, pose=(0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0)
        )
        env.reset(torch.tensor([1]))
        close(handle.pos_w[1], [[0.0, 0.0, 4.6]])
        assert torch.equal(handle.pos_w[0], before[0])


def test_joint_state_and_defaults():
    with robot(
        lambda data, ids: data.write_joint_state(torch.tensor([[0.1, 0.2]]), torch.tensor([[0.3, 0.4]]), ids)
    ) as env:
        data = env.scene["robot"].data
        close(data.joint_pos, [[0.1, 0.2]])
        close(data.joint_vel, [[0.3, 0.4]])
        close(data.default_joint_pos, [[0.0, 0.0]])
        close(data.default_joint_vel, [[0.0, 0.0]])
        assert data.joint_pos_limits.tolist() == [[[-math.inf, math.inf]] * 2]


def test_limits_are_those_of_the_model():
    layout = make_layout(limits={"robot/hinge": (-1.0, 2.0)})
    with ScriptedEnv(2, layout=layout) as env:
        limits = env.scene["robot"].data.joint_pos_limits
    assert limits.tolist() == [[[-math.inf, math.inf], [-1.0, 2.0]]] * 2


# ---------------------------------------------------------------- staging


def staged(event, num_envs=3, **options):
    env = ScriptedEnv(num_envs, **options)
    env.reset()
    steps(env, 1)
    env.inject["_stage_reset"] = lambda ids: event(env.scene["robot"].data, ids)
    return env


ONE = torch.ones(1, 2)


def test_inside_staging_the_selected_rows_show_their_staged_values_and_others_the_present():
    seen = {}

    def event(data, ids):
        seen["default"] = data.joint_pos.clone()
        data.write_joint_state(5.0 * ONE, 6.0 * ONE, ids)
        seen["staged"] = torch.cat([data.joint_pos, data.joint_vel], dim=1)

    with staged(event) as env:
        env.step(torch.ones(3, 1))
        present = env.scene["robot"].data.joint_pos.clone()
        env.reset(torch.tensor([1]))
        assert seen["default"][1].tolist() == [0.0, 0.0]
        assert torch.equal(seen["default"][[0, 2]], present[[0, 2]])
        assert seen["staged"][1].tolist() == [5.0, 5.0, 6.0, 6.0]
        assert env.scene["robot"].data.joint_pos[1].tolist() == [5.0, 5.0]


def test_an_episode_that_ends_is_seen_before_staging_and_until_the_commit():
    seen = []
    with staged(lambda data, ids: data.write_joint_state(5.0 * ONE, ONE, ids)) as env:
        data = env.scene["robot"].data
        env.step(torch.ones(3, 1))
        finished = data.joint_pos[1].tolist()
        env.inject["_on_episodes_end"] = lambda ids: seen.append(data.joint_pos[1].tolist())
        env.inject["_before_commit"] = lambda ids: seen.append(data.joint_pos[1].tolist())
        env.inject["_after_commit"] = lambda ids: seen.append(data.joint_pos[1].tolist())
        env.reset(torch.tensor([1]))
    assert seen == [finished, finished, [5.0, 5.0]]


@pytest.mark.parametrize("rows", [[0], [2], [0, 1], [0, 1, 2]])
def test_a_write_outside_the_selected_rows_is_refused(rows):
    k = len(rows)
    env = staged(
        lambda data, ids: data.write_joint_state(torch.ones(k, 2), torch.ones(k, 2), torch.tensor(rows))
    )
    before = env.backend.get_state_views()
    with pytest.raises(
        ValueError, match="wrote rows that are not being reset; write only the env_ids it was given"
    ):
        env.reset(torch.tensor([1]))
    for name, values in env.backend.get_state_views().items():
        assert torch.equal(values, before[name])
    env.close()


def test_a_write_to_some_of_the_selected_rows_leaves_the_others_at_their_default():
    with staged(lambda data, ids: data.write_joint_state(5.0 * ONE, ONE, ids[1:])) as env:
        env.reset(torch.tensor([0, 2]))
        assert env.scene["robot"].data.joint_pos[[0, 2]].tolist() == [[0.0, 0.0], [5.0, 5.0]]


def test_of_two_writes_the_later_one_holds():
    def event(data, ids):
        data.write_joint_state(5.0 * ONE, ONE, ids)
        data.write_joint_state(7.0 * ONE[:, :1], ONE[:, :1], ids, slice(1, 2))

    with staged(event) as env:
        env.reset(torch.tensor([1]))
        assert env.scene["robot"].data.joint_pos[1].tolist() == [5.0, 7.0]


@pytest.mark.parametrize(
    ("call", "write"),
    [
        ("write_joint_state", lambda data, ids: data.write_joint_state(ONE, ONE, ids)),
        ("write_root_pose", lambda data, ids: data.write_root_pose(torch.zeros(1, 7), ids)),
        (
            "write_root_velocity",
            lambda data, ids: data.write_root_velocity(torch.zeros(1, 3), torch.zeros(1, 3), ids),
        ),
    ],
)
def test_a_write_outside_a_reset_and_the_events_of_a_step_is_refused(call, write):
    with RobotEnv(1) as env:
        env.reset()
        with pytest.raises(
            RuntimeError,
            match=f"robot.{call}: state is written by events and commands only, in a reset or a step",
        ):
            write(env.scene["robot"].data, torch.tensor([0]))


SPIN, DRIFT = torch.tensor([[0.3, -1.1, 0.7]]), torch.tensor([[1.0, 2.0, -3.0]])


@pytest.mark.parametrize(
    ("write_part", "kept"),
    [
        (lambda data, ids: data.write_root_velocity(DRIFT, None, ids), slice(3, 6)),
        (lambda data, ids: data.write_root_velocity(None, SPIN, ids), slice(0, 3)),
    ],
)
def test_a_part_of_the_root_velocity_that_is_not_given_stays_to_the_bit(write_part, kept):
    pose = (*HERE, *torch.nn.functional.normalize(torch.tensor([1.0, 2.0, 3.0, 4.0]), dim=0).tolist())

    def event(data, ids):
        write(data, ids, pose, linear=(0.1, 0.2, 0.3), angular=(0.4, 0.5, 0.6))
        velocity = (data.root_lin_vel_w.clone(), data.root_ang_vel_b.clone())
        write_part(data, ids)
        now = torch.cat([data.root_lin_vel_w, data.root_ang_vel_b], dim=1)
        assert torch.equal(now[:, kept], torch.cat(velocity, dim=1)[:, kept])

    with robot(event) as env:
        data = env.scene["robot"].data
        linear = DRIFT if kept.start else torch.tensor([[0.1, 0.2, 0.3]])
        angular = torch.tensor([[0.4, 0.5, 0.6]]) if kept.start else SPIN
        assert torch.equal(data.root_lin_vel_w, linear)
        torch.testing.assert_close(data.root_ang_vel_w, angular, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("linear", "angular", "message"),
    [
        (None, None, "lin_vel_w and ang_vel_w are both None; give what is to be written"),
        (ONE[:, :1], None, r"lin_vel_w got shape \(1, 1\), expected \(1, 3\)"),
        (None, ONE[:, :1], r"ang_vel_w got shape \(1, 1\), expected \(1, 3\)"),
        (None, DRIFT.double(), "ang_vel_w got torch.float64, expected a float32 tensor"),
    ],
)
def test_a_wrong_root_velocity_is_refused(linear, angular, message):
    env = RobotEnv(2)
    env.reset()
    env.stage = lambda env, ids: env.scene["robot"].data.write_root_velocity(linear, angular, ids)
    with pytest.raises(ResetRejectedError, match=f"robot.write_root_velocity: {message}"):
        env.reset(torch.tensor([1]))
    env.close()


@pytest.mark.parametrize("call", ["write_root_pose", "write_root_velocity"])
def test_an_entity_fixed_to_the_world_has_no_root_to_write(call):
    def event(data, ids):
        if call == "write_root_pose":
            data.write_root_pose(torch.zeros(1, 7), ids)
        else:
            data.write_root_velocity(torch.zeros(1, 3), torch.zeros(1, 3), ids)

    with staged(event) as env:
        message = f"robot.{call}: 'robot' is fixed to the world; it has no root state; nothing was committed"
        with pytest.raises(ResetRejectedError, match=message):
            env.reset(torch.tensor([1]))
        assert not env.faulted


def test_a_pose_without_a_unit_quaternion_is_rejected_with_its_row():
    env = RobotEnv(2)
    env.reset()
    env.stage = lambda env, ids: env.scene["robot"].data.write_root_pose(torch.zeros(ids.numel(), 7), ids)
    with pytest.raises(
        ValueError, match=r"RobotEnv.reset: quaternion of joint 'robot/root', row 1 has norm 0"
    ):
        env.reset(torch.tensor([1]))
    env.close()


def test_a_fixed_entity_reads_its_root_from_its_body():
    class Env(ScriptedEnv):
        def _rewards(self) -> torch.Tensor:
            return self.scene["robot"].data.root_pos_w[:, 0] + self.scene["robot"].data.root_lin_vel_b[:, 0]

    with Env(2) as env:
        assert "body:robot/base" in env.describe().reads
        env.reset()
        assert env.step(zeros(env)).reward.tolist() == [0.0, 0.0]


def test_a_whole_root_state_is_staged_as_pose_and_then_velocity_would_be():
    poses = torch.tensor([[*HERE, *YAW_90], [0.5, 0.0, 2.0, HALF, HALF, 0.0, 0.0]])
    linear, angular = torch.tensor([[1.0, 2.0, 3.0], [0.1, 0.2, 0.3]]), torch.tensor([[0.3, -0.7, 0.9]] * 2)

    def whole(env, ids):
        k = ids.numel()
        env.scene["robot"].data.write_root_state(poses[:k], linear[:k], angular[:k], ids)

    def parts(env, ids):
        data, k = env.scene["robot"].data, ids.numel()
        data.write_root_pose(poses[:k], ids)
        data.write_root_velocity(linear[:k], angular[:k], ids)

    views = []
    for stage in (whole, parts):
        with RobotEnv(2, stage=stage) as env:
            env.reset()
            views.append({key: value.clone() for key, value in env.backend.get_state_views().items()})
    for part in ("qpos", "qvel"):
        assert (views[0][part] == views[1][part]).all()
    assert views[0]["qvel"][0, 3:6].any()


def test_a_part_of_a_root_state_of_another_shape_is_refused_by_name():
    def stage(env, ids):
        env.scene["robot"].data.write_root_state(torch.zeros(1, 7), torch.zeros(1, 3), torch.zeros(1, 2), ids)

    message = r"robot.write_root_state: ang_vel_w got shape \(1, 2\), expected \(1, 3\)"
    with pytest.raises(ConfigError, match=message):
        RobotEnv(1, stage=stage)


def test_a_handle_is_the_same_for_the_same_config():
    with RobotEnv(1) as env:
        data = env.scene["robot"].data
        assert data.bodies(SceneEntityCfg(body_names=("base",))) is data.bodies(
            SceneEntityCfg(body_names=("base",))
        )
        assert data.bodies(SceneEntityCfg(body_names=("base",))) is not data.bodies(
            SceneEntityCfg(body_names=(".*",))
        )
