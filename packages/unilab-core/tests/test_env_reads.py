"""Reads are recorded at construction; later reads must be among them."""

from __future__ import annotations

import contextlib

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, steps, zeros

from unilab_core import ConfigError, SceneEntityCfg, reads

LEG = SceneEntityCfg(body_names=("leg",))
IMU = SceneEntityCfg(site_names=("imu",))


def test_state_is_always_in_the_packet():
    with RobotEnv() as env:
        assert env.describe().reads == ("qpos", "qvel", "ctrl")


def test_what_a_term_reads_becomes_part_of_the_packet():
    def look(env):
        data = env.scene["robot"].data
        return data.bodies(LEG).pos_w, data.sites(IMU).quat_w, env.scene.sensor("robot/gyro")

    with RobotEnv(look=look) as env:
        assert set(env.describe().reads) == {
            "qpos",
            "qvel",
            "ctrl",
            "sensor:robot/gyro",
            "body:robot/leg",
            "site:robot/imu",
        }
        env.reset()
        assert steps(env, 2) is not None


def test_making_a_handle_reads_nothing():
    with RobotEnv(look=lambda env: env.scene["robot"].data.bodies(LEG)) as env:
        assert env.describe().reads == ("qpos", "qvel", "ctrl")


def test_a_quantity_read_by_several_terms_is_carried_once():
    def look(env):
        data = env.scene["robot"].data
        return data.bodies(LEG).pos_w, data.bodies(LEG).lin_vel_w, data.bodies(SceneEntityCfg()).quat_w

    with RobotEnv(look=look) as env:
        carried = [key for key in env.describe().reads if key.startswith("body:")]
    assert sorted(carried) == ["body:robot/base", "body:robot/foot", "body:robot/leg"]


@pytest.mark.parametrize(
    "hook", ["_control", "_begin_step", "_advance", "_after_step", "_before_commit", "_after_reset"]
)
def test_reads_of_every_phase_are_recorded(hook):
    def phase(self, *arguments):
        assert self.scene["robot"].data.bodies(LEG).pos_w.shape == (2, 1, 3)
        return getattr(RobotEnv, hook)(self, *arguments)

    reading = type("Reading", (RobotEnv,), {hook: phase})
    with reading() as env:
        assert "body:robot/leg" in env.describe().reads
        env.reset()
        env.step(zeros(env))


def test_a_read_behind_a_branch_raises_with_the_remedy_in_the_message():
    def look(env):
        if env.step_counter > 1:
            return env.scene["robot"].data.bodies(LEG).pos_w
        return None

    env = RobotEnv(look=look)
    env.reset()
    steps(env, 1)
    message = (
        r"'body:robot/leg' is read outside the frozen plan: .* declare it .* with @reads\('body:robot/leg'\)"
    )
    with pytest.raises(RuntimeError, match=message):
        env.step(zeros(env))
    env.close()


def test_a_read_behind_a_branch_works_once_it_is_declared_on_the_hook():
    class Declared(RobotEnv):
        @reads("body:robot/leg", "sensor:robot/gyro")
        def _rewards(self) -> torch.Tensor:
            if self.step_counter > 1:
                return (
                    self.scene["robot"].data.bodies(LEG).pos_w[:, 0, 0]
                    + self.scene.sensor("robot/gyro")[:, 0]
                )
            return torch.zeros(self.num_envs)

    with Declared() as env:
        assert {"body:robot/leg", "sensor:robot/gyro"} <= set(env.describe().reads)
        env.reset()
        state = steps(env, 3)
        data = env.scene["robot"].data
        assert torch.equal(
            state.reward, data.bodies(LEG).pos_w[:, 0, 0] + env.scene.sensor("robot/gyro")[:, 0]
        )


def test_a_term_may_declare_its_reads_while_the_environment_is_built():
    @reads("site:robot/imu")
    def term(env):
        return env.scene["robot"].data.sites(IMU).pos_w

    class Building(RobotEnv):
        def _build(self) -> None:
            super()._build()
            self.scene.declare_reads(term)

    with Building() as env:
        assert "site:robot/imu" in env.describe().reads
        env.reset()
        assert term(env).shape == (2, 1, 3)


def test_a_declared_read_that_does_not_exist_is_a_config_error_with_the_nearest():
    class Wrong(RobotEnv):
        @reads("body:robot/lge")
        def _rewards(self) -> torch.Tensor:
            return torch.zeros(self.num_envs)

    with pytest.raises(
        ConfigError, match=r"@reads\('body:robot/lge'\): KeyError: .*did you mean 'robot/leg'"
    ):
        Wrong()


@pytest.mark.parametrize("key", ["leg", "bodies:leg", "body:", ""])
def test_a_declared_read_of_another_form_is_refused(key):
    with pytest.raises(ValueError, match="^reads: .* is none of 'qpos', .*'substep:<name>'$"):
        reads(key)


def test_declared_reads_add_up():
    from unilab_core.reads import declared_reads

    @reads("body:a")
    @reads("body:b", "site:c")
    def term(env):
        return None

    assert declared_reads(term) == ("body:b", "site:c", "body:a")
    assert declared_reads(steps) == ()


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (
            lambda env: env.scene["robto"],
            r"rewards: UnknownNameError: scene: unknown entity 'robto'; did you mean 'robot'\?",
        ),
        (
            lambda env: env.scene.sensor("robot/gyru"),
            r"rewards: KeyError: .*unknown sensor 'robot/gyru'; did you mean 'robot/gyro'",
        ),
        (
            lambda env: env.scene["robot"].data.bodies(SceneEntityCfg(body_names=("lge",))).pos_w,
            r"rewards: ValueError: robot body_names: 'lge' matches nothing; did you mean 'leg'\?",
        ),
        (
            lambda env: env.scene["robot"].data.sites(SceneEntityCfg(site_names=("[",))).pos_w,
            r"rewards: ValueError: robot site_names: '\[' is not a regular expression",
        ),
    ],
)
def test_an_unknown_name_in_a_term_is_a_config_error_with_the_nearest(look, message):
    with pytest.raises(ConfigError, match=message):
        RobotEnv(look=look)


