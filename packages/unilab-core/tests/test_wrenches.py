"""Sustained wrenches: who may push, when it acts, where it acts, and when it stops."""

from __future__ import annotations

import pytest
import torch
from core_support import RobotEnv, ScriptedCfg, ScriptedEnv, steps, zeros
from twins import assert_same_steps, assert_twins

from unilab_core import ConfigError, NanGuardCfg, NonFiniteError, ResetRejectedError, SceneEntityCfg
from unisim import Declared, EntityCfg, SceneCfg, SimCfg, TensorExecution, make_backend
from unisim.testing import FakeBackend, make_layout

N = 3
BASE = SceneEntityCfg(body_names=("base",))
ALL = torch.arange(N)


def fake(num_envs=N, **options):
    declared = Declared(wrench_bodies=("robot/base",), decimation=2)
    return FakeBackend(make_layout(free_root=True), num_envs, declared=declared, **options)


class PushedEnv(ScriptedEnv):
    """A free body of 1 kg under no gravity; `pushes` maps a step to what its events write: rows and force along x."""

    pushes: dict = {}

    def __init__(self, num_envs=N, *, backend=None, **options):
        super().__init__(num_envs, backend=backend or fake(num_envs), **options)

    def _advance(self) -> None:
        super()._advance()
        for rows, force in self.pushes.get(self.step_counter, []):
            push(self, rows, force)


def push(env, rows, force, torque=(0.0, 0.0, 0.0), bodies=BASE):
    ids = torch.tensor(rows)
    values = [torch.tensor(v).expand(len(rows), 1, 3) for v in ((force, 0.0, 0.0), torque)]
    env.scene["robot"].data.write_wrench(*values, ids, bodies)


def pushed(pushes, **options):
    env = type("Pushed", (PushedEnv,), {"pushes": pushes})(**options)
    env.reset()
    return env


def speeds(env, number):
    """Speed along x of every row after each of `number` steps, m/s."""
    data = env.scene["robot"].data
    out = []
    for _ in range(number):
        env.step(zeros(env))
        out.append([round(v, 5) for v in data.root_lin_vel_w[:, 0].tolist()])
    return out


def test_a_wrench_acts_from_the_next_step_on_until_it_is_written_again():
    # 1 kg, 2 substeps of 0.01 s: 5 N give 0.1 m/s a step, -5 N take them back.
    with pushed({1: [([1], 5.0)], 3: [([1], -5.0)], 4: [([1], 0.0)]}) as env:
        assert [row[1] for row in speeds(env, 6)] == [0.0, 0.1, 0.2, 0.1, 0.1, 0.1]


def test_only_the_rows_that_were_written_are_pushed():
    with pushed({1: [([0, 2], 5.0), ([2], 10.0)]}) as env:
        assert speeds(env, 2)[1] == [0.1, 0.0, 0.2]


def test_a_row_given_twice_keeps_the_last_values():
    with pushed({1: [([1], 5.0), ([1], 2.5)]}) as env:
        assert speeds(env, 2)[1] == [0.0, 0.05, 0.0]


@pytest.mark.parametrize("automatic", [True, False])
def test_qa_033_a_wrench_that_is_active_at_a_reset_is_gone_for_that_row_and_no_other(automatic):
    with pushed({1: [([0, 1], 5.0)]}, terminate={3: [1]} if automatic else {}) as env:
        speeds(env, 3)
        if not automatic:
            env.reset(torch.tensor([1]))
        assert env._wrench_values[:, 0].tolist() == [5.0, 0.0, 0.0]
        assert speeds(env, 2) == [[0.3, 0.0, 0.0], [0.4, 0.0, 0.0]]


def test_qa_033_a_wrench_written_in_the_step_in_which_its_row_ends_never_acts():
    with pushed({3: [([1], 5.0)]}, terminate={3: [1]}) as env:
        assert [row[1] for row in speeds(env, 5)] == [0.0] * 5


def test_a_rejected_reset_leaves_the_wrench_where_it_was():
    options = {1: [([0, 1], 5.0)]}
    with pushed(options) as env, pushed(options) as twin:
        steps(env, 2)
        steps(twin, 2)
        env.inject["_stage_reset"] = lambda ids: 1 / 0
        with pytest.raises(ResetRejectedError):
            env.reset(torch.tensor([1]))
        del env.inject["_stage_reset"]
        assert_twins(env, twin)
        assert_same_steps(env, twin, 5)


def test_wrenches_are_part_of_the_state():
    with pushed({1: [([0, 1], 5.0)]}) as env, pushed({}) as other:
        steps(env, 2)
        other.load_state_dict(env.state_dict())
        assert speeds(other, 1) == speeds(env, 1) == [[0.2, 0.2, 0.0]]


