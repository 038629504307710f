"""Which joints an action drives, and settings by the names of joints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch

from unilab_core.entity_cfg import column_index, match_names
from unilab_core.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_core.scene import Entity

__all__ = ["DrivenJoints", "by_joint", "driven_joints"]

T = TypeVar("T")


@dataclass(frozen=True)
class DrivenJoints:
    """Joints of one entity, each with the actuator that drives it.

    Attributes:
        entity: Whose they are.
        names: Names of the joints, in the order of the columns.
        joint_ids: Their columns in `entity.data.joint_pos`.
        control_ids: Their actuators' columns in the control.
        ranges: (dim,) lowest and highest control of each; infinite where it is unlimited.
    """

    entity: Entity
    names: tuple[str, ...]
    joint_ids: slice | torch.Tensor
    control_ids: slice | torch.Tensor
    ranges: tuple[torch.Tensor, torch.Tensor]


def driven_joints(
    env: TorchEnv, entity_name: str, joint_names: tuple[str, ...] | None, *, preserve_order: bool, owner: str
) -> DrivenJoints:
    """Returns the joints that the full-match regular expressions `joint_names` mean; None: all that are driven.

    Args:
        env: The environment.
        entity_name: Whose joints.
        joint_names: Patterns of joints that have an actuator.
        preserve_order: Whether they come in the order of `joint_names` instead of the model's.
        owner: Whose, for the error message.

    Raises:
        ConfigError: No such entity, a pattern matches no driven joint (with the nearest) or a joint is matched twice,
            none is left, or a joint has several actuators.
    """
    try:
        entity = env.scene[entity_name]
        actuators = _actuators_by_joint(env, entity)
        driven = [name for name in entity.joint_names if name in actuators]
        ids = match_names(
            joint_names,
            driven,
            preserve_order=preserve_order,
            owner="joint_names, of joints with an actuator",
        )
    except (UnknownNameError, ValueError) as error:
        raise ConfigError(f"{owner}: {error}") from error
    names = tuple(driven[i] for i in ids)
    if not names:
        raise ConfigError(
            f"{owner}: joint_names {joint_names} selects no joint of {entity_name!r} with an actuator"
        )
    for name in names:
        if len(actuators[name]) > 1:
            raise ConfigError(
                f"{owner}: joint {name!r} has the actuators {actuators[name]}; an action drives a joint by one"
            )
    chosen = [actuators[name][0] for name in names]
    joint_ids = column_index([entity.joint_names.index(name) for name in names], env.device)
    return DrivenJoints(entity, names, joint_ids, entity.control_ids(chosen), entity.control_ranges(chosen))


def _actuators_by_joint(env: TorchEnv, entity: Entity) -> dict[str, tuple[str, ...]]:
    """Returns the actuators of each joint of an entity, names without its prefix."""
    prefix = f"{entity.name}/"
    found: dict[str, tuple[str, ...]] = {}
    for actuator in env.model_layout.actuators:
        if actuator.joint is not None and actuator.name.startswith(prefix):
            joint = actuator.joint.removeprefix(prefix)
            found[joint] = (*found.get(joint, ()), actuator.name.removeprefix(prefix))
    return found


def by_joint(values: T | Mapping[str, T], names: Sequence[str], others: Sequence[T], owner: str) -> list[T]:
    """Returns one value per joint.

    Args:
        values: One for all joints, or by full-match regular expression.
        names: The joints, in the order of the columns.
        others: What each joint has that no expression matches.
        owner: Whose setting, for the error message.

    Raises:
        ConfigError: An expression matches none of the joints (with the nearest) or is none, or two match the same
            joint.
    """
    if not isinstance(values, Mapping):
        return [values] * len(names)
    out = list(others)
    try:
        match_names(
            tuple(values), names, preserve_order=False, owner=owner
        )  # a joint matched twice is refused here
        for pattern, value in values.items():
            for i in match_names((pattern,), names, preserve_order=False, owner=owner):
                out[i] = value
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return out
