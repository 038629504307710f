"""Controls that follow the state from substep to substep: what acts, what moves, and what if one is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from core_support import ScriptedCfg, ScriptedEnv, assert_same, copied, steps, zeros
from twins import assert_twins
from velocity import VelocityCfg, VelocityEnv, actions_of, fake_backend, mujoco_backend

from unilab_core import ConfigError, NanGuardCfg, NonFiniteError
from unilab_core.nan_replay import load_dump, replay_dump
from unisim import Declared, TensorExecution
from unisim.testing import FakeBackend, Fault, make_layout

N, DT, SUBSTEPS = 3, 0.01, 4
KINDS = ("control", "read", "reset", "selected_read", "write", "verdict")
FOLLOWER = "actions term 'spring'"


class SpringEnv(ScriptedEnv):
    """The control pulls the slider back by its position, in every substep: -stiffness x position."""

    stiffness = 4.0

    def _following(self):
        return (FOLLOWER,)

    def _control(self, actions):
        self._action = actions
        return self._pull()

    def _follow(self, control):
        self.calls.append(("_follow", None))
        found = self.inject.get("_follow")
        return found(control) if found else self._pull()

    def _pull(self):
        return -self.stiffness * self.scene["robot"].data.joint_pos[:, :1]

    def _stage_reset(self, ids):
        place = torch.linspace(0.5, 1.0, self.num_envs)[ids].unsqueeze(1)
        self.scene["robot"].data.write_joint_state(place, torch.zeros_like(place), ids, slice(0, 1))


class OpenEnv(SpringEnv):
    """The same spring, whose control holds for a whole step."""

    def _following(self):
        return ()


class ConstantEnv(VelocityEnv):
    """A control that follows nothing: the one before, again."""

    def _following(self):
        return ("itself",)


def cfg(**changes):
    return ScriptedCfg(**({"num_envs": N, "decimation": SUBSTEPS, "episode_length_s": 20.0} | changes))


def spring(kind=SpringEnv, *, execution=TensorExecution.HOST_BRIDGE, faults=(), settings=None, **options):
    layout = make_layout(sensors={"imu": (3, "acceleration")}, sites=("robot/tip",))
    backend = FakeBackend(layout, N, execution=execution, faults=faults, **options)
    env = kind(N, backend=backend, cfg=settings or cfg())
    env.reset()
    return env


def counts(env):
    stats = env.transfer_stats
    return {kind: (getattr(stats, kind).transfers, getattr(stats, kind).bytes) for kind in KINDS}


def moved(env, call):
    """Returns the transfers and bytes that a call adds, kinds that it leaves alone left out."""
    before = counts(env)
    call()
    return {
        kind: (transfers - before[kind][0], size - before[kind][1])
        for kind, (transfers, size) in counts(env).items()
        if transfers != before[kind][0]
    }


def model(position, substeps, stiffness=4.0, hold=1):
    """A spring by hand, in double precision: the control is renewed every `hold` substeps."""
    velocity = control = 0.0
    for substep in range(substeps):
        if substep % hold == 0:
            control = -stiffness * position
        velocity += DT * control
        position += DT * velocity
    return position


# ---------------------------------------------------------------- what acts


@pytest.mark.parametrize("execution", list(TensorExecution))
def test_the_control_of_every_substep_is_that_of_the_state_before_it(execution):
    with spring(execution=execution) as env:
        for number in range(1, 6):
            steps(env, 1)
            expected = [model(place, SUBSTEPS * number) for place in (0.5, 0.75, 1.0)]
            assert env.scene["robot"].data.joint_pos[:, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_control_that_holds_for_a_step_acts_otherwise():
    with spring(OpenEnv) as env, spring() as closed:
        for each in (env, closed):
            each.stiffness = 40.0
            steps(each, 5)
        held = [model(place, 5 * SUBSTEPS, 40.0, hold=SUBSTEPS) for place in (0.5, 0.75, 1.0)]
        positions = env.scene["robot"].data.joint_pos[:, 0]
        assert positions.tolist() == pytest.approx(held, abs=1e-6)
        assert (positions - closed.scene["robot"].data.joint_pos[:, 0]).abs().min() > 1e-3


def test_nobody_is_asked_to_follow_where_nobody_does():
    with spring(OpenEnv) as env:
        env.calls.clear()
        steps(env, 2)
        assert ("_follow", None) not in env.calls


def test_the_first_control_of_a_step_is_the_judged_one():
    with spring() as env:
        env.calls.clear()
        steps(env, 1)
        assert [name for name, _ in env.calls].count("_follow") == SUBSTEPS - 1


@pytest.mark.parametrize("make", [mujoco_backend, fake_backend], ids=["mujoco", "fake"])
def test_the_same_control_again_moves_everything_bit_for_bit_as_one_control_does(make):
    with VelocityEnv(make(), seed=4) as env, ConstantEnv(make(), seed=4) as by_substep:
        generators = [torch.Generator().manual_seed(0) for _ in range(2)]
        for each in (env, by_substep):
            each.reset()
        for _ in range(60):
            one, two = (
                copied(e.step(actions_of(e, g))) for e, g in zip((env, by_substep), generators, strict=True)
            )
            assert_same(one, two)
        assert_same(env.observations(), by_substep.observations())


# ---------------------------------------------------------------- what moves


def test_each_substep_moves_one_control_and_one_read():
    with spring() as env:
        width = env._io.width
        one = moved(env, lambda: steps(env, 1))
        assert one == {
            "control": (SUBSTEPS, SUBSTEPS * 4 * N * 1),
            "read": (SUBSTEPS, SUBSTEPS * 4 * N * width),
            "verdict": (2, one["verdict"][1]),
        }


def test_a_reset_costs_what_it_always_costs():
    with spring() as env, spring(OpenEnv) as plain:
        ids = torch.tensor([0, 2])
        assert moved(env, lambda: env.reset(ids)) == moved(plain, lambda: plain.reset(ids))


def test_on_a_resident_backend_nothing_moves():
    with spring(execution=TensorExecution.DEVICE_RESIDENT) as env:
        steps(env, 3)
        assert env.describe().ledger == ()
        assert all(count == (0, 0) for count in counts(env).values())


def test_the_ledger_says_what_each_step_moves_and_for_whom():
    with spring() as env:
        ledger = {(packet.kind, packet.when): packet for packet in env.describe().ledger}
        for kind in ("control", "read"):
            assert ledger[kind, "step"].who == f"each substep, for {FOLLOWER}"
        for _ in range(3):
            found = moved(env, lambda: steps(env, 1))
            assert found == {
                kind: (ledger[kind, "step"].transfers, ledger[kind, "step"].num_bytes())
                for kind in ("control", "read", "verdict")
            }


def test_where_nobody_follows_the_ledger_names_nobody():
    with spring(OpenEnv) as env:
        assert {packet.who for packet in env.describe().ledger} == {""}


# ---------------------------------------------------------------- histories


class HistoryEnv(SpringEnv):
    """Shows the sensor's history."""

    @property
    def obs_groups_spec(self):
        return {"obs": SUBSTEPS * 3}

    def _observe(self, ids):
        shown = self.scene.sensor_history("imu").flatten(1).clone()
        return {"obs": shown if ids is None else shown[ids]}


