"""State written by events and commands of a step: seen by later terms at once, committed once before observations."""

from __future__ import annotations

import math

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, assert_same, copied, steps, zeros

from unilab_core import ResetRejectedError, SceneEntityCfg
from unilab_core.model_staging import FieldPart
from unilab_core.staging import Staging
from unisim.testing import Fault, make_layout

ONE, TWO = torch.tensor([1]), torch.tensor([2])
BASE = SceneEntityCfg(body_names=("base",))


def joints(env):
    return env.scene["robot"].data


def test_a_later_term_sees_joint_values_at_once_and_the_observation_sees_them_too():
    seen = {}

    def advance():
        data = joints(env)
        data.write_joint_state(torch.tensor([[5.0, 6.0]]), torch.tensor([[7.0, 8.0]]), ONE)
        seen["later"] = torch.cat([data.joint_pos, data.joint_vel], dim=1)

    with ScriptedEnv() as env, ScriptedEnv() as twin:
        for each in (env, twin):
            each.reset()
            each.step(torch.ones(3, 1))
        env.inject["_advance"] = advance
        state, other = env.step(zeros(env)), twin.step(zeros(twin))
        assert seen["later"][1].tolist() == [5.0, 6.0, 7.0, 8.0]
        assert state.obs["obs"][1, 1] == 5.0
        assert torch.equal(state.obs["obs"][[0, 2]], other.obs["obs"][[0, 2]])
        assert env.backend.get_state_views()["qpos"][1].tolist() == [5.0, 6.0]
        for name, values in twin.backend.get_state_views().items():
            assert torch.equal(env.backend.get_state_views()[name][[0, 2]], values[[0, 2]]), name


def test_two_writers_of_the_same_rows_compose_in_their_order():
    def advance():
        data = joints(env)
        data.write_joint_state(
            torch.tensor([[1.0], [1.0]]), torch.zeros(2, 1), torch.tensor([1, 2]), slice(0, 1)
        )
        data.write_joint_state(data.joint_pos[ONE] * 3.0, data.joint_vel[ONE] + 0.5, ONE)

    with ScriptedEnv() as env:
        env.reset()
        env.inject["_advance"] = advance
        env.step(zeros(env))
        before = env.transfer_stats.write
        assert env.backend.get_state_views()["qpos"].tolist() == [[0.0, 0.0], [3.0, 0.0], [1.0, 0.0]]
        assert env.backend.get_state_views()["qvel"][1].tolist() == [0.5, 0.5]
        assert before.transfers == 1
        assert before.bytes == 2 * (8 + 4 * 4)


def test_a_step_in_which_nothing_is_written_moves_no_write():
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_advance"] = lambda: joints(env).write_joint_state(
            torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
        )
        steps(env, 3)
        assert env.transfer_stats.write.transfers == 0


def robot(advance=None, look=None, num_envs=4):
    class Env(RobotEnv):
        def _advance(self) -> None:
            if advance is not None:
                advance(self)

        def _measure(self):
            return {
                "speed": joints(self).bodies(BASE).lin_vel_w.norm() + self.scene.sensor("robot/gyro").norm()
            }

    env = Env(num_envs, look=look)
    env.reset()
    return env


def test_qa_056_a_push_of_one_row_adds_to_its_velocity_and_leaves_the_others():
    def push(env):
        if env.step_counter == 3:
            data = joints(env)
            kick = torch.tensor([[1.0, 0.0, 0.0]])
            data.write_root_velocity(data.root_lin_vel_w[TWO] + kick, data.root_ang_vel_w[TWO], TWO)

    with robot(push) as env, robot() as twin:
        steps(env, 3)
        steps(twin, 3)
        one, two = env.backend.get_state_views(), twin.backend.get_state_views()
        assert torch.equal(one["qpos"], two["qpos"])
        assert torch.equal(one["qvel"][[0, 1, 3]], two["qvel"][[0, 1, 3]])
        torch.testing.assert_close(one["qvel"][2] - two["qvel"][2], torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0]))
        assert torch.equal(
            joints(env).root_lin_vel_w, one["qvel"][:, :3]
        )  # what terms read is what the engine holds


