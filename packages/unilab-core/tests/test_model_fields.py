"""Model fields that differ per row: declared, randomised from a baseline, committed with the reset."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros
from velocity import FIELDS, VelocityEnv, fake_backend, legged_spec, mujoco_backend

from unilab_core import ConfigError, ResetRejectedError, SceneEntityCfg, writes
from unilab_core.writes import declared_writes
from unisim import Declared, EntityCfg, SceneCfg, SimCfg, make_backend
from unisim.testing import FakeBackend, make_layout

MASS = 5.0
ALL = torch.arange(3)


def body_env(*fields, startup=None, **options):
    """A fake of two entities; `robot/base` weighs 5 kg, `other/base` 1 kg."""
    layout = make_layout(
        joints=("robot/slider", "other/slider"), actuated=("robot/slider",), geoms=("robot/box",)
    )
    nominal = layout.fields["body_mass"]
    layout.fields["body_mass"] = type(nominal)(nominal.shape, (0.0, MASS, 1.0))
    backend = FakeBackend(layout, 3, declared=Declared(model_fields=fields or ("body_mass",)))
    kind = ScriptedEnv
    if startup is not None:
        kind = type("Starting", (ScriptedEnv,), {"_stage_startup": startup})
    return kind(3, backend=backend, **options)


def held(env, field="body_mass"):
    return env.state_dict()["backend"][f"field:{field}"]


def change(env, operation, ids, field="body_mass", entity="robot"):
    data = env.scene[entity].data
    data.write_model(field, operation(data.model_values(field, ids)), ids)


@pytest.mark.parametrize(
    ("operation", "expected"), [(lambda v: v * 1.1, 5.5), (lambda v: v + 1.0, 6.0), (lambda v: v, 5.0)]
)
def test_qa_052_repeated_resets_start_from_the_stored_value(operation, expected):
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: change(env, operation, ids)
        for _ in range(5):
            env.reset()
            torch.testing.assert_close(held(env)[:, 1], torch.full((3,), expected, dtype=torch.float64))
            assert held(env)[:, 2].tolist() == [1.0] * 3


def test_an_identity_range_leaves_the_engines_own_value_to_the_bit():
    with VelocityEnv(mujoco_backend(), seed=3) as env:
        nominal = torch.tensor(env.model_layout.fields["body_mass"].nominal, dtype=torch.float64)
        env.randomise = lambda field, ids, low, high: change(env, lambda v: v * 1.0, ids, field)
        env.reset()
        assert torch.equal(held(env), nominal.expand(6, -1))


def test_two_events_on_one_field_compose_in_their_order():
    with body_env() as env:

        def stage(ids):
            change(env, lambda v: v * 2.0, ids)
            change(env, lambda v: v + 1.0, ids)

        env.inject["_stage_reset"] = stage
        for _ in range(3):
            env.reset()
            assert held(env)[:, 1].tolist() == [11.0] * 3


def test_values_of_startup_events_are_the_baseline_and_one_commit():
    def startup(self, ids):
        change(self, lambda v: v * torch.tensor([[1.0], [2.0], [3.0]]), ids)

    with body_env(startup=startup) as env:
        assert env.transfer_stats.reset.transfers == 1
        assert held(env)[:, 1].tolist() == [5.0, 10.0, 15.0]
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v + 1.0, ids)
        for _ in range(3):
            env.reset()
            assert held(env)[:, 1].tolist() == [6.0, 11.0, 16.0]


def test_a_reset_changes_the_fields_of_its_rows_only():
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v + 1.0 + env.step_counter, ids)
        env.reset()
        steps(env, 3)
        env.reset(torch.tensor([1]))
        assert held(env)[:, 1].tolist() == [6.0, 9.0, 6.0]


def test_rows_and_elements_that_no_event_writes_keep_what_they_hold():
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v * 2.0, ids)
        env.reset()
        # An event that is due in row 0 only, and one of the other entity.
        env.inject["_stage_reset"] = lambda ids: (
            change(env, lambda v: v * 3.0, ids[:1]),
            change(env, lambda v: v * 7.0, ids, entity="other"),
        )
        env.reset()
        assert held(env)[:, 1].tolist() == [15.0, 10.0, 10.0]
        assert held(env)[:, 2].tolist() == [7.0] * 3
        env.inject["_stage_reset"] = lambda ids: None
        env.reset()
        assert held(env)[:, 1].tolist() == [15.0, 10.0, 10.0]


def test_outside_of_a_reset_the_values_are_those_the_rows_hold():
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v + env.step_counter, ids)
        env.reset()
        steps(env, 2)
        env.reset(torch.tensor([2]))
        assert env.scene["robot"].data.model_values("body_mass", ALL).flatten().tolist() == [5.0, 5.0, 7.0]


def test_a_rejected_reset_changes_no_model_field():
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v * 2.0, ids)
        env.reset()
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v * -1.0, ids)
        with pytest.raises(
            ResetRejectedError, match="ScriptedEnv.reset: model field 'body_mass' of row 1: a mass must"
        ):
            env.reset(torch.tensor([1]))
        assert held(env)[:, 1].tolist() == [10.0] * 3
        assert env.scene["robot"].data.model_values("body_mass", ALL).flatten().tolist() == [10.0] * 3


def test_gravity_is_one_for_all_entities():
    with body_env("gravity") as env:
        env.inject["_stage_reset"] = lambda ids: env.scene["robot"].data.write_model(
            "gravity", torch.tensor([[0.0, 0.0, -1.0]]).expand(ids.numel(), 3), ids
        )
        env.reset(torch.tensor([1]))
        env.reset(torch.tensor([0, 2]))
        assert held(env, "gravity").tolist() == [[0.0, 0.0, -1.0]] * 3


def test_each_kind_of_field_gives_the_entitys_own_elements():
    scene = SceneCfg(entities={name: EntityCfg(spec=legged_spec) for name in ("left", "right")})
    fields = ("body_mass", "geom_friction", "dof_damping", "actuator_gainprm")
    backend = make_backend(
        "mujoco", scene, SimCfg(timestep=0.01), num_envs=2, declared=Declared(model_fields=fields)
    )

    class Two(ScriptedEnv):
        num_actions = 4

        def _observe(self, ids):
            rows = torch.zeros(2, 3)
            return {"obs": rows if ids is None else rows[ids]}

    with Two(2, backend=backend) as env:
        data = env.scene["right"].data
        shapes = {field: tuple(data.model_values(field, torch.arange(2)).shape) for field in fields}
        assert shapes == {
            "body_mass": (2, 3),
            "geom_friction": (2, 4, 3),
            "dof_damping": (2, 8),
            "actuator_gainprm": (2, 2, 10),
        }
        torch.testing.assert_close(
            data.model_values("body_mass", torch.arange(1)), torch.tensor([[2.0, 0.4, 0.1]])
        )
        entity = env.scene["right"]
        assert entity.element_ids(SceneEntityCfg(body_names=("foot", "base")), "body").tolist() == [0, 2]
        assert entity.element_ids(SceneEntityCfg(joint_names=("knee",)), "dof") == slice(7, 8)
        assert entity.element_ids(SceneEntityCfg(), "dof") == slice(0, 8)
        assert entity.element_ids(SceneEntityCfg(actuator_names=("knee",)), "actuator") == slice(1, 2)
        assert entity.sensor_names == ("gyro", "accelerometer", "speed")
        assert entity.geom_names == ("floor", "trunk", "thigh", "toe")
        assert entity.element_ids(SceneEntityCfg(geom_names=("t.*",)), "geom") == slice(1, 4)


# ---------------------------------------------------------------- what is refused


def test_an_undeclared_field_is_found_by_the_dry_first_reset_with_the_remedy():
    class Undeclared(VelocityEnv):
        def _stage_reset(self, ids):
            super()._stage_reset(ids)
            self.randomise("body_inertia", ids, 0.9, 1.1)

    message = (
        r"reset: RuntimeError: robot.model_values: model field 'body_inertia' was not declared .* "
        r"put @writes\('body_inertia'\) on the term"
    )
    with pytest.raises(ConfigError, match=message):
        Undeclared(mujoco_backend())


def test_an_unknown_field_is_a_key_error_with_the_nearest():
    with VelocityEnv(fake_backend()) as env, pytest.raises(KeyError, match="did you mean 'body_mass'"):
        env.scene["robot"].data.model_values("body_mas", ALL)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.ones(1, 2), ValueError, r"body_mass has shape \(1, 2\), expected \(1, 1\)"),
        (torch.ones(1), ValueError, r"body_mass has shape \(1,\), expected \(1, 1\)"),
        (torch.ones(1, 1).double(), TypeError, "body_mass is torch.float64, expected a float32 tensor"),
        (5.0, TypeError, "body_mass is float, expected a float32 tensor"),
    ],
)
def test_values_of_another_shape_or_kind_reject_the_reset(values, error, message):
    with body_env() as env:
        env.inject["_stage_reset"] = lambda ids: env.scene["robot"].data.write_model("body_mass", values, ids)
        with pytest.raises(ResetRejectedError, match=message) as caught:
            env.reset(torch.tensor([1]))
        assert isinstance(caught.value.__cause__, error)


def test_a_field_of_a_row_that_is_not_reset_is_refused():
    with body_env() as env:
        env.reset()
        env.inject["_stage_reset"] = lambda ids: change(env, lambda v: v, torch.tensor([0]))
        with pytest.raises(ResetRejectedError, match="wrote rows that are not being reset"):
            env.reset(torch.tensor([1]))


def test_model_fields_are_not_written_in_a_step():
    env = body_env()
    env.reset()
    env.inject["_advance"] = lambda: change(env, lambda v: v, ALL)
    with pytest.raises(
        RuntimeError, match="robot.write_model: model fields are written by reset and startup events"
    ):
        env.step(zeros(env))
    env.close()


def test_startup_values_that_are_not_physical_are_a_config_error():
    def startup(self, ids):
        change(self, lambda v: -v, ids)

    with pytest.raises(
        ConfigError, match="startup: ResetRejectedError: .*model field 'body_mass' of row 0: a mass must"
    ):
        body_env(startup=startup)


def test_declared_writes_add_up_and_unknown_ones_are_refused():
    @writes("body_mass")
    @writes(*FIELDS[1:])
    def term(env):
        return None

    assert declared_writes(term) == ("dof_damping", "body_mass")
    assert declared_writes(steps) == ()
    with pytest.raises(ValueError, match="writes: unknown model field 'mass'; did you mean 'body_mass'"):
        writes("mass")