@pytest.mark.parametrize("execution", list(TensorExecution))
def test_a_substep_history_holds_every_substep_and_is_zero_after_a_reset(execution):
    def count(number, state):
        return {
            "sensor:imu": torch.tensor([[number, 10.0 * number, 0.0]], dtype=state["qpos"].dtype).expand(N, 3)
        }

    declared = Declared(substep_sensors=("imu",), decimation=SUBSTEPS)
    with spring(HistoryEnv, execution=execution, script=count, declared=declared) as env:
        for step in range(3):
            shown = env.step(zeros(env)).obs["obs"].view(N, SUBSTEPS, 3)
            expected = [float(step * SUBSTEPS + i + 1) for i in range(SUBSTEPS)]
            assert shown[:, :, 0].tolist() == [expected] * N
            assert shown[:, :, 1].tolist() == [[10.0 * value for value in expected]] * N
        obs, _ = env.reset(torch.tensor([1]))
        assert obs["obs"].tolist() == [[0.0] * SUBSTEPS * 3]
        assert env.scene.sensor_history("imu")[0, :, 0].tolist() == expected


# ---------------------------------------------------------------- what is not finite


def spoil(env, row, value, at):
    """Makes the control of a row not finite in one substep, counted over all of them."""
    seen = iter(range(10_000))

    def follow(control):
        made = env._pull()
        if next(seen) == at:
            made[row] = value
        return made

    env.inject["_follow"] = follow