def test_qa_025_body_and_sensor_reads_of_a_written_row_are_fresh_after_the_flush():
    seen = {}

    def write(env):
        if env.step_counter == 5:
            data = joints(env)
            data.write_root_velocity(torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 0.0, 3.0]]), ONE)
            seen["body before the flush"] = data.bodies(BASE).lin_vel_w[1, 0].clone()
            seen["root before the flush"] = data.root_lin_vel_w[1].clone()

    with robot(write) as env:
        for _ in range(8):
            env.step(torch.full((4, 2), 0.2))
            data = joints(env)
            body = data.bodies(BASE)
            torch.testing.assert_close(body.lin_vel_w[:, 0], data.root_lin_vel_w, atol=1e-5, rtol=0)
            torch.testing.assert_close(body.ang_vel_w[:, 0], data.root_ang_vel_w, atol=1e-5, rtol=0)
            torch.testing.assert_close(env.scene.sensor("robot/gyro"), data.root_ang_vel_b, atol=1e-5, rtol=0)
            if env.step_counter == 5:
                torch.testing.assert_close(body.lin_vel_w[1, 0], torch.tensor([1.0, 2.0, 0.0]))
        assert seen["root before the flush"].tolist() == [1.0, 2.0, 0.0]
        assert not torch.allclose(seen["body before the flush"], torch.tensor([1.0, 2.0, 0.0]))


def test_qa_048_a_pose_written_in_a_step_turns_the_angular_velocity_written_with_it():
    half = math.sqrt(0.5)

    def write(env):
        if env.step_counter == 1:
            data = joints(env)
            data.write_root_velocity(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 0.0]]), ONE)
            data.write_root_pose(torch.tensor([[0.0, 0.0, 1.0, half, 0.0, 0.0, half]]), ONE)

    with robot(write) as env:
        steps(env, 1)
        torch.testing.assert_close(
            joints(env).root_ang_vel_b[1], torch.tensor([1.0, 0.0, 0.0]), atol=1e-6, rtol=0
        )
        torch.testing.assert_close(
            joints(env).root_ang_vel_w[1], torch.tensor([0.0, 1.0, 0.0]), atol=1e-6, rtol=0
        )


def test_a_row_that_is_pushed_and_ends_in_the_same_step_shows_the_push_in_its_final_observation():
    with ScriptedEnv(terminate={2: [1]}) as env:
        env.reset()
        steps(env, 1)
        env.inject["_advance"] = lambda: joints(env).write_joint_state(
            torch.full((1, 2), 5.0), torch.zeros(1, 2), ONE
        )
        state = env.step(zeros(env))
        assert state.final_observation["obs"][1, 1] == 5.0
        assert state.obs["obs"][1, 1] == 0.0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "hook",
    ["_begin_step", "_terminations", "_rewards", "_measure", "_after_step", "_on_episodes_end", "_before_commit",
     "_after_commit", "_after_reset"],
)  # fmt: skip
def test_a_write_in_any_other_phase_is_refused(hook):
    env = ScriptedEnv()
    env.reset()
    env.inject[hook] = lambda *_: joints(env).write_joint_state(torch.zeros(1, 2), torch.zeros(1, 2), ONE)
    message = "robot.write_joint_state: state is written by events and commands only, in a reset or a step"
    call = (lambda: env.reset(ONE)) if hook.startswith(("_on", "_before", "_after_c", "_after_r")) else None
    with pytest.raises((RuntimeError, ResetRejectedError), match=message):
        call() if call else env.step(zeros(env))
    env.close()


def test_a_value_that_is_not_finite_names_the_step_and_the_row():
    env = ScriptedEnv()
    env.reset()
    env.inject["_advance"] = lambda: joints(env).write_joint_state(
        torch.full((1, 2), math.nan), torch.zeros(1, 2), ONE
    )
    with pytest.raises(
        ResetRejectedError, match="ScriptedEnv.step: an event or command wrote .* qpos of row 1, column 0"
    ):
        env.step(zeros(env))
    assert env.faulted
    env.close()


@pytest.mark.parametrize("kind", ["before_commit", "after_first_write"])
def test_a_backend_that_fails_in_a_write_of_a_step_faults_the_environment(kind):
    env = ScriptedEnv(faults=(Fault(kind, at=0, call="write_rows"),))
    env.reset()
    env.inject["_advance"] = lambda: joints(env).write_joint_state(torch.ones(1, 2), torch.zeros(1, 2), ONE)
    with pytest.raises((ResetRejectedError, RuntimeError), match="injected"):
        env.step(zeros(env))
    assert env.faulted
    env.close()


