"""What a term function says of its own columns: their names and their units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.frames import frame_names

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = [
    "action_columns",
    "columns",
    "command_columns",
    "column_names",
    "column_unit",
    "fixed_columns",
    "frame_columns",
    "joint_columns",
    "joint_units",
    "joint_velocity_units",
    "sensor_columns",
]

F = TypeVar("F", bound=Callable[..., Any])
ColumnNames = Callable[..., tuple[str, ...]]
"""`names(env, **params)`, with the parameters of the term; returns one name per column."""
ColumnUnits = str | Callable[..., tuple[str, ...]]
"""One unit for all columns, or `units(env, **params)`, which returns one per column."""

_NAMES = "__unilab_columns__"
_UNIT = "__unilab_unit__"
_ROBOT = SceneEntityCfg()


def columns(*, unit: ColumnUnits, names: ColumnNames) -> Callable[[F], F]:
    """Gives a term, function or class, the units of its values and the names of its columns.

    Args:
        unit: For example `"rad/s"`, or `""` for numbers without one; where columns differ, a function that is called
            as `unit(env, **params)` when the environment is built and returns one per column.
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


def column_unit(term: Callable[..., Any]) -> ColumnUnits | None:
    """Returns the unit of a term's values, or what gives one per column; None where the term says nothing."""
    unit: ColumnUnits | None = getattr(term, _UNIT, None)
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


def joint_units(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT, **params: object
) -> tuple[str, ...]:
    """Returns the units of the positions of the joints that `asset_cfg` means: m where they slide, else rad."""
    kinds = {joint.name: joint.kind for joint in env.model_layout.joints}
    names = joint_columns(env, asset_cfg)
    return tuple("m" if kinds[f"{asset_cfg.name}/{name}"] == "slide" else "rad" for name in names)


def joint_velocity_units(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT, **params: object
) -> tuple[str, ...]:
    """Returns the units of the velocities of the joints that `asset_cfg` means: m/s where they slide, else rad/s."""
    return tuple(f"{unit}/s" for unit in joint_units(env, asset_cfg))


def action_columns(env: ManagerBasedRlEnv, **params: object) -> tuple[str, ...]:
    """Returns the labels of the action, `<term>:<actuator>`."""
    return env.action_manager.labels


def command_columns(env: ManagerBasedRlEnv, command_name: str, **params: object) -> tuple[str, ...]:
    """Returns the labels of a command."""
    return env.command_manager.get_term(command_name).labels


def frame_columns(*parts: str) -> ColumnNames:
    """Returns a function that names the columns of the frames that `asset_cfg` means: `<frame>`, or `<frame>.<part>`.

    Args:
        *parts: What the columns of each frame are called; none where each frame has one column.
    """

    def named(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, **params: object) -> tuple[str, ...]:
        names = frame_names(env, asset_cfg)
        return tuple(f"{name}.{part}" for name in names for part in parts) if parts else names

    return named


def sensor_columns(
    env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], **params: object
) -> tuple[str, ...]:
    """Returns the names of the sensors, one column each."""
    return tuple(sensor_names)
