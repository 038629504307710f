"""Event terms that randomise the model, for modes `"reset"` and `"startup"`.

Every term starts from the stored values (the model's own, or those that startup events gave the row), so that repeated
resets do not drift. Several terms on one field compose in the order of declaration. A range without width changes a
value by exactly that much: scaling by (1, 1) or adding (0, 0) leaves the engine's own number to the bit. Rows that are
not being reset keep what they hold.

`operation` is `"scale"` (factor of the stored value), `"add"` (offset to it) or `"abs"` (the value itself).
`distribution` is `"uniform"` or, for positive ranges, `"log_uniform"`. `sharing` is `"per_element"` (every body, geom,
joint or actuator draws its own number) or `"shared"` (one number per row for all of them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.rotation import quat_mul
from unilab_core.writes import writes
from unilab_managers.mdp._model_draws import Draws, change_components, change_field, scale_whole
from unilab_managers.mdp._sampling import (
    Distribution,
    Operation,
    Range,
    Sharing,
    check_choice,
    quat_from_euler,
)

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "randomize_body_com",
    "randomize_body_inertia",
    "randomize_body_inertia_axes",
    "randomize_body_mass",
    "randomize_body_mass_and_inertia",
    "randomize_geom_friction",
    "randomize_geom_size",
    "randomize_gravity",
]

FrictionAxis = Literal["slide", "spin", "roll"]
"""Columns of `geom_friction`: against sliding, against spinning about the contact normal (m), against rolling (m)."""

_FRICTION: tuple[str, ...] = get_args(FrictionAxis)
_XYZ = ("x", "y", "z")
_EULER = ("roll", "pitch", "yaw")
_ROBOT = SceneEntityCfg()


# ---------------------------------------------------------------- bodies


@writes("body_mass")
def randomize_body_mass(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    mass_range: Range,
    operation: Operation = "scale",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises masses, kg, and leaves inertias as they are: right for a payload at the centre of mass.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        mass_range: Lowest and highest factor, offset (kg) or mass (kg).
        operation: See the module.
        distribution: See the module.
        sharing: See the module.
        asset_cfg: The bodies. One without mass must stay without, so name them unless `operation` is `"scale"`.

    Raises:
        ValueError: The range or one of the words is wrong. A mass that is not positive rejects the reset.
    """
    draws = Draws("mass_range", mass_range, operation, distribution, sharing)
    change_field(env, env_ids, "body_mass", asset_cfg, draws)


@writes("body_mass", "body_inertia")
def randomize_body_mass_and_inertia(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    mass_range: Range,
    operation: Operation = "scale",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises masses as `randomize_body_mass` does, and inertias in proportion: a body of another density.

    The engine does not do so by itself when a mass changes.
    """
    ids = env.scene[asset_cfg.name].element_ids(asset_cfg, "body")
    data = env.scene[asset_cfg.name].data
    before = data.model_values("body_mass", env_ids, ids)
    randomize_body_mass(env, env_ids, mass_range, operation, distribution, sharing, asset_cfg)
    after = data.model_values("body_mass", env_ids, ids)
    ratio = torch.where(before > 0.0, after / before, 1.0)
    inertia = data.model_values("body_inertia", env_ids, ids)
    data.write_model("body_inertia", inertia * ratio[..., None], env_ids, ids)


@writes("body_inertia")
def randomize_body_inertia(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    scale_range: Range,
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Scales the three principal moments of a body by one factor, which keeps them possible.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        scale_range: Lowest and highest factor.
        distribution: See the module.
        sharing: See the module.
        asset_cfg: The bodies.

    Raises:
        ValueError: The range or one of the words is wrong.
    """
    draws = Draws("scale_range", scale_range, "scale", distribution, sharing)
    scale_whole(env, env_ids, ("body_inertia",), asset_cfg, draws)


@writes("body_ipos")
def randomize_body_com(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    offset_range: Mapping[str, Range],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Moves centres of mass; every body draws its own offset.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        offset_range: Lowest and highest offset by component `x`, `y`, `z` in the body's frame, m.
        asset_cfg: The bodies.

    Raises:
        ValueError: A component is unknown, or a range is inverted.
    """
    change_components(env, env_ids, "body_ipos", asset_cfg, "offset_range", offset_range, _XYZ)


@writes("body_iquat")
def randomize_body_inertia_axes(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    angle_range: Mapping[str, Range],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Turns the principal axes of inertia about themselves; every body draws its own rotation.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        angle_range: Lowest and highest angle by component `roll`, `pitch`, `yaw`, rad.
        asset_cfg: The bodies.

    Raises:
        ValueError: A component is unknown, or a range is inverted.
    """
    change_components(env, env_ids, "body_iquat", asset_cfg, "angle_range", angle_range, _EULER, _turned)


def _turned(quat: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    return quat_mul(quat, quat_from_euler(angles))


# ---------------------------------------------------------------- geoms


@writes("geom_friction")
def randomize_geom_friction(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    friction_range: Range,
    operation: Operation = "abs",
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    axes: Sequence[FrictionAxis] = ("slide",),
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Randomises friction coefficients.

    In a contact, the geom of higher priority decides, else the larger coefficient.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        friction_range: Lowest and highest coefficient, factor or offset.
        operation: See the module.
        distribution: See the module.
        sharing: See the module.
        axes: Which coefficients; each draws its own numbers.
        asset_cfg: The geoms.

    Raises:
        ValueError: The range or one of the words is wrong. A negative friction rejects the reset.
    """
    for axis in axes:
        check_choice("an entry of axes", axis, _FRICTION)
        draws = Draws("friction_range", friction_range, operation, distribution, sharing)
        change_field(env, env_ids, "geom_friction", asset_cfg, draws, _FRICTION.index(axis))


@writes("geom_size")
def randomize_geom_size(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    scale_range: Range,
    distribution: Distribution = "uniform",
    sharing: Sharing = "per_element",
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Scales geoms in all directions by one factor; mass and inertia of their bodies stay as they are.

    Arguments are those of `randomize_body_inertia`; `asset_cfg` names geoms.
    """
    draws = Draws("scale_range", scale_range, "scale", distribution, sharing)
    scale_whole(env, env_ids, ("geom_size",), asset_cfg, draws)


# ---------------------------------------------------------------- the world


@writes("gravity")
def randomize_gravity(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    offset_range: Mapping[str, Range],
    asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
    """Adds to gravity, which is one for all entities of a row.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        offset_range: Lowest and highest offset by component `x`, `y`, `z` in the world, m/s^2.
        asset_cfg: Any entity.

    Raises:
        ValueError: A component is unknown, or a range is inverted.
    """
    change_components(env, env_ids, "gravity", asset_cfg, "offset_range", offset_range, _XYZ)