@pytest.mark.parametrize("call", ["step", "reset"])
def test_a_hook_of_a_step_must_not_step_or_reset(call):
    env = ScriptedEnv()
    env.reset()
    env.inject["_advance"] = (lambda: env.reset(ONE)) if call == "reset" else (lambda: env.step(zeros(env)))
    with pytest.raises(RuntimeError, match=f"ScriptedEnv.{call}: a step is running; .* must not call {call}"):
        env.step(zeros(env))
    env.close()


def test_a_hook_of_a_reset_must_not_step():
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_stage_reset"] = lambda ids: env.step(zeros(env))
        with pytest.raises(
            ResetRejectedError, match="ScriptedEnv.step: a reset is running; .* must not call step"
        ):
            env.reset(ONE)
        del env.inject["_stage_reset"]
        steps(env, 2)


def test_startup_writes_model_fields_only():
    def startup(self, ids):
        self.scene["robot"].data.write_joint_state(torch.zeros(3, 2), torch.zeros(3, 2), ids)

    with pytest.raises(
        ValueError, match="startup: RuntimeError: robot.write_joint_state: startup events write model"
    ):
        type("Env", (ScriptedEnv,), {"_stage_startup": startup})(3)


def test_stepping_inside_and_outside_of_inference_mode_gives_the_same_pushes():
    def push(env):
        data = joints(env)
        data.write_root_velocity(data.root_lin_vel_w[ONE] + 0.1, data.root_ang_vel_w[ONE], ONE)

    with robot(push) as env, robot(push) as twin:
        for i in range(6):
            with torch.inference_mode(i % 2 == 0):
                state = env.step(zeros(env))
            assert_same(copied(state), copied(twin.step(zeros(twin))))


@pytest.mark.parametrize("rows", [[0, 7], [-1, 0], [7]])
def test_a_write_that_was_refused_and_caught_leaves_no_row_written(rows):
    def advance():
        data = joints(env)
        data.write_joint_state(torch.full((1, 2), 5.0), torch.zeros(1, 2), ONE)
        count = len(rows)
        with pytest.raises(ValueError, match="write_joint_state: env_ids holds (7|-1)"):
            data.write_joint_state(torch.zeros(count, 2), torch.zeros(count, 2), torch.tensor(rows))

    with ScriptedEnv() as env, ScriptedEnv() as twin:
        for each in (env, twin):
            each.reset()
            each.step(torch.ones(3, 1))
        env.inject["_advance"] = advance
        env.step(zeros(env))
        twin.step(zeros(twin))
        assert env.transfer_stats.write.bytes == 8 + 4 * 4  # one row
        for name, values in twin.backend.get_state_views().items():
            assert torch.equal(env.backend.get_state_views()[name][[0, 2]], values[[0, 2]]), name


def test_a_write_that_is_refused_leaves_the_rows_marked_that_were_whatever_became_of_their_ids():
    def advance():
        data, rows = joints(env), torch.tensor([1])
        data.write_joint_state(torch.full((1, 2), 5.0), torch.zeros(1, 2), rows)
        rows.fill_(2)  # a term may use its tensor again
        with pytest.raises(ValueError, match="write_joint_state: env_ids holds 7"):
            data.write_joint_state(torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([0, 7]))

    for inference in (False, True):
        with ScriptedEnv() as env, torch.inference_mode(inference):
            env.reset()
            env.inject["_advance"] = advance
            env.step(zeros(env))
            assert env.backend.get_state_views()["qpos"].tolist() == [[0.0, 0.0], [5.0, 5.0], [0.0, 0.0]]
            assert env.transfer_stats.write.bytes == 8 + 4 * 4  # one row


@pytest.mark.parametrize("phase", ["_advance", "_stage_reset"])
def test_rows_on_another_device_are_refused_by_name(phase):
    def write(*_):
        data, ids = joints(env), torch.zeros(1, dtype=torch.int64, device="meta")
        data.write_joint_state(torch.zeros(1, 2), torch.zeros(1, 2), ids)

    with ScriptedEnv() as env:
        env.reset()
        env.inject[phase] = write
        message = (
            "robot.write_joint_state: env_ids is on meta, expected cpu; pass the env_ids the term was given"
        )
        with pytest.raises((ValueError, ResetRejectedError), match=message):
            env.step(zeros(env)) if phase == "_advance" else env.reset(ONE)