def test_what_is_pushed_in_the_trial_runs_pushes_nothing():
    class Always(PushedEnv):
        def _advance(self) -> None:
            push(self, [0, 1, 2], 5.0)

    with Always() as env:
        assert not env._wrench_values.any()
        env.reset()
        assert speeds(env, 1) == [[0.0] * 3]


# ---------------------------------------------------------------- on MuJoCo

XML = """
<mujoco><worldbody><body name="box" pos="0 0 1"><freejoint/>
  <geom type="box" size=".1 .1 .1" mass="2" pos=".3 0 0"/></body>
  <body name="arm" pos="5 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".1" mass="1" pos="0 0 -1"/></body>
</worldbody><actuator><motor name="hinge" joint="hinge"/></actuator></mujoco>"""


def boxes():
    return pytest.importorskip("mujoco").MjSpec.from_string(XML)


class BoxEnv(PushedEnv):
    num_actions = 1
    force, torque, bodies = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), ("box",)

    def __init__(self, declared=("robot/box", "robot/arm"), pose=None):
        self.pose = pose
        scene = SceneCfg(entities={"robot": EntityCfg(spec=boxes)})
        sim = SimCfg(timestep=0.01, gravity=(0.0, 0.0, 0.0), num_threads=1)
        backend = make_backend(
            "mujoco", scene, sim, num_envs=1, declared=Declared(wrench_bodies=declared, decimation=2)
        )
        super().__init__(1, backend=backend)

    def _stage_reset(self, ids):
        if self.pose is not None:
            self.scene["robot"].data.write_root_pose(self.pose, ids)

    def _observe(self, ids):
        rows = self.num_envs if ids is None else ids.numel()
        return {"obs": torch.zeros(rows, 3)}

    def _advance(self) -> None:
        cfg = SceneEntityCfg(body_names=self.bodies, preserve_order=True)
        values = [torch.tensor(v).expand(1, len(self.bodies), 3) for v in (self.force, self.torque)]
        self.scene["robot"].data.write_wrench(*values, torch.tensor([0]), cfg)


def box_env(force=(0.0, 0.0, 0.0), torque=(0.0, 0.0, 0.0), bodies=("box",), **options):
    env = type("Box", (BoxEnv,), {"force": force, "torque": torque, "bodies": bodies})(**options)
    env.reset()
    steps(env, 1)
    return env


def test_a_force_acts_at_the_centre_of_mass_in_the_world_s_axes():
    # The box turned by 90 degrees about z; its centre of mass is 0.3 m off its frame, and it must not spin.
    half = 0.5**0.5
    with box_env(force=(4.0, 0.0, 0.0), pose=torch.tensor([[0.0, 0.0, 1.0, half, 0.0, 0.0, half]])) as env:
        steps(env, 10)
        data = env.scene["robot"].data
        # 4 N on 2 kg for 10 steps of 0.02 s
        torch.testing.assert_close(data.root_lin_vel_w, torch.tensor([[0.4, 0.0, 0.0]]), atol=1e-5, rtol=0)
        torch.testing.assert_close(data.root_ang_vel_w, torch.zeros(1, 3), atol=1e-6, rtol=0)


def test_a_torque_turns_about_the_world_s_axis():
    # A cube of 2 kg and 0.2 m has m s^2 / 6 = 1/75 kg m^2 about any axis.
    with box_env(torque=(0.0, 0.0, 0.05)) as env:
        steps(env, 10)
        expected = torch.tensor([[0.0, 0.0, 0.05 * 0.2 * 75]])
        torch.testing.assert_close(env.scene["robot"].data.root_ang_vel_w, expected, atol=1e-4, rtol=0)


def test_bodies_come_in_the_order_that_the_term_says():
    with box_env(force=(1.0, 0.0, 0.0), bodies=("arm", "box")) as env:
        columns = dict(zip(env.describe().control[1:], env._wrench_values[0].tolist(), strict=True))
        assert columns == {
            f"robot/{body}:{part}[{axis}]": 1.0 if (part, axis) == ("force_w", "x") else 0.0
            for body in ("box", "arm")
            for part in ("force_w", "torque_w")
            for axis in "xyz"
        }


def test_declared_patterns_are_resolved_in_the_model_s_order():
    with box_env(force=(1.0, 0.0, 0.0), declared=("robot/.*",)) as env:
        assert env.declared.wrench_bodies == ("robot/box", "robot/arm")
        assert env._wrench_values.shape == (1, 12)


# ---------------------------------------------------------------- cost


def test_wrenches_travel_in_the_control_packet_alone():
    with pushed({2: [([0, 1], 5.0)]}) as env:
        steps(env, 1)
        before = env.transfer_stats
        steps(env, 1)
        after = env.transfer_stats
        assert after.control.bytes - before.control.bytes == 4 * N * (1 + 6)
        assert (after.write, after.selected_read) == (before.write, before.selected_read)
        # actions, control; reward, observations, wrench, bad rows, any done
        assert after.verdict.bytes - before.verdict.bytes == 2 + 5


