"""How randomised model fields are drawn on a fake: sharing, distributions, a thousand resets; what is refused."""

from typing import Any

import pytest
import torch
from event_support import (
    MASS,
    distinct,
    env_of,
    event,
    fake_model_env,
    held,
    nominal,
)
from manager_support import ids

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers.mdp.joint_randomization import (
    randomize_actuator_gains,
    randomize_effort_limits,
    randomize_joint_armature,
    randomize_joint_damping,
    randomize_joint_friction,
)
from unilab_managers.mdp.randomization import (
    randomize_body_com,
    randomize_body_inertia_axes,
    randomize_body_mass,
    randomize_body_mass_and_inertia,
    randomize_geom_friction,
    randomize_geom_size,
    randomize_gravity,
)
from unisim.randomization import MODEL_FIELDS

# ---------------------------------------------------------------- draws


def test_a_shared_draw_is_one_number_per_row_and_others_differ_by_element() -> None:
    params: dict[str, Any] = {"friction_range": (0.2, 1.2), "axes": ("slide", "spin")}
    with env_of(randomize_geom_friction, 40, sharing="shared", **params) as env:
        shared = held(env, "geom_friction")[..., :2]
    with env_of(randomize_geom_friction, 40, **params) as env:
        apart = held(env, "geom_friction")[..., :2]
    assert torch.equal(shared[:, 0], shared[:, 1])
    assert distinct(shared) == 80  # by row and axis
    assert distinct(apart) == 160  # and by geom


def test_draws_are_the_generators_next_numbers_row_by_row() -> None:
    with env_of(randomize_joint_damping, damping_range=(0.5, 1.5)) as env:
        twin = torch.Generator()
        twin.set_state(env.rng.get_state())
        env.reset(ids(2, 0))
        expected = nominal(env, "dof_damping")[6:].float() * (torch.rand(2, 2, generator=twin) + 0.5)
        assert torch.equal(held(env, "dof_damping")[[0, 2], 6:].float(), expected)


@pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
def test_draws_fill_their_range_as_their_distribution_says(distribution: str) -> None:
    with env_of(randomize_body_mass, 4000, mass_range=(0.1, 10.0), distribution=distribution) as env:
        factor = held(env, "body_mass")[:, 1] / MASS
    assert float(factor.min()) == pytest.approx(0.1, abs=0.02)
    assert float(factor.max()) == pytest.approx(10.0, abs=0.1)
    # The median is the middle of the range, or its geometric mean: sqrt(0.1 x 10) = 1.
    median = {"uniform": 5.05, "log_uniform": 1.0}[distribution]
    assert float(factor.median()) == pytest.approx(median, rel=0.1)


def test_the_upper_end_of_a_logarithmic_range_is_not_left_by_rounding() -> None:
    with env_of(randomize_body_mass, 4000, mass_range=(0.3, 0.3000001), distribution="log_uniform") as env:
        factor = (held(env, "body_mass")[:, 1] / MASS).float()
    assert float(factor.max()) <= float(torch.tensor(0.3000001))


def test_offsets_of_the_centre_of_mass_differ_by_row_and_axis_and_stay_in_range() -> None:
    ranges = {"x": (-0.05, 0.05), "z": (0.0, 0.02)}
    with env_of(randomize_body_com, 500, offset_range=ranges) as env:
        offset = held(env, "body_ipos")[:, 1] - nominal(env, "body_ipos")[1]
    assert offset[:, 1].abs().max() == 0.0
    assert distinct(offset[:, 0]) > 490
    assert offset.amin(dim=0).tolist() == pytest.approx([-0.05, 0.0, 0.0], abs=1e-3)
    assert offset.amax(dim=0).tolist() == pytest.approx([0.05, 0.0, 0.02], abs=1e-3)


def test_turned_axes_of_inertia_stay_unit_quaternions() -> None:
    angles = {name: (-3.0, 3.0) for name in ("roll", "pitch", "yaw")}
    with env_of(randomize_body_inertia_axes, 200, angle_range=angles) as env:
        quat = held(env, "body_iquat")
    torch.testing.assert_close(
        quat.norm(dim=-1), torch.ones(200, 2, dtype=torch.float64), atol=1e-6, rtol=0.0
    )
    assert distinct(quat[:, 1, 0]) == 200


def test_the_free_joints_degrees_of_freedom_are_no_joints_to_randomise() -> None:
    with env_of(randomize_joint_damping, damping_range=(1.0, 1.0), operation="add") as env:
        assert held(env, "dof_damping")[0].tolist() == pytest.approx([0.0] * 6 + [1.1, 1.3])


HALF_TO_DOUBLE = {"scale_range": (0.5, 2.0)}
EVERYTHING = {
    "mass": event(randomize_body_mass_and_inertia, mass_range=(0.5, 2.0)),
    "com": event(randomize_body_com, offset_range={"x": (-0.5, 0.5), "y": (-0.5, 0.5), "z": (-0.5, 0.5)}),
    "axes": event(randomize_body_inertia_axes, angle_range={"yaw": (-0.5, 0.5)}),
    "friction": event(
        randomize_geom_friction, friction_range=(0.5, 2.0), operation="scale", axes=("slide", "roll")
    ),
    "size": event(randomize_geom_size, **HALF_TO_DOUBLE),
    "armature": event(randomize_joint_armature, armature_range=(0.5, 2.0), distribution="log_uniform"),
    "damping": event(randomize_joint_damping, damping_range=(0.5, 2.0)),
    "dry": event(randomize_joint_friction, friction_range=(0.5, 2.0), sharing="shared"),
    "gains": event(randomize_actuator_gains, kp_range=(0.5, 2.0), kd_range=(0.5, 2.0)),
    "limits": event(randomize_effort_limits, **HALF_TO_DOUBLE),
    "gravity": event(randomize_gravity, offset_range={"z": (-0.5, 0.5)}),
}
OFFSETS = {"body_ipos", "body_iquat", "gravity"}


