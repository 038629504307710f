"""Rotation math on unit quaternions, wxyz."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unilab_core.rotation import (
    quat_apply,
    quat_apply_inverse,
    quat_conjugate,
    quat_from_yaw,
    quat_mul,
    quat_yaw,
)

HALF = math.sqrt(0.5)
X, Y, Z = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
TURN_X, TURN_Y, TURN_Z = [HALF, HALF, 0.0, 0.0], [HALF, 0.0, HALF, 0.0], [HALF, 0.0, 0.0, HALF]


def t(values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("turn", "vector", "turned"),
    [
        (TURN_Z, X, Y),
        (TURN_Z, Y, [-1.0, 0.0, 0.0]),
        (TURN_X, Y, Z),
        (TURN_Y, Z, X),
        (TURN_Y, X, [0.0, 0.0, -1.0]),
        ([1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_a_quarter_turn_moves_the_axes_as_by_hand(turn, vector, turned):
    torch.testing.assert_close(quat_apply(t(turn), t(vector)), t(turned), atol=1e-6, rtol=0)
    torch.testing.assert_close(quat_apply_inverse(t(turn), t(turned)), t(vector), atol=1e-6, rtol=0)


def test_the_units_multiply_as_hamilton_wrote():
    i, j, k = t([0.0, 1.0, 0.0, 0.0]), t([0.0, 0.0, 1.0, 0.0]), t([0.0, 0.0, 0.0, 1.0])
    assert torch.equal(quat_mul(i, j), k)
    assert torch.equal(quat_mul(j, k), i)
    assert torch.equal(quat_mul(k, i), j)
    assert torch.equal(quat_mul(i, i), t([-1.0, 0.0, 0.0, 0.0]))


def test_a_product_turns_by_the_right_factor_first():
    # First a quarter turn about x takes y to z, then one about y takes z to x.
    product = quat_mul(t(TURN_Y), t(TURN_X))
    torch.testing.assert_close(quat_apply(product, t(Y)), t(X), atol=1e-6, rtol=0)


@pytest.mark.parametrize("yaw", [0.0, 0.5, -2.0, 3.0])
def test_a_yaw_makes_a_quaternion_and_comes_back(yaw):
    q = quat_from_yaw(t(yaw))
    torch.testing.assert_close(q, t([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]))
    assert quat_yaw(q).item() == pytest.approx(yaw, abs=1e-6)


def test_the_heading_of_a_tilted_body_is_its_z_angle():
    # z-y-x: yaw 90 degrees, then pitch 45 degrees about the new y axis.
    pitch = t([math.cos(math.pi / 8), 0.0, math.sin(math.pi / 8), 0.0])
    assert quat_yaw(quat_mul(t(TURN_Z), pitch)).item() == pytest.approx(math.pi / 2, abs=1e-6)


def test_batches_broadcast():
    q = t([TURN_Z, TURN_X])
    assert quat_apply(q, t([X, Y])).shape == (2, 3)
    assert quat_apply(q[:, None], torch.zeros(2, 5, 3)).shape == (2, 5, 3)
    assert quat_mul(q, q).shape == (2, 4)
    assert quat_yaw(q).shape == (2,)


NUMBERS = st.floats(-1.0, 1.0, width=32)


def unit(values):
    norm = math.sqrt(sum(v * v for v in values))
    return torch.tensor([v / norm for v in values], dtype=torch.float64)


QUATERNIONS = (
    st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS).filter(lambda v: sum(x * x for x in v) > 1e-2).map(unit)
)
VECTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda v: torch.tensor(v, dtype=torch.float64))


@given(QUATERNIONS, VECTORS)
def test_a_rotation_keeps_lengths_and_is_undone_by_its_inverse(q, v):
    turned = quat_apply(q, v)
    assert turned.norm().item() == pytest.approx(v.norm().item(), abs=1e-12)
    torch.testing.assert_close(quat_apply_inverse(q, turned), v, atol=1e-12, rtol=0)


@given(QUATERNIONS, QUATERNIONS, VECTORS)
def test_a_product_turns_as_one_turn_after_the_other(a, b, v):
    torch.testing.assert_close(
        quat_apply(quat_mul(a, b), v), quat_apply(a, quat_apply(b, v)), atol=1e-12, rtol=0
    )
    assert quat_mul(a, b).norm().item() == pytest.approx(1.0, abs=1e-12)


@given(QUATERNIONS)
def test_a_quaternion_times_its_conjugate_is_one(q):
    one = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(quat_mul(q, quat_conjugate(q)), one, atol=1e-12, rtol=0)


@given(QUATERNIONS, VECTORS)
def test_a_quaternion_and_its_negative_turn_alike(q, v):
    torch.testing.assert_close(quat_apply(q, v), quat_apply(-q, v), atol=1e-12, rtol=0)


@given(QUATERNIONS, VECTORS)
def test_the_sandwich_product_is_the_same_rotation(q, v):
    pure = torch.cat([torch.zeros(1, dtype=torch.float64), v])
    sandwich = quat_mul(quat_mul(q, pure), quat_conjugate(q))
    torch.testing.assert_close(quat_apply(q, v), sandwich[1:], atol=1e-12, rtol=0)


def random_turns():
    """Returns 4096 unit quaternions, and vectors of very different lengths, both float32."""
    rng = torch.Generator().manual_seed(3)
    q = torch.nn.functional.normalize(torch.randn(4096, 4, generator=rng), dim=-1)
    scale = 10.0 ** torch.randint(-6, 7, (4096, 1), generator=rng)
    return q, torch.randn(4096, 3, generator=rng) * scale


def plain_formula(q, v, cross):
    """As it is usually written: t = 2 (u x v), v + w t + u x t; the products the other way round: inverse."""
    w, u = q[..., :1], q[..., 1:]
    t = 2.0 * cross(u, v)
    return v + w * t + cross(u, t)


def test_turning_comes_as_near_to_the_plain_formula_as_float32_allows():
    q, v = random_turns()
    cross = torch.linalg.cross
    # A few roundings of half a unit in the last place each, of numbers of the vector's length.
    bound = 4 * torch.finfo(torch.float32).eps * v.double().norm(dim=-1, keepdim=True)
    for turned, formula in (
        (quat_apply(q, v), cross),
        (quat_apply_inverse(q, v), lambda a, b: cross(b, a)),
    ):
        assert turned.dtype == torch.float32
        exact = plain_formula(q.double(), v.double(), formula)
        assert bool(((turned.double() - exact).abs() <= bound).all())


def test_turning_gives_a_row_the_same_bits_wherever_it_lies():
    q, v = random_turns()
    turned, back = quat_apply(q, v), quat_apply_inverse(q, v)
    for rows in (slice(0, 1), slice(7, 18), slice(4095, 4096)):
        assert torch.equal(quat_apply(q[rows], v[rows]), turned[rows])
        assert torch.equal(quat_apply_inverse(q[rows], v[rows]), back[rows])


def test_turning_by_nothing_changes_no_bit():
    _, v = random_turns()
    q = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(4096, 4)
    assert torch.equal(quat_apply(q, v), v)
    assert torch.equal(quat_apply_inverse(q, v), v)


def _spelled_out(a, b):
    (aw, ax, ay, az), (bw, bx, by, bz) = a.unbind(-1), b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        dim=-1,
    )


@pytest.mark.parametrize(
    "shapes", [((1, 4), (1, 4)), ((501, 4), (501, 4)), ((3, 1, 4), (5, 4)), ((4,), (4,))]
)
def test_a_product_has_the_very_bits_of_its_sixteen_products_added_up_in_order(shapes):
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=rng) for shape in shapes)
    assert torch.equal(quat_mul(a, b), _spelled_out(a, b))


def test_a_product_is_one_of_float64_and_of_what_was_made_in_inference_mode_too():
    a, b = torch.rand(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    with torch.inference_mode():
        quat_mul(a, b)
    b.requires_grad_()
    product = quat_mul(a, b)
    assert product.dtype == torch.float64
    product.sum().backward()
    assert b.grad is not None
