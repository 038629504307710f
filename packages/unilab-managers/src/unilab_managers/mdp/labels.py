"""What a term function says of its own columns: their names and their unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "action_columns",
    "columns",
    "command_columns",
    "column_names",
    "column_unit",
    "fixed_columns",
    "joint_columns",
]

F = TypeVar("F", bound=Callable[..., Any])
ColumnNames = Callable[..., tuple[str, ...]]
"""`names(env, **params)`, with the parameters of the term; returns one name per column."""

_NAMES = "__unilab_columns__"
_UNIT = "__unilab_unit__"
_ROBOT = SceneEntityCfg()


def columns(*, unit: str, names: ColumnNames) -> Callable[[F], F]:
    """Gives a term, function or class, the unit of its values and the names of its columns.

    Args:
        unit: For example `"rad/s"`; `""` for a number without one.
        names: Called as `names(env, **params)` when the environment is built.
    """

    def mark(term: F) -> F:
        setattr(term, _NAMES, names)
        setattr(term, _UNIT, unit)
        return term

    return mark


def column_names(term: Callable[..., Any]) -> ColumnNames | None:
    """Returns the function that names a term's columns; None where the term says nothing."""
    names: ColumnNames | None = getattr(term, _NAMES, None)
    return names


def column_unit(term: Callable[..., Any]) -> str | None:
    """Returns the unit of a term's values; None where the term says nothing."""
    unit: str | None = getattr(term, _UNIT, None)
    return unit


def fixed_columns(*names: str) -> ColumnNames:
    """Returns a function that gives the same names in every environment."""

    def fixed(env: ManagerBasedRlEnv, **params: object) -> tuple[str, ...]:
        return names

    return fixed


def joint_columns(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT, **params: object
) -> tuple[str, ...]:
    """Returns the names of the joints that `asset_cfg` means, in the order of their columns."""
    entity = env.scene[asset_cfg.name]
    ids = entity.joint_ids(asset_cfg)
    if isinstance(ids, slice):
        return entity.joint_names[ids]
    return tuple(entity.joint_names[i] for i in ids.tolist())


def action_columns(env: ManagerBasedRlEnv, **params: object) -> tuple[str, ...]:
    """Returns the labels of the action, `<term>:<actuator>`."""
    return env.action_manager.labels


def command_columns(env: ManagerBasedRlEnv, command_name: str, **params: object) -> tuple[str, ...]:
    """Returns the labels of a command."""
    return env.command_manager.get_term(command_name).labels