def test_a_thousand_resets_with_every_field_changing_hold_every_range_and_move_no_stored_value() -> None:
    with fake_model_env(EVERYTHING, 8) as env:
        assert set(env.declared.model_fields) == set(MODEL_FIELDS)
        data, every = env.scene["robot"].data, torch.arange(8)
        world = {field: 1 if field.startswith("body") else 0 for field in MODEL_FIELDS}  # a body of no entity
        own = {field: nominal(env, field)[first:] for field, first in world.items()}
        stored = {
            p: v.clone() for p, v in env.state_dict()["values"].items() if p.startswith("_model_baseline")
        }
        assert len(stored) == len(MODEL_FIELDS)
        seen: dict[str, list[torch.Tensor]] = {field: [] for field in MODEL_FIELDS}
        generator = torch.Generator().manual_seed(0)
        for number in range(1, 1001):
            rows = torch.randperm(8, generator=generator)[: 1 + number % 8]
            env.reset(None if number % 10 == 1 else rows)
            for field, values in own.items():
                now = data.model_values(field, every)
                if field in OFFSETS:
                    change = now - values
                    limit = 0.5 + 1e-6
                    assert bool((change.abs() <= limit).all()), field
                    seen[field].append(change.abs().amax())
                else:
                    changing = (values != 0.0).expand_as(now)
                    factor = (now / values)[changing]
                    assert bool(((factor > 0.5 - 1e-6) & (factor < 2.0 + 1e-6)).all()), field
                    assert bool((now[~changing] == 0.0).all()), field
                    seen[field].append(factor.amax())
        for path, values in env.state_dict()["values"].items():
            if path.startswith("_model_baseline"):
                assert torch.equal(values, stored[path]), path
        # Turning (0.6, 0, 0, 0.8) by 0.5 about its z changes w by 0.6 (cos 0.25 - 1) - 0.8 sin 0.25 = -0.2166.
        for field, extremes in seen.items():  # as wide in the last hundred resets as the range says
            full = {"body_iquat": 0.2166}.get(field, 0.5 if field in OFFSETS else 2.0)
            assert float(torch.stack(extremes[-100:]).max()) == pytest.approx(full, rel=0.05), field


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("func", "params", "message"),
    [
        (randomize_body_mass, {"mass_range": (1.2, 0.8)}, r"mass_range \(1.2, 0.8\) is inverted"),
        (randomize_body_mass, {"mass_range": ()}, r"mass_range is \(\), expected \(low, high\)"),
        (randomize_body_mass, {"mass_range": 1.0}, r"mass_range is 1.0, expected \(low, high\)"),
        (
            randomize_body_mass,
            {"mass_range": (0.0, 1.0), "distribution": "log_uniform"},
            r"mass_range \(0.0, 1.0\) has no logarithm",
        ),
        (
            randomize_body_mass,
            {"mass_range": (1.0, 1.0), "distribution": "log-uniform"},
            "distribution is 'log-uniform'; did you mean 'log_uniform'",
        ),
        (
            randomize_body_mass,
            {"mass_range": (1.0, 1.0), "operation": "scal"},
            "operation is 'scal'; did you mean 'scale'",
        ),
        (
            randomize_body_mass,
            {"mass_range": (1.0, 1.0), "sharing": "share"},
            "sharing is 'share'; did you mean 'shared'",
        ),
        (
            randomize_geom_friction,
            {"friction_range": (1.0, 1.0), "axes": ("slid",)},
            "an entry of axes is 'slid'; did you mean 'slide'",
        ),
        (randomize_geom_friction, {"friction_range": (1.0, 0.5)}, "friction_range .* is inverted"),
        (randomize_joint_armature, {"armature_range": (1.0, 0.5)}, "armature_range .* is inverted"),
        (randomize_joint_damping, {"damping_range": (1.0, 0.5)}, "damping_range .* is inverted"),
        (randomize_joint_friction, {"friction_range": (1.0, 0.5)}, "friction_range .* is inverted"),
        (randomize_effort_limits, {"scale_range": (1.0, 0.5)}, "scale_range .* is inverted"),
        (randomize_actuator_gains, {"kp_range": (1.0, 0.5)}, "kp_range .* is inverted"),
        (randomize_actuator_gains, {"kd_range": (1.0, 0.5)}, "kd_range .* is inverted"),
        (randomize_body_com, {"offset_range": {"w": (0.0, 0.0)}}, "offset_range has no component 'w'"),
        (randomize_gravity, {"offset_range": {"x": (1.0, 0.0)}}, r"offset_range\['x'\] .* is inverted"),
        (randomize_body_inertia_axes, {"angle_range": {"x": (0.0, 0.0)}}, "angle_range has no component 'x'"),
        (
            randomize_body_mass,
            {"mass_range": (1.0, 1.0), "asset_cfg": SceneEntityCfg(body_names=("bass",))},
            "'bass' matches nothing; did you mean 'base'",
        ),
        (
            randomize_joint_damping,
            {"damping_range": (1.0, 1.0), "asset_cfg": SceneEntityCfg(name="robt")},
            "unknown entity 'robt'; did you mean 'robot'",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_at_construction(
    func: Any, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"events term 'change': .*{message}"):
        fake_model_env({"change": event(func, **params)})


def test_the_model_is_not_randomised_in_a_step() -> None:
    with pytest.raises(ConfigError, match="events term 'change': .*written by reset and startup events only"):
        fake_model_env({"change": event(randomize_body_mass, "step", mass_range=(1.0, 1.0))})
