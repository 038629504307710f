"""How a term says which parts of an entity it means, and how names become columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from unilab_core.errors import nearest
from unisim.config import Cfg
from unisim.model_layout import EntityLayout, ModelLayout

__all__ = ["Index", "SceneEntityCfg", "chosen_columns", "column_index", "match_names", "own_elements"]

Index = slice | torch.Tensor


class SceneEntityCfg(Cfg):
    """Which parts of an entity a term means. Names are full-match regular expressions; None means all."""

    name: str = "robot"
    joint_names: tuple[str, ...] | None = None
    body_names: tuple[str, ...] | None = None
    site_names: tuple[str, ...] | None = None
    geom_names: tuple[str, ...] | None = None
    actuator_names: tuple[str, ...] | None = None
    sensor_names: tuple[str, ...] | None = None
    preserve_order: bool = False
    """Whether columns come in the order of the names given instead of the model's."""


def match_names(
    patterns: Sequence[str] | None, names: Sequence[str], *, preserve_order: bool, owner: str
) -> list[int]:
    """Returns the indices in `names` that the patterns match, in the model's order or in that of the patterns.

    Raises:
        ValueError: A pattern matches nothing or is no regular expression, or two patterns match the same name.
    """
    if patterns is None:
        return list(range(len(names)))
    found: list[int] = []
    for pattern in patterns:
        try:
            matches = [i for i, name in enumerate(names) if re.fullmatch(pattern, name)]
        except re.error as error:
            raise ValueError(f"{owner}: {pattern!r} is not a regular expression: {error}") from error
        if not matches:
            raise ValueError(f"{owner}: {pattern!r} matches nothing; {nearest(pattern, names)}")
        again = [names[i] for i in matches if i in found]
        if again:
            raise ValueError(f"{owner}: {again[0]!r} is matched by two of {tuple(patterns)}")
        found += matches
    return found if preserve_order else sorted(found)


def column_index(ids: Sequence[int], device: torch.device) -> Index:
    """A slice where the ids are consecutive, because slicing gives a view and needs no kernel."""
    if ids and list(ids) == list(range(ids[0], ids[0] + len(ids))):
        return slice(ids[0], ids[0] + len(ids))
    return torch.tensor(ids, dtype=torch.int64, device=device)


def chosen_columns(columns: torch.Tensor, index: Index, chosen: Index) -> tuple[Index, int]:
    """Returns the chosen ones of `columns`, (J,) int64, and how many they are.

    Args:
        columns: All of them.
        index: The same as `column_index` returned it; a slice of a slice needs no kernel either.
        chosen: Which of the J.

    Raises:
        IndexError: There is no such column.
    """
    if isinstance(index, slice) and isinstance(chosen, slice):
        part = range(index.start, index.stop)[chosen]
        if part.step == 1:
            return slice(part.start, part.start + len(part)), len(part)
    found = columns[chosen]
    return found, found.numel()


def own_elements(entity: EntityLayout, model: ModelLayout, device: torch.device) -> dict[str, Index]:
    """Returns which elements of `body_*`, `geom_*`, `dof_*` and `actuator_*` model fields belong to an entity."""
    prefix = f"{entity.name}/"
    dofs = [
        dof
        for joint in model.joints
        if joint.name.startswith(prefix)
        for dof in range(joint.qvel_start, joint.qvel_start + joint.qvel_dim)
    ]
    ids = {
        "body": [i for i, name in enumerate(model.bodies) if name.startswith(prefix)],
        "geom": [i for i, name in enumerate(model.geoms) if name.startswith(prefix)],
        "dof": dofs,
        "actuator": [i for i, actuator in enumerate(model.actuators) if actuator.name.startswith(prefix)],
    }
    return {kind: column_index(own, device) for kind, own in ids.items()}
