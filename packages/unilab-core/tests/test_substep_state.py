"""State out and in of environments whose controls follow the state and that show substep histories."""

from __future__ import annotations

import pytest
import torch
from core_support import assert_same, copied
from twins import assert_twins, differences
from velocity import DECIMATION, FIELDS, VelocityCfg, VelocityEnv, actions_of, fake_backend, mujoco_backend

from unisim import Declared, TensorExecution, make_backend
from unisim.testing import FakeBackend

SENSORS = ("robot/accelerometer", "robot/speed")
DECLARED = Declared(model_fields=FIELDS, substep_sensors=SENSORS, decimation=DECIMATION)


class HistoryEnv(VelocityEnv):
    """Damps its joints in every substep, and shows two sensors' histories."""

    @property
    def obs_groups_spec(self):
        return super().obs_groups_spec | {"critic": 2 * DECIMATION * 3}

    def _following(self):
        return ("damping",)

    def _follow(self, control):
        return control - 0.1 * self.scene["robot"].data.joint_vel

    def _observe(self, ids):
        shown = torch.cat([self.scene.sensor_history(name).flatten(1) for name in SENSORS], dim=1)
        groups = super()._observe(ids)
        return groups | {"critic": shown if ids is None else shown[ids]}


class HeldEnv(HistoryEnv):
    """The same histories under controls that hold for a step: the backend keeps them."""

    def _following(self):
        return ()


def on_mujoco():
    cfg = VelocityCfg()
    return make_backend("mujoco", cfg.scene, cfg.sim, num_envs=6, declared=DECLARED)


def on_fake(execution=TensorExecution.HOST_BRIDGE):
    """Its sensors say how often it stepped, so that no two substeps read alike."""

    class Counting(FakeBackend):
        def __init__(self, layout, num_envs, **options):
            def count(number, state):
                return {
                    f"sensor:{name}": torch.full((num_envs, 3), float(number)).double() for name in SENSORS
                }

            super().__init__(layout, num_envs, script=count, **options | {"declared": DECLARED})

    return fake_backend(kind=Counting, execution=execution)


BACKENDS = pytest.mark.parametrize("make", [on_mujoco, on_fake], ids=["mujoco", "fake"])
KINDS = pytest.mark.parametrize("kind", [HistoryEnv, HeldEnv])
# After 5 steps row 0 has just been reset: its histories are empty, those of the others are not.
TAKEN = pytest.mark.parametrize("taken", [0, 1, 5, 7])


def run(env, number, generator):
    return [copied(env.step(actions_of(env, generator))) for _ in range(number)]


def shown(env):
    return {name: env.scene.sensor_history(name).clone() for name in SENSORS}


@BACKENDS
@KINDS
@TAKEN
@pytest.mark.parametrize("ahead", [0, 3], ids=["new", "used"])
def test_another_environment_shows_the_same_histories_and_goes_on_bit_for_bit(
    make, kind, taken, ahead, tmp_path
):
    with kind(make(), seed=3) as env, kind(make(), seed=8) as other:
        generator = torch.Generator().manual_seed(0)
        env.reset()
        run(env, taken, generator)
        other.reset()
        run(other, ahead, torch.Generator().manual_seed(1))
        torch.save(env.state_dict(), tmp_path / "state.pt")
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert_same(shown(env), shown(other))
        assert_twins(env, other)
        again = torch.Generator()
        again.set_state(generator.get_state())
        for one, two in zip(run(env, 8, generator), run(other, 8, again), strict=True):
            assert_same(one, two)
        assert_twins(env, other)


@BACKENDS
@KINDS
@TAKEN
def test_an_environment_goes_back_to_its_own_state_and_repeats(make, kind, taken):
    with kind(make(), seed=3) as env:
        generator = torch.Generator().manual_seed(0)
        env.reset()
        run(env, taken, generator)
        state, before, draws = env.state_dict(), shown(env), generator.get_state()
        first = run(env, 8, generator)
        env.load_state_dict(state)
        assert_same(before, shown(env))
        assert differences(state, env.state_dict()) == []
        generator.set_state(draws)
        for one, two in zip(first, run(env, 8, generator), strict=True):
            assert_same(one, two)


def test_a_state_before_the_first_step_empties_the_histories_of_an_environment_that_stepped():
    with HistoryEnv(on_mujoco(), seed=3) as env:
        env.reset()
        state = env.state_dict()
        run(env, 2, torch.Generator().manual_seed(0))
        assert all(values.any() for values in shown(env).values())
        env.load_state_dict(state)
        assert not any(values.any() for values in shown(env).values())


def test_only_where_the_environment_puts_histories_together_they_are_part_of_its_state():
    held = (
        HeldEnv(on_fake()),
        VelocityEnv(mujoco_backend()),
        HistoryEnv(on_fake(TensorExecution.DEVICE_RESIDENT)),
    )
    for env in held:
        with env:
            assert set(env.state_dict()) == {"version", "values", "backend"}
    with HistoryEnv(on_fake()) as env:
        env.reset()
        run(env, 2, torch.Generator().manual_seed(0))
        state = env.state_dict()
        assert set(state) == {"version", "values", "backend", "histories"}
        expected = [[3.0] * 3 + [4.0] * 3] * 6
        assert {key: values.tolist() for key, values in state["histories"].items()} == {
            f"substep:{name}": expected for name in SENSORS
        }
        run(env, 1, torch.Generator().manual_seed(0))
        assert state["histories"]["substep:robot/speed"].tolist() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.pop("histories"),
            r"got keys \['backend', 'values', 'version'\], expected .*'histories'",
        ),
        (lambda state: state.update(histories=None), "histories: got NoneType, expected keys"),
        (
            lambda state: state["histories"].pop("substep:robot/speed"),
            r"histories: got keys \['substep:robot/accelerometer'\], expected keys .*'substep:robot/speed'",
        ),
        (
            lambda state: state["histories"].update({"substep:robot/speed": torch.zeros(6, 9)}),
            r"histories\['substep:robot/speed'\] is torch.float32 \(6, 9\), expected torch.float32 \(6, 6\)",
        ),
        (
            lambda state: state["histories"].update({"substep:robot/speed": torch.zeros(6, 6).double()}),
            r"histories\['substep:robot/speed'\] is torch.float64",
        ),
        (
            lambda state: state["histories"].update({"substep:robot/speed": [0.0]}),
            r"histories\['substep:robot/speed'\] is list",
        ),
    ],
)
def test_histories_that_do_not_fit_are_refused_and_nothing_has_changed(change, message):
    with HistoryEnv(on_fake(), seed=3) as env, HistoryEnv(on_fake(), seed=8) as other:
        for each in (env, other):
            each.reset()
            run(each, 2, torch.Generator().manual_seed(0))
        run(other, 1, torch.Generator().manual_seed(0))
        before, state = env.state_dict(), other.state_dict()
        change(state)
        with pytest.raises(ValueError, match=message):
            env.load_state_dict(state)
        assert differences(before, env.state_dict()) == []
        assert not env.faulted


def test_a_state_with_histories_is_refused_where_the_backend_keeps_them():
    with HistoryEnv(on_fake()) as env, HeldEnv(on_fake()) as other:
        for each in (env, other):
            each.reset()
        with pytest.raises(ValueError, match="got keys .*'histories'"):
            other.load_state_dict(env.state_dict())