def test_without_declared_bodies_the_control_is_handed_on_as_it_is():
    with ScriptedEnv(N) as env:
        env.reset()
        before = env.transfer_stats.control.bytes
        steps(env, 1)
        assert env.transfer_stats.control.bytes - before == 4 * N


def test_a_resident_backend_is_pushed_alike():
    backend = fake(execution=TensorExecution.DEVICE_RESIDENT)
    with pushed({1: [([1], 5.0)]}, backend=backend) as env:
        assert speeds(env, 2)[1] == [0.0, 0.1, 0.0]


# ---------------------------------------------------------------- what is refused


def test_a_control_with_columns_for_wrenches_is_refused():
    wide = type("Wide", (PushedEnv,), {"_control": lambda self, actions: torch.zeros(N, 7)})
    with pytest.raises(ConfigError, match=r"_control returned \(3, 7\) on cpu, expected \(3, 1\)"):
        wide()


@pytest.mark.parametrize("hook", ["_stage_reset", "_terminations", "_rewards", "_measure", "_after_commit"])
def test_a_push_outside_of_events_and_commands_of_a_step_is_refused(hook):
    def phase(self, *arguments):
        push(self, [0], 1.0)
        return getattr(PushedEnv, hook)(self, *arguments)

    message = "write_wrench: wrenches are written by events and commands of a step only"
    with pytest.raises(ConfigError, match=message):
        type("Early", (PushedEnv,), {hook: phase})()


def test_a_body_that_was_not_declared_is_refused_and_the_remedy_told():
    with pytest.raises(ConfigError) as caught:
        BoxEnv(declared=("robot/arm",))
    assert (
        "robot.write_wrench: ['robot/box'] were not declared as bodies to push before the backend was made "
        "(declared: ['robot/arm']); name them in Declared.wrench_bodies"
    ) in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: (torch.zeros(3, 1, 3), torch.zeros(3, 3), ALL, BASE),
            ValueError,
            r"torque_w got shape \(3, 3\)",
        ),
        (lambda: (torch.zeros(3, 2, 3), torch.zeros(3, 1, 3), ALL, BASE), ValueError, r"force_w got shape"),
        (
            lambda: (torch.zeros(3, 1, 3).double(), torch.zeros(3, 1, 3), ALL, BASE),
            TypeError,
            "torch.float64",
        ),
        (
            lambda: (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3), ALL[:1] + 3, BASE),
            ValueError,
            "env_ids holds 3",
        ),
        (
            lambda: (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3), torch.ones(3, dtype=torch.bool), BASE),
            TypeError,
            r"convert the mask: mask.nonzero\(\).flatten\(\)",
        ),
        (
            lambda: (torch.zeros(3, 1, 3), torch.zeros(3, 1, 3), ALL, SceneEntityCfg(body_names=("bas",))),
            ValueError,
            "did you mean 'base'",
        ),
    ],
)
def test_what_is_no_wrench_is_refused(call, error, message):
    caught = []

    class Wrong(PushedEnv):
        def _advance(self) -> None:
            if self.step_counter == 0:
                return
            with pytest.raises(error, match=message) as info:
                self.scene["robot"].data.write_wrench(*call())
            caught.append(info)

    with Wrong() as env:
        env.reset()
        steps(env, 1)
        assert not env._wrench_values.any()
    assert len(caught) == 1


def test_a_wrench_that_is_not_finite_is_named_in_the_step_that_wrote_it():
    env = pushed({2: [([1], float("nan"))]})
    steps(env, 1)
    with pytest.raises(
        NonFiniteError,
        match=r"step: wrench is not finite at rows \[1\], columns \['robot/base:force_w\[x\]'\]",
    ):
        env.step(zeros(env))
    assert env.faulted
    env.close()


def test_a_guarded_row_with_a_wrench_that_is_not_finite_ends_and_begins_anew_without_it(tmp_path):
    guard = NanGuardCfg(policy="reset_row", dump_dir=str(tmp_path), max_dumps=0)
    with pushed({2: [([1], float("nan")), ([0], 5.0)]}, cfg=ScriptedCfg(num_envs=N, nan_guard=guard)) as env:
        steps(env, 1)
        state = env.step(zeros(env))
        assert state.info["nonfinite_rows"].tolist() == [False, True, False]
        assert env._wrench_values[:, 0].tolist() == [5.0, 0.0, 0.0]
        assert speeds(env, 1) == [[0.1, 0.0, 0.0]]


def test_a_robot_without_declared_bodies_still_steps():
    with RobotEnv(2) as env:
        env.reset()
        assert env.step(zeros(env)) is not None
