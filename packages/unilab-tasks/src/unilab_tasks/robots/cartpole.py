"""A cart on a rail with a pole on a hinge.

Dimensions are those of the classic control benchmark: cart 1 kg, pole 1 m and 0.1 kg, rail +-1.8 m, motor gear 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco

__all__ = ["CARTPOLE", "CartpoleTable", "build_cartpole"]


@dataclass(frozen=True)
class CartpoleTable:
    """Everything the builder needs; lengths in m, masses in kg, damping in SI units."""

    rail_half_length: float = 1.8
    rail_height: float = 1.0
    cart_mass: float = 1.0
    cart_half_size: tuple[float, float, float] = (0.2, 0.15, 0.1)
    cart_damping: float = 5e-4
    pole_mass: float = 0.1
    pole_length: float = 1.0
    pole_radius: float = 0.045
    pole_damping: float = 2e-6
    motor_gear: float = 10.0
    """Force per unit of control, N; the control is limited to +-1."""


CARTPOLE = CartpoleTable()


def build_cartpole(**changes: float) -> Any:  # noqa: ANN401 - mujoco ships no types
    """Returns a new `mujoco.MjSpec`: joints `slider` (m) and `hinge` (rad, 0 is upright), actuator `slide`, site `tip`.

    Args:
        **changes: Fields of `CartpoleTable` to replace.

    Raises:
        TypeError: A name that the table does not have.
    """
    table = CartpoleTable(**{**vars(CARTPOLE), **changes})
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    cart = _add_cart(spec, table)
    pole = cart.add_body(name="pole")
    pole.add_joint(name="hinge", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], damping=table.pole_damping)
    _add_shape(
        pole,
        name="pole",
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=[0, 0, 0, 0, 0, table.pole_length],
        size=[table.pole_radius, 0, 0],
        mass=table.pole_mass,
        rgba=[0.9, 0.6, 0.2, 1],
    )
    pole.add_site(name="tip", pos=[0, 0, table.pole_length], size=[0.02, 0.02, 0.02])
    motor = spec.add_actuator(name="slide", target="slider", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.gear[0] = table.motor_gear
    motor.ctrlrange, motor.ctrllimited = [-1, 1], True
    return spec


def _add_cart(spec: Any, table: CartpoleTable) -> Any:  # noqa: ANN401 - mujoco ships no types
    cart = spec.worldbody.add_body(name="cart", pos=[0, 0, table.rail_height])
    cart.add_joint(
        name="slider",
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[1, 0, 0],
        range=[-table.rail_half_length, table.rail_half_length],
        solref_limit=[0.08, 1],
        damping=table.cart_damping,
    )
    _add_shape(
        cart,
        name="cart",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=list(table.cart_half_size),
        mass=table.cart_mass,
        rgba=[0.3, 0.4, 0.6, 1],
    )
    return cart


def _add_shape(body: Any, **geom: object) -> None:  # noqa: ANN401 - mujoco ships no types
    """Adds a geom that touches nothing: this model needs no contacts, and they would cost the most."""
    body.add_geom(contype=0, conaffinity=0, **geom)
