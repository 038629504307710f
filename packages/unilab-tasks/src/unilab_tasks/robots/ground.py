"""Flat ground under a plain sky."""

from __future__ import annotations

from typing import Any

import mujoco

__all__ = ["build_ground"]


def build_ground(half_size: float = 0.0, friction: float = 1.0) -> Any:  # noqa: ANN401 - mujoco ships no types
    """Returns a new `mujoco.MjSpec`: the plane z = 0 as geom `ground` of a body that is fixed to the world.

    Tiles of half a metre show how fast something moves over it. It touches geoms whose `conaffinity` has bit 1.

    Args:
        half_size: Half of the width that is drawn, m; 0 draws it to the horizon. Contacts know no border.
        friction: Sliding friction against geoms that leave it to the ground.
    """
    spec = mujoco.MjSpec()
    spec.add_texture(
        name="ground",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.42, 0.46, 0.44],
        rgb2=[0.52, 0.56, 0.54],
        width=256,
        height=256,
    )
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.55, 0.68, 0.82],
        rgb2=[0.9, 0.93, 0.95],
        width=128,
        height=768,
    )
    tiles = spec.add_material(name="ground", texrepeat=[1, 1], texuniform=True)
    tiles.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    body = spec.worldbody.add_body(name="ground")
    body.add_geom(
        name="ground",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[half_size, half_size, 1.0],
        friction=[friction, 0.005, 0.0001],
        contype=1,
        conaffinity=0,
        condim=1,  # the more demanding of two geoms decides, so each robot says itself where it needs friction
        material="ground",
    )
    return spec