def test_wrenches_and_model_fields_of_rows_on_another_device_are_refused_too():
    ids = torch.zeros(1, dtype=torch.int64, device="meta")
    layout = make_layout()
    staging = Staging(layout, 3, torch.device("cpu"), ("body_mass",))
    staging.open_step(torch.zeros(3, layout.nq), torch.zeros(3, layout.nv))
    with pytest.raises(ValueError, match="push: env_ids is on meta, expected cpu"):
        staging.check_wrench(ids, "push")
    staging.open_reset(ONE, torch.zeros(3, layout.nq), torch.zeros(3, layout.nv))
    values = torch.ones(1, len(layout.bodies))
    with pytest.raises(ValueError, match="load: env_ids is on meta, expected cpu"):
        staging.write_model("body_mass", values, ids, FieldPart(slice(None)), "load")


@pytest.mark.parametrize("call", ["load_state_dict", "copy_state_from"])
@pytest.mark.parametrize("hook", ["_rewards", "_advance", "_after_step", "_stage_reset", "_after_commit"])
def test_a_hook_must_not_put_another_state_in_place(call, hook):
    with ScriptedEnv() as other:
        env = ScriptedEnv()
        for each in (env, other):
            each.reset()
        state = env.state_dict()
        env.inject[hook] = (
            (lambda *_: env.load_state_dict(state))
            if call == "load_state_dict"
            else (lambda *_: env.copy_state_from(other))
        )
        running = "reset" if hook in ("_stage_reset", "_after_commit") else "step"
        message = f"ScriptedEnv.{call}: a {running} is running; .* must not call {call}"
        with pytest.raises((RuntimeError, ResetRejectedError), match=message):
            env.reset(ONE) if running == "reset" else env.step(zeros(env))
        env.close()


def test_the_state_of_an_environment_in_the_middle_of_a_step_is_not_copied():
    with ScriptedEnv() as env, ScriptedEnv() as other:
        for each in (env, other):
            each.reset()
        before = env.backend.get_state_views()
        other.inject["_advance"] = lambda: env.copy_state_from(other)
        with pytest.raises(RuntimeError, match=r"ScriptedEnv.copy_state_from: a step is running"):
            other.step(zeros(other))
        assert all(
            torch.equal(env.backend.get_state_views()[name], values) for name, values in before.items()
        )
        env.step(zeros(env))


def test_rows_of_a_write_may_be_given_twice_and_change_afterwards():
    def advance():
        rows = torch.tensor([1, 1])
        joints(env).write_joint_state(torch.full((2, 2), 5.0), torch.zeros(2, 2), rows)
        rows.fill_(2)

    with ScriptedEnv() as env:
        env.reset()
        env.inject["_advance"] = advance
        env.step(zeros(env))
        assert env.backend.get_state_views()["qpos"].tolist() == [[0.0, 0.0], [5.0, 5.0], [0.0, 0.0]]
        assert env.transfer_stats.write.bytes == 8 + 4 * 4


def test_a_push_shows_new_velocities_and_the_poses_of_before():
    shown = {}

    def look(env):
        data = env.scene["robot"].data
        return torch.cat([data.root_pos_w, data.root_quat_w, data.root_lin_vel_w, data.joint_pos], dim=1)

    def advance(env):
        data = env.scene["robot"].data
        shown["before"] = look(env).clone()
        data.write_root_velocity(torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3), ONE)
        shown["after"] = look(env).clone()
        pose = torch.tensor([[4.0, 5.0, 6.0, 1.0, 0.0, 0.0, 0.0]])
        data.write_root_pose(pose, TWO)
        shown["moved"] = look(env).clone()

    with robot(advance) as env:
        env.reset()
        for _ in range(2):  # in the second step every view is there already
            env.step(zeros(env))
            expected = shown["before"].clone()
            expected[1, 7:10] = torch.tensor([1.0, 2.0, 3.0])
            assert torch.equal(shown["after"], expected)
            expected[2, :7] = torch.tensor([4.0, 5.0, 6.0, 1.0, 0.0, 0.0, 0.0])
            assert torch.equal(shown["moved"], expected)