@pytest.mark.parametrize("execution", list(TensorExecution))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_control_that_is_not_finite_in_mid_step_names_its_column_and_row(value, execution):
    with spring(execution=execution) as env:
        spoil(env, 1, value, at=1)
        with pytest.raises(
            NonFiniteError,
            match=r"SpringEnv.step: control is not finite at rows \[1\], columns \['robot/slider'\]",
        ):
            env.step(zeros(env))
        assert env.faulted


def test_under_a_guard_the_row_ends_and_the_others_go_on():
    settings = cfg(nan_guard=NanGuardCfg(policy="reset_row", max_dumps=0))
    with spring(settings=settings) as env, spring() as twin:
        spoil(env, 1, math.nan, at=SUBSTEPS)  # in the second step
        steps(env, 1)
        steps(twin, 1)
        state, other = env.step(zeros(env)), twin.step(zeros(twin))
        assert state.terminated.tolist() == [False, True, False]
        assert state.info["nonfinite_rows"].tolist() == [False, True, False]
        for name in ("obs.obs", "reward"):
            assert torch.equal(copied(state)[name][[0, 2]], copied(other)[name][[0, 2]])


def test_a_row_whose_state_is_not_finite_ends_as_bad_and_is_no_error_of_its_control():
    class Blind(SpringEnv):
        """Observes nothing of the state."""

        def _observe(self, ids):
            shown = torch.ones(self.num_envs, 3)
            return {"obs": shown if ids is None else shown[ids]}

    with spring(Blind, faults=(Fault("nan", at=5, row=2),)) as env:
        steps(env, 1)
        state = env.step(zeros(env))
        assert state.terminated.tolist() == [False, False, True]
        assert state.info["log"]["bad_rows"] == 1
        assert torch.isfinite(env.scene["robot"].data.joint_pos).all()  # the row was reset
        assert steps(env, 1).terminated.tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda control: control.double(), r"TypeError: SpringEnv: _follow returned torch.float64"),
        (lambda control: control[:2], r"ValueError: SpringEnv: _follow returned \(2, 1\)"),
        (lambda control: None, r"TypeError: SpringEnv: _follow returned NoneType"),
    ],
)
def test_a_control_of_the_wrong_kind_is_refused_when_it_is_tried(made, problem):
    class Wrong(SpringEnv):
        def _follow(self, control):
            return made(control)

    Wrong.__name__ = "SpringEnv"
    with pytest.raises(ConfigError, match=problem):
        spring(Wrong)


# ---------------------------------------------------------------- state


def test_a_state_continues_bit_for_bit():
    with spring() as env, spring() as twin:
        steps(env, 3)
        twin.load_state_dict(env.state_dict())
        assert_twins(env, twin)
        for _ in range(3):
            assert_same(copied(steps(env, 1)), copied(steps(twin, 1)))


class Exploding(ConstantEnv):
    """A control of each substep's own; from step 3 on it shows a NaN."""

    def _follow(self, control):
        return control + 0.25

    def _rewards(self):
        return super()._rewards() + (math.nan if self.step_counter >= 3 else 0.0)


def test_a_dump_of_such_a_step_is_stepped_again_exactly(tmp_path):
    guard = NanGuardCfg(policy="raise", max_dumps=1, dump_dir=str(tmp_path))
    env = Exploding(mujoco_backend(), cfg=VelocityCfg(nan_guard=guard))
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        env.step(actions_of(env, generator))
    with pytest.raises(NonFiniteError, match="reward is not finite"):
        env.step(actions_of(env, generator))
    env.close()
    (path,) = tmp_path.iterdir()
    controls = load_dump(path)["ctrl"]
    assert controls.shape == (2, 6, 2)
    assert torch.equal(controls[1], controls[0] + 0.25)
    assert replay_dump(path).exact
