"""What the randomisation terms share: which elements they mean, their draws, and the staged change of a field."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, get_args

import torch

from unilab_core.entity_cfg import Index, SceneEntityCfg
from unilab_core.scene import ElementKind
from unilab_managers.mdp._sampling import (
    Distribution,
    Operation,
    Range,
    Sharing,
    check_choice,
    check_range,
    combine,
    sample,
)

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["change_field", "combine_drawn", "scale_whole"]

_KINDS: dict[str, ElementKind] = {"body": "body", "geom": "geom", "dof": "dof", "actuator": "actuator"}


@lru_cache(maxsize=256)
def _joints_of(asset_cfg: SceneEntityCfg) -> SceneEntityCfg:
    """Names the slide and hinge joints where no joint is named, for a free joint's six are none to randomise."""
    if asset_cfg.joint_names is not None:
        return asset_cfg
    return asset_cfg.model_copy(update={"joint_names": (".*",)})


def _elements(env: ManagerBasedRlEnv, field: str, asset_cfg: SceneEntityCfg) -> Index:
    kind = _KINDS[field.partition("_")[0]]
    return env.scene[asset_cfg.name].element_ids(_joints_of(asset_cfg) if kind == "dof" else asset_cfg, kind)


def combine_drawn(
    env: ManagerBasedRlEnv,
    name: str,
    limits: Range,
    values: torch.Tensor,
    operation: Operation,
    distribution: Distribution,
    sharing: Sharing,
) -> torch.Tensor:
    """Returns `values`, (K, E), combined with checked draws: one for each, or one per row if they are shared."""
    check_range(name, limits, distribution)
    check_choice("operation", operation, get_args(Operation))
    check_choice("sharing", sharing, get_args(Sharing))
    size = tuple(values.shape) if sharing == "per_element" else (values.shape[0], 1)
    return combine(values, sample(env.rng, limits, size, distribution), operation)


def change_field(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    field: str,
    name: str,
    limits: Range,
    operation: Operation,
    distribution: Distribution,
    sharing: Sharing,
    asset_cfg: SceneEntityCfg,
    column: int | None = None,
) -> None:
    """Changes one number per element: the element itself, or one of its columns."""
    ids, data = _elements(env, field, asset_cfg), env.scene[asset_cfg.name].data
    values = data.model_values(field, env_ids, ids, column)
    changed = combine_drawn(env, name, limits, values, operation, distribution, sharing)
    data.write_model(field, changed, env_ids, ids, column)


def scale_whole(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    field: str,
    limits: Range,
    distribution: Distribution,
    sharing: Sharing,
    asset_cfg: SceneEntityCfg,
) -> None:
    """Scales all columns of an element by one factor."""
    ids, data = _elements(env, field, asset_cfg), env.scene[asset_cfg.name].data
    values = data.model_values(field, env_ids, ids)
    ones = torch.ones_like(values[..., 0])
    factors = combine_drawn(env, "scale_range", limits, ones, "scale", distribution, sharing)
    data.write_model(field, values * factors[..., None], env_ids, ids)
