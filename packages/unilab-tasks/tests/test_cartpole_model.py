"""The cart-pole model has the dimensions that its table says."""

from __future__ import annotations

import math

import mujoco
import pytest

from unilab_tasks.robots.cartpole import build_cartpole


def test_masses_lengths_and_limits_are_those_of_the_table():
    model = build_cartpole().compile()
    assert model.body("cart").mass[0] == pytest.approx(1.0)
    assert model.body("pole").mass[0] == pytest.approx(0.1)
    assert model.jnt_range[0].tolist() == pytest.approx([-1.8, 1.8])
    assert model.jnt_limited.tolist() == [True, False]
    assert model.actuator_gear[0, 0] == 10.0
    assert model.actuator_ctrlrange[0].tolist() == [-1.0, 1.0]
    assert model.ngeom == 2


def test_the_motor_accelerates_a_cart_without_pole_by_force_over_mass():
    model = build_cartpole(pole_mass=1e-6, cart_damping=0.0).compile()
    data = mujoco.MjData(model)
    data.ctrl[0] = 0.5
    mujoco.mj_forward(model, data)
    assert data.qacc[0] == pytest.approx(0.5 * 10.0 / 1.0, rel=1e-4)


def test_the_pole_hangs_at_pi_and_stands_at_zero():
    model = build_cartpole().compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.site("tip").xpos[2] == pytest.approx(2.0)
    data.qpos[1] = math.pi
    mujoco.mj_forward(model, data)
    assert data.site("tip").xpos[2] == pytest.approx(0.0)


def test_nothing_collides():
    model = build_cartpole().compile()
    data = mujoco.MjData(model)
    data.qpos[1] = math.pi
    mujoco.mj_forward(model, data)
    assert data.ncon == 0


def test_an_unknown_dimension_is_refused():
    with pytest.raises(TypeError, match="pole_lenght"):
        build_cartpole(pole_lenght=2.0)