@pytest.mark.parametrize(
    ("read", "key"),
    [
        (lambda env: env.scene["robot"].data.bodies(LEG).pos_w, "body:robot/leg"),
        (lambda env: env.scene["robot"].data.sites(IMU).pos_w, "site:robot/imu"),
        (lambda env: env.scene.sensor("robot/gyro"), "robot/gyro"),
    ],
)
def test_bodies_sites_and_sensors_cannot_be_read_while_a_reset_is_staged(read, key):
    with pytest.raises(
        ConfigError, match=f"'{key}' is read while a reset is staged; it is defined after the commit"
    ):
        RobotEnv(stage=lambda env, ids: read(env))


def test_a_view_of_a_fixed_packet_shows_each_new_step():
    with ScriptedEnv() as env:
        env.reset()
        view = env.scene["robot"].data.joint_pos
        env.step(torch.ones(3, 1))
        first = view.clone()
        env.step(torch.ones(3, 1))
        assert not torch.equal(view, first)


def test_accelerations_behind_a_branch_can_be_declared_too():
    class Late(RobotEnv):
        @reads("qacc")
        def _rewards(self) -> torch.Tensor:
            if self.step_counter > 1:
                return self.scene["robot"].data.joint_acc[:, 0]
            return torch.zeros(self.num_envs)

    with Late() as env:
        env.reset()
        assert steps(env, 3) is not None


def test_what_a_block_reads_is_noted_under_its_label():
    class Noting(RobotEnv):
        def _build(self) -> None:
            super()._build()
            data = self.scene["robot"].data
            assert self.scene.is_recording
            with self.scene.note_reads("outer"):
                _ = data.joint_pos
                with self.scene.note_reads("inner"):
                    _ = data.bodies(LEG).pos_w, data.bodies(LEG).quat_w
                    self.scene.sensor("robot/gyro")
                _ = data.joint_vel
            _ = data.sites(IMU).pos_w

    with Noting() as env:
        assert env.scene.reads_of("inner") == ("body:robot/leg", "sensor:robot/gyro")
        assert env.scene.reads_of("outer") == ("qpos", "body:robot/leg", "sensor:robot/gyro", "qvel")
        assert env.scene.reads_of("nobody") == ()
        assert "site:robot/imu" in env.describe().reads
        assert not env.scene.is_recording
        with pytest.raises(RuntimeError, match="they are frozen already"), env.scene.note_reads("late"):
            pass


def test_reads_of_several_blocks_of_one_label_are_added_up_also_when_one_fails():
    class Noting(RobotEnv):
        def _build(self) -> None:
            super()._build()
            data = self.scene["robot"].data
            with self.scene.note_reads("term"):
                _ = data.bodies(LEG).pos_w
            with contextlib.suppress(LookupError), self.scene.note_reads("term"):
                _ = data.sites(IMU).pos_w
                raise LookupError

    with Noting() as env:
        assert env.scene.reads_of("term") == ("body:robot/leg", "site:robot/imu")


def data_of(env):
    return env.scene["robot"].data


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda env: data_of(env).projected_gravity_b, "gravity"),
        (lambda env: data_of(env).root_lin_vel_b, "root_lin_vel_b"),
        (lambda env: data_of(env).joint_vel, "qvel"),
        (lambda env: data_of(env).bodies(LEG).pos_w, "pos_w"),
        (lambda env: data_of(env).sensor("gyro"), "sensor:robot/gyro"),
    ],
)
def test_a_term_that_writes_into_what_all_terms_share_is_a_config_error(read, name):
    def look(env):
        with env.scene.note_reads("term 'rude'") if env.scene.is_recording else contextlib.nullcontext():
            read(env)[:] += 1.0

    with pytest.raises(ConfigError, match=f"term 'rude' wrote into '{name}'.*write into a clone"):
        RobotEnv(look=look)
    with pytest.raises(ConfigError, match=f"rewards wrote into '{name}'.*write into a clone"):
        RobotEnv(look=lambda env: read(env)[:].add_(1.0))


def test_a_term_may_write_into_a_clone_and_into_its_own_memory():
    def look(env):
        env.memory = getattr(env, "memory", torch.zeros(2, 3))
        env.memory.copy_(data_of(env).root_lin_vel_b)
        data_of(env).projected_gravity_b.clone().add_(1.0)

    with RobotEnv(look=look) as env:
        env.reset()
        assert steps(env, 2) is not None


@pytest.mark.parametrize(
    "read",
    [
        lambda env: data_of(env).root_lin_vel_b,
        lambda env: data_of(env).joint_pos,
        lambda env: data_of(env).bodies(LEG).pos_w,
    ],
)
def test_nothing_that_was_kept_is_handed_out_after_close(read):
    env = RobotEnv(look=read)
    env.reset()
    assert read(env) is read(env)
    env.close()
    with pytest.raises(RuntimeError, match="is read after close: the environment is closed"):
        read(env)
