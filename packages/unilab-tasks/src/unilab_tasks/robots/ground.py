"""Flat ground."""

from __future__ import annotations

from typing import Any

import mujoco

__all__ = ["build_ground"]


def build_ground(half_size: float = 0.0, friction: float = 1.0) -> Any:  # noqa: ANN401 - mujoco ships no types
    """Returns a new `mujoco.MjSpec`: the plane z = 0 as geom `ground` of a body that is fixed to the world.

    It touches geoms whose `conaffinity` has bit 1.

    Args:
        half_size: Half of the width that is drawn, m; 0 draws it to the horizon. Contacts know no border.
        friction: Sliding friction against geoms that leave it to the ground.
    """
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="ground")
    body.add_geom(
        name="ground",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[half_size, half_size, 1.0],
        friction=[friction, 0.005, 0.0001],
        contype=1,
        conaffinity=0,
        condim=1,  # the more demanding of two geoms decides, so each robot says itself where it needs friction
        rgba=[0.5, 0.55, 0.5, 1],
    )
    return spec
