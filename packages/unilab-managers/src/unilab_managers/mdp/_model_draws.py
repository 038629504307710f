"""What the randomisation terms share: which elements they mean, their draws, and the staged change of a field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, get_args

import torch

from unilab_core.entity_cfg import Index, SceneEntityCfg
from unilab_core.scene import ElementKind
from unilab_managers.mdp._sampling import (
    Distribution,
    Operation,
    Range,
    Sharing,
    check_choice,
    check_components,
    check_range,
    combine,
    sample,
    sample_components,
)

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["Draws", "actuators_meant", "change_components", "change_field", "combine_drawn", "scale_whole"]

_KINDS: dict[str, ElementKind] = {"body": "body", "geom": "geom", "dof": "dof", "actuator": "actuator"}


@lru_cache(maxsize=256)
def _joints_of(asset_cfg: SceneEntityCfg) -> SceneEntityCfg:
    """Names the slide and hinge joints where no joint is named, for a free joint's six are none to randomise."""
    if asset_cfg.joint_names is not None:
        return asset_cfg
    return asset_cfg.model_copy(update={"joint_names": (".*",)})


def _elements(env: ManagerBasedRlEnv, field: str, asset_cfg: SceneEntityCfg) -> Index:
    if field == "gravity":  # one for all
        return slice(None)
    kind = _KINDS[field.partition("_")[0]]
    return env.scene[asset_cfg.name].element_ids(_joints_of(asset_cfg) if kind == "dof" else asset_cfg, kind)


def actuators_meant(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> list[str]:
    """Returns the names of the actuators that `asset_cfg` means, without the entity's; for constructors."""
    entity = env.scene[asset_cfg.name]
    every = torch.arange(len(entity.actuator_names), device=env.device)
    return [entity.actuator_names[i] for i in every[entity.element_ids(asset_cfg, "actuator")].tolist()]


class Draws(NamedTuple):
    """How a term draws, as its parameters say; `mdp.randomization` says what they mean.

    Attributes:
        name: What the range is called, for error messages.
        limits: The range.
        operation: What is done with a draw.
        distribution: Of the draws.
        sharing: Whether all elements of a row share one.
    """

    name: str
    limits: Range
    operation: Operation
    distribution: Distribution
    sharing: Sharing


def combine_drawn(env: ManagerBasedRlEnv, values: torch.Tensor, draws: Draws) -> torch.Tensor:
    """Returns `values`, (K, E), combined with checked draws: one for each, or one per row if they are shared."""
    check_range(draws.name, draws.limits, draws.distribution)
    check_choice("operation", draws.operation, get_args(Operation))
    check_choice("sharing", draws.sharing, get_args(Sharing))
    size = tuple(values.shape) if draws.sharing == "per_element" else (values.shape[0], 1)
    return combine(values, sample(env.rng, draws.limits, size, draws.distribution), draws.operation)


def change_field(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    field: str,
    asset_cfg: SceneEntityCfg,
    draws: Draws,
    column: int | None = None,
) -> None:
    """Changes one number per element: the element itself, or one of its columns."""
    ids, data = _elements(env, field, asset_cfg), env.scene[asset_cfg.name].data
    values = data.model_values(field, env_ids, ids, column)
    data.write_model(field, combine_drawn(env, values, draws), env_ids, ids, column)


def scale_whole(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    fields: Sequence[str],
    asset_cfg: SceneEntityCfg,
    draws: Draws,
) -> None:
    """Scales all columns of an element, in all of these fields of elements of one kind, by one factor."""
    ids, data = _elements(env, fields[0], asset_cfg), env.scene[asset_cfg.name].data
    values = [data.model_values(field, env_ids, ids) for field in fields]
    factors = combine_drawn(env, torch.ones_like(values[0][..., 0]), draws)[..., None]
    for field, own in zip(fields, values, strict=True):
        data.write_model(field, own * factors, env_ids, ids)


def change_components(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    field: str,
    asset_cfg: SceneEntityCfg,
    name: str,
    ranges: Mapping[str, Range],
    keys: Sequence[str],
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.add,
) -> None:
    """Changes each element by draws of its own, one a component: `change(values, draws)`.

    Args:
        env: The environment.
        env_ids: (K,) rows.
        field: The field; its values are (K, E, ...), those of gravity (K, 3).
        asset_cfg: The elements.
        name: What the ranges are called, for error messages.
        ranges: Lowest and highest draw by component; 0 without one.
        keys: All components, in the order in which they are drawn: the last dimension of the draws.
        change: Returns the new values.

    Raises:
        ValueError: A component is unknown, or a range is inverted.
    """
    check_components(name, ranges, keys)
    ids, data = _elements(env, field, asset_cfg), env.scene[asset_cfg.name].data
    values = data.model_values(field, env_ids, ids)
    drawn = sample_components(env.rng, ranges, keys, values[..., 0].numel())
    changed = change(values, drawn.view(*values.shape[:-1], len(keys)))
    data.write_model(field, changed, env_ids, ids)
