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

__all__ = ["change_field", "draw_like", "scale_whole"]

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


def draw_like(
    env: ManagerBasedRlEnv,
    name: str,
    limits: Range,
    values: torch.Tensor,
    operation: Operation,
    distribution: Distribution,
    sharing: Sharing,
) -> torch.Tensor:
    """Returns checked draws for `values`, (K, E): (K, E), or (K, 1) if they are shared."""
    check_range(name, limits, distribution)
    check_choice("operation", operation, get_args(Operation))
    check_choice("sharing", sharing, get_args(Sharing))
    size = tuple(values.shape) if sharing == "per_element" else (values.shape[0], 1)
    return sample(env.rng, limits, size, distribution)


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
    values = data.model_values(field, env_ids)
    part = values if column is None else values[..., column]
    draws = draw_like(env, name, limits, part[:, ids], operation, distribution, sharing)
    part[:, ids] = combine(part[:, ids], draws, operation)
    data.write_model(field, values, env_ids)


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
    values = data.model_values(field, env_ids)
    draws = draw_like(env, "scale_range", limits, values[:, ids, 0], "scale", distribution, sharing)
    values[:, ids] = values[:, ids] * draws[..., None]
    data.write_model(field, values, env_ids)
