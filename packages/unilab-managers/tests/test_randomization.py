"""Randomised model fields on a fake: exact values, ranges, composition, rows; nothing drifts."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from event_support import (
    INERTIA,
    KD,
    KP,
    MASS,
    distinct,
    env_of,
    event,
    fake_model_env,
    full_layout,
    held,
    nominal,
    run,
)
from manager_support import ids

from unilab_core import ConfigError, ResetRejectedError, SceneEntityCfg
from unilab_core.writes import declared_writes
from unilab_managers.mdp import joint_randomization, randomization
from unilab_managers.mdp.joint_randomization import (
    randomize_actuator_gains,
    randomize_effort_limits,
    randomize_joint_armature,
    randomize_joint_damping,
    randomize_joint_friction,
)
from unilab_managers.mdp.randomization import (
    randomize_body_com,
    randomize_body_inertia,
    randomize_body_inertia_axes,
    randomize_body_mass,
    randomize_body_mass_and_inertia,
    randomize_geom_friction,
    randomize_geom_size,
    randomize_gravity,
)
from unisim import ModelLayout
from unisim.randomization import MODEL_FIELDS

HALF = {"scale_range": (0.5, 0.5)}
BASE = SceneEntityCfg(body_names=("base",))
KNEE, FOOT = SceneEntityCfg(joint_names=("knee",)), SceneEntityCfg(geom_names=("foot",))

# Each term with a range of no width, and what one field then holds. Float32 draws, so values are near, not equal.
EXACT: list[tuple[Any, dict[str, Any], str, Any]] = [
    (randomize_body_mass, {"mass_range": (1.1, 1.1)}, "body_mass", [0.0, 5.5]),
    (
        randomize_body_mass,
        {"mass_range": (7.0, 7.0), "operation": "abs", "asset_cfg": SceneEntityCfg(body_names=("base",))},
        "body_mass",
        [0.0, 7.0],
    ),
    (randomize_body_com, {"offset_range": {"y": (0.5, 0.5)}}, "body_ipos", [[0.0] * 3, [0.01, 0.48, 0.03]]),
    (
        randomize_body_inertia_axes,
        {"angle_range": {"yaw": (3.141592653589793, 3.141592653589793)}},
        "body_iquat",
        [[1.0, 0.0, 0.0, 0.0], [-0.8, 0.0, 0.0, 0.6]],  # (0.6 + 0.8 k) k
    ),
    (
        randomize_body_inertia,
        {"scale_range": (2.0, 2.0)},
        "body_inertia",
        [[0.0] * 3, [2 * i for i in INERTIA]],
    ),
    (
        randomize_geom_friction,
        {"friction_range": (0.4, 0.4)},
        "geom_friction",
        [[0.4, 0.01, 0.001], [0.4, 0.02, 0.002]],
    ),
    (
        randomize_geom_friction,
        {"friction_range": (2.0, 2.0), "operation": "scale", "axes": ("spin", "roll"), "asset_cfg": FOOT},
        "geom_friction",
        [[0.8, 0.01, 0.001], [1.5, 0.04, 0.004]],
    ),
    (randomize_geom_size, HALF, "geom_size", [[0.05, 0.1, 0.15], [0.025, 0.0, 0.0]]),
    (
        randomize_joint_armature,
        {"armature_range": (1.0, 1.0), "operation": "add"},
        "dof_armature",
        [0.0] * 6 + [1.01, 1.02],
    ),
    (
        randomize_joint_damping,
        {"damping_range": (3.0, 3.0), "asset_cfg": KNEE},
        "dof_damping",
        [0.0] * 6 + [0.1, 0.9],
    ),
    (
        randomize_joint_friction,
        {"friction_range": (0.7, 0.7), "operation": "abs"},
        "dof_frictionloss",
        [0.0] * 6 + [0.7, 0.7],
    ),
    (randomize_effort_limits, HALF, "actuator_forcerange", [[-5.0, 5.0], [-15.0, 10.0]]),
    (
        randomize_gravity,
        {"offset_range": {"x": (1.0, 1.0), "z": (-0.19, -0.19)}},
        "gravity",
        [1.0, 0.0, -10.0],
    ),
]


@pytest.mark.parametrize(("func", "params", "field", "expected"), EXACT)
@pytest.mark.parametrize("mode", ["reset", "startup"])
def test_a_range_of_no_width_is_exact_in_every_row_and_repeated_resets_do_not_drift(
    func: Any, params: dict[str, Any], field: str, expected: Any, mode: str
) -> None:
    with env_of(func, mode=mode, **params) as env:
        values = torch.tensor(expected, dtype=torch.float64).expand(3, *env.model_layout.fields[field].shape)
        for _ in range(4):
            torch.testing.assert_close(held(env, field), values, rtol=1e-6, atol=1e-7)
            run(env, 1)
            env.reset(ids(0, 2))
            env.reset()


# ---------------------------------------------------------------- identity

IDENTITY: list[tuple[Any, dict[str, Any]]] = [
    *(
        (func, {name: limits, "operation": operation, "distribution": distribution})
        for func, name in (
            (randomize_body_mass, "mass_range"),
            (randomize_body_mass_and_inertia, "mass_range"),
            (randomize_joint_armature, "armature_range"),
            (randomize_joint_damping, "damping_range"),
            (randomize_joint_friction, "friction_range"),
            (randomize_geom_friction, "friction_range"),
        )
        for operation, limits, distribution in (
            ("scale", (1.0, 1.0), "uniform"),
            ("scale", (1.0, 1.0), "log_uniform"),
            ("add", (0.0, 0.0), "uniform"),
        )
    ),
    (
        randomize_geom_friction,
        {"friction_range": (1.0, 1.0), "operation": "scale", "axes": ("slide", "spin", "roll")},
    ),
    (randomize_body_com, {"offset_range": {"x": (0.0, 0.0)}}),
    (randomize_body_inertia_axes, {"angle_range": {"roll": (0.0, 0.0)}}),
    (randomize_body_inertia, {"scale_range": (1.0, 1.0)}),
    (randomize_geom_size, {"scale_range": (1.0, 1.0)}),
    (randomize_effort_limits, {"scale_range": (1.0, 1.0)}),
    (randomize_gravity, {"offset_range": {}}),
    (randomize_actuator_gains, {"kp_range": (1.0, 1.0), "kd_range": (1.0, 1.0)}),
    (randomize_actuator_gains, {"kp_range": (0.0, 0.0), "operation": "add"}),
    (randomize_actuator_gains, {"kp_range": (KP, KP), "operation": "abs"}),
    (randomize_actuator_gains, {"kd_range": (KD, KD), "operation": "abs", "distribution": "log_uniform"}),
]


@pytest.mark.parametrize(("func", "params"), IDENTITY)
def test_an_identity_range_leaves_the_engines_numbers_to_the_bit(func: Any, params: dict[str, Any]) -> None:
    with env_of(func, **params) as env:
        for field in declared_writes(func):
            assert torch.equal(held(env, field), nominal(env, field).expand_as(held(env, field))), field


def test_every_field_that_can_differ_per_row_has_a_term() -> None:
    terms = [
        getattr(module, name) for module in (randomization, joint_randomization) for name in module.__all__
    ]
    assert {field for term in terms for field in declared_writes(term)} == set(MODEL_FIELDS)
    covered = {func for func, *_ in EXACT} | {randomize_actuator_gains, randomize_body_mass_and_inertia}
    assert covered == set(terms)


# ---------------------------------------------------------------- the faults others had


@pytest.mark.parametrize(
    ("operation", "limits", "expected"),
    [("scale", (1.1, 1.1), 5.5), ("add", (1.0, 1.0), 6.0), ("abs", (2.0, 2.0), 2.0)],
)
def test_qa_052_five_resets_start_from_the_stored_mass(
    operation: str, limits: tuple[float, float], expected: float
) -> None:
    with env_of(randomize_body_mass, mass_range=limits, operation=operation, asset_cfg=BASE) as env:
        for _ in range(5):
            env.reset()
            assert held(env, "body_mass")[:, 1].tolist() == pytest.approx([expected] * 3, rel=1e-6)


def test_qa_052_two_terms_on_one_field_compose_in_the_order_of_declaration() -> None:
    double = event(randomize_body_mass, mass_range=(2.0, 2.0))
    more = event(randomize_body_mass, mass_range=(1.0, 1.0), operation="add")
    for events, expected in (({"a": double, "b": more}, 11.0), ({"b": more, "a": double}, 12.0)):
        with fake_model_env(events) as env:
            for _ in range(3):
                env.reset()
                assert held(env, "body_mass")[:, 1].tolist() == [expected] * 3


def test_qa_052_resets_start_from_what_startup_gave_each_row() -> None:
    events = {
        "made": event(randomize_body_mass, "startup", mass_range=(0.5, 2.0)),
        "load": event(randomize_body_mass, mass_range=(1.0, 1.0), operation="add"),
    }
    with fake_model_env(events, 4) as env:
        made = held(env, "body_mass")[:, 1].clone()
        assert distinct(made) == 4
        for _ in range(3):
            env.reset()
            torch.testing.assert_close(held(env, "body_mass")[:, 1], made + 1.0)


def test_qa_054_inertia_follows_the_mass_only_where_asked() -> None:
    with env_of(randomize_body_mass, mass_range=(2.0, 2.0)) as env:
        assert held(env, "body_mass")[:, 1].tolist() == [2 * MASS] * 3
        assert declared_writes(randomize_body_mass) == ("body_mass",)
        assert "leaves inertias as they are" in str(randomize_body_mass.__doc__)
    for operation, limits in (("scale", (2.0, 2.0)), ("add", (MASS, MASS)), ("abs", (2 * MASS, 2 * MASS))):
        with env_of(
            randomize_body_mass_and_inertia, mass_range=limits, operation=operation, asset_cfg=BASE
        ) as env:
            expected = torch.tensor([0.04167, 0.14167, 0.16667], dtype=torch.float64).expand(3, 3)
            for _ in range(2):
                torch.testing.assert_close(held(env, "body_inertia")[:, 1], expected, atol=2e-5, rtol=0.0)
                assert held(env, "body_mass")[:, 1].tolist() == [10.0] * 3
                env.reset()


def test_qa_054_inertia_scales_with_each_bodys_own_mass_and_row() -> None:
    with env_of(randomize_body_mass_and_inertia, 6, mass_range=(0.5, 1.5)) as env:
        factor = held(env, "body_mass")[:, 1:] / MASS
        assert distinct(factor) == 6
        expected = torch.tensor(INERTIA, dtype=torch.float64) * factor
        torch.testing.assert_close(held(env, "body_inertia")[:, 1], expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("limits", [(-5.0, -5.0), (-6.0, -6.0)])
def test_qa_054_a_mass_that_is_not_positive_is_refused(limits: tuple[float, float]) -> None:
    with pytest.raises((ConfigError, ResetRejectedError), match="a mass must be positive"):
        env_of(randomize_body_mass, mass_range=limits, operation="add")


def test_qa_056_a_partial_reset_changes_the_model_of_its_rows_only() -> None:
    fields = ("body_mass", "geom_friction", "gravity")
    events = {
        "mass": event(randomize_body_mass, mass_range=(0.5, 2.0)),
        "friction": event(randomize_geom_friction, friction_range=(0.2, 1.2)),
        "gravity": event(randomize_gravity, offset_range={"z": (-1.0, 1.0)}),
    }
    with fake_model_env(events, 4) as env:
        env.reset()
        run(env, 1)
        before = {field: held(env, field).clone() for field in fields}
        env.reset(ids(2))
        for field in fields:
            now = held(env, field)
            assert torch.equal(now[[0, 1, 3]], before[field][[0, 1, 3]]), field
            assert not torch.equal(now[2], before[field][2]), field
        data = env.scene["robot"].data
        assert (
            data.model_values("body_mass", torch.arange(4)).flatten().tolist()
            == held(env, "body_mass")[:, 1].tolist()
        )


def test_no_rows_are_randomised_without_a_word() -> None:
    draws = []
    with env_of(randomize_body_mass, mass_range=(0.5, 2.0)) as env:
        draws.append(env.rng.get_state())
        before = held(env, "body_mass").clone()
        env.event_manager.apply(mode="reset", env_ids=ids(), global_env_step_count=0)
        env.reset(ids())
        assert torch.equal(held(env, "body_mass"), before)
        assert torch.equal(env.rng.get_state(), draws[0])


# ---------------------------------------------------------------- gains


@pytest.mark.parametrize(
    ("operation", "kp", "kd", "expected"),
    [
        ("scale", (2.0, 2.0), None, (2 * KP, KD)),
        ("scale", None, (2.0, 2.0), (KP, 2 * KD)),
        ("add", (5.0, 5.0), (0.25, 0.25), (KP + 5.0, KD + 0.25)),
        ("abs", (7.0, 7.0), (0.125, 0.125), (7.0, 0.125)),
    ],
)
def test_gains_of_position_actuators_change_in_all_their_places(
    operation: str, kp: Any, kd: Any, expected: tuple[float, float]
) -> None:
    with env_of(randomize_actuator_gains, kp_range=kp, kd_range=kd, operation=operation) as env:
        for _ in range(2):
            gain, bias = held(env, "actuator_gainprm"), held(env, "actuator_biasprm")
            assert gain[..., 0].tolist() == [[expected[0]] * 2] * 3
            assert bias[..., 1].tolist() == [[-expected[0]] * 2] * 3
            assert bias[..., 2].tolist() == [[-expected[1]] * 2] * 3
            assert bias[..., 0].tolist() == [[0.0] * 2] * 3
            env.reset()


def test_stiffness_and_damping_draw_their_own_numbers_and_a_stiffness_stays_one() -> None:
    with env_of(randomize_actuator_gains, 50, kp_range=(0.5, 2.0), kd_range=(0.5, 2.0)) as env:
        gain, bias = held(env, "actuator_gainprm"), held(env, "actuator_biasprm")
        assert torch.equal(gain[..., 0], -bias[..., 1])
        factors = torch.stack([gain[..., 0] / KP, -bias[..., 2] / KD])
        assert distinct(factors) == 200
        assert bool(((factors >= 0.5) & (factors <= 2.0)).all())


def test_gains_of_one_actuator_leave_the_others() -> None:
    knee = SceneEntityCfg(actuator_names=("knee",))
    with env_of(randomize_actuator_gains, kp_range=(2.0, 2.0), asset_cfg=knee) as env:
        assert held(env, "actuator_gainprm")[..., 0].tolist() == [[KP, 2 * KP]] * 3


def with_field(name: str, *values: float) -> ModelLayout:
    """Returns the layout with other values of one field."""
    layout = full_layout()
    fields = dict(layout.fields) | {name: replace(layout.fields[name], nominal=values)}
    return replace(layout, fields=fields)


@pytest.mark.parametrize("name", ["actuator_biasprm", "actuator_gainprm"])
def test_an_actuator_without_a_stiffness_is_refused_at_construction(name: str) -> None:
    layout = with_field(
        name, *full_layout().fields[name].nominal[:10], *[0.0] * 10
    )  # the knee is a motor, or nothing
    events = {"gains": event(randomize_actuator_gains, kp_range=(1.0, 1.0))}
    with pytest.raises(ConfigError, match=r"events term 'gains': .*actuators \['knee'\] have no stiffness"):
        fake_model_env(events, layout=layout)
    hip = SceneEntityCfg(actuator_names=("hip",))
    with fake_model_env(
        {"gains": event(randomize_actuator_gains, kp_range=(2.0, 2.0), asset_cfg=hip)}, layout=layout
    ):
        pass


def test_an_actuator_with_neither_gain_nor_bias_has_no_stiffness_either() -> None:
    layout = with_field("actuator_gainprm", *[0.0] * 20)
    bias = replace(layout.fields["actuator_biasprm"], nominal=(0.0,) * 20)
    layout = replace(layout, fields=dict(layout.fields) | {"actuator_biasprm": bias})
    with pytest.raises(ConfigError, match=r"actuators \['hip', 'knee'\] have no stiffness"):
        fake_model_env({"gains": event(randomize_actuator_gains, kp_range=(1.0, 1.0))}, layout=layout)


def test_a_body_without_mass_stays_without_where_density_changes() -> None:
    layout = with_field("body_mass", 0.0, 0.0)
    none = replace(layout.fields["body_inertia"], nominal=(0.0,) * 6)
    layout = replace(layout, fields=dict(layout.fields) | {"body_inertia": none})
    events = {"density": event(randomize_body_mass_and_inertia, mass_range=(2.0, 2.0))}
    with fake_model_env(events, layout=layout) as env:
        env.reset()
        assert held(env, "body_mass").tolist() == [[0.0, 0.0]] * 3
        assert held(env, "body_inertia").abs().max() == 0.0


def test_gains_without_any_range_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="events term 'change': ValueError: neither kp_range nor kd_range is given"
    ):
        env_of(randomize_actuator_gains)
