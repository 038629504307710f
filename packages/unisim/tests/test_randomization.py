"""Which model values are physical, and what is written for them."""

from __future__ import annotations

import math
import re

import pytest
import torch

from unisim.randomization import MODEL_FIELDS, FieldLayout, check_model_values, engine_values

MASS = FieldLayout((3,), (0.0, 2.0, 1.0))  # the world, two bodies
INERTIA = FieldLayout((2, 3), (0.0, 0.0, 0.0, 2.0, 3.0, 4.0))
IQUAT = FieldLayout((1, 4), (1.0, 0.0, 0.0, 0.0))
SIZE = FieldLayout((2, 3), (0.1, 0.0, 0.0, 0.1, 0.2, 0.3))  # a sphere, a box
ONE = FieldLayout((1,), (0.5,))
RANGE = FieldLayout((1, 2), (-1.0, 1.0))


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("body_mass", MASS, [0.0, 1e-6, 50.0]),
        ("body_inertia", INERTIA, [[0.0, 0.0, 0.0], [1.0, 1.0, 2.0]]),  # a flat plate, exactly on the bound
        ("body_iquat", IQUAT, [[0.7071, 0.7071, 0.0, 0.0]]),
        ("geom_size", SIZE, [[0.5, 0.0, 0.0], [0.1, 0.1, 0.1]]),
        ("geom_friction", FieldLayout((1, 3), (1.0, 0.005, 0.0001)), [[0.0, 0.0, 0.0]]),
        ("dof_armature", ONE, [0.0]),
        ("dof_damping", ONE, [0.0]),
        ("dof_frictionloss", ONE, [0.0]),
        ("actuator_forcerange", RANGE, [[-1.0, -1.0]]),
        ("actuator_gainprm", ONE, [-5.0]),
        ("gravity", FieldLayout((3,), (0.0, 0.0, -9.81)), [0.0, 0.0, 3.0]),
    ],
)
def test_a_physical_value_passes(name, field, values):
    assert check_model_values(name, torch.tensor([values]), field) is None


@pytest.mark.parametrize(
    ("name", "field", "values", "demand"),
    [
        ("body_mass", MASS, [0.0, 0.0, 1.0], "a mass must be positive"),
        ("body_mass", MASS, [0.0, 2.0, -1.0], "a mass must be positive"),
        ("body_mass", MASS, [1.0, 2.0, 1.0], "a mass must be positive"),  # the world has none
        ("body_inertia", INERTIA, [[0.0, 0.0, 0.0], [1.0, 1.0, 2.001]], "obey the triangle inequality"),
        ("body_inertia", INERTIA, [[0.0, 0.0, 0.0], [-1.0, 1.0, 1.0]], "must be positive"),
        ("body_inertia", INERTIA, [[1.0, 1.0, 1.0], [2.0, 3.0, 4.0]], "must be positive"),
        ("body_iquat", IQUAT, [[1.0, 1.0, 0.0, 0.0]], "a unit quaternion"),
        ("geom_size", SIZE, [[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]], "a size must be positive"),
        (
            "geom_size",
            SIZE,
            [[0.1, 0.1, 0.0], [0.1, 0.2, 0.3]],
            "a size must be positive",
        ),  # a sphere has one
        ("geom_friction", ONE, [-0.1], "friction must not be negative"),
        ("dof_armature", ONE, [-0.1], "armature must not be negative"),
        ("dof_damping", ONE, [-0.1], "damping must not be negative"),
        ("dof_frictionloss", ONE, [-0.1], "friction loss must not be negative"),
        ("actuator_forcerange", RANGE, [[1.0, -1.0]], r"a range must be \(low, high\)"),
    ],
)
def test_an_unphysical_value_is_named_with_its_row_and_what_it_violates(name, field, values, demand):
    good = field.nominal_tensor()
    found = check_model_values(name, torch.stack([good, torch.tensor(values), good]), field)
    assert found is not None
    row, text = found
    assert row == 1
    assert re.search(demand, text)


@pytest.mark.parametrize("name", MODEL_FIELDS)
def test_no_rows_pass(name):
    assert check_model_values(name, torch.zeros(0, 1, 4), FieldLayout((1, 4), (1.0, 0.0, 0.0, 0.0))) is None


def test_a_value_that_float32_cannot_tell_from_the_nominal_writes_the_nominal():
    nominal = torch.tensor([0.1, 0.2, 1.0 / 3.0], dtype=torch.float64)
    written = engine_values(
        "body_mass", torch.stack([nominal.float(), torch.tensor([0.1, 0.25, 0.5])]), nominal
    )
    assert torch.equal(written[0], nominal)
    assert written[1].tolist() == [0.1, 0.25, 0.5]
    assert written.dtype == torch.float64


def test_an_orientation_is_written_at_unit_length():
    nominal = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    half = math.sqrt(0.5)
    written = engine_values("body_iquat", torch.tensor([[[half * 1.0005, half * 1.0005, 0.0, 0.0]]]), nominal)
    assert written.norm(dim=-1).item() == pytest.approx(1.0, abs=1e-15)
    assert torch.equal(engine_values("body_iquat", nominal.float().unsqueeze(0), nominal)[0], nominal)
