"""Which part of a model field the elements mean that a term has chosen among those of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from unilab_core.entity_cfg import Index
from unilab_core.model_staging import FieldPart

__all__ = ["FieldParts"]

_MOST = 64


class _Kept(NamedTuple):
    """A part, and the very choice that it was found for, as it was then."""

    element_ids: Index
    version: int
    part: FieldPart


class FieldParts:
    """Parts of model fields, found once for a choice: terms ask again in every reset with what they were given.

    `Entity.element_ids` gives the same object every time. One that is made anew for every call, or changed in place, is
    looked up anew as well.
    """

    def __init__(self, own: Mapping[str, Index], entity: str) -> None:
        """Finds nothing yet.

        Args:
            own: Which elements are the entity's own, by kind: `"body"`, `"geom"`, `"dof"`, `"actuator"`.
            entity: Its name, for error messages.
        """
        self._own = own
        self._entity = entity
        self._kept: dict[tuple[str, int, int | None], _Kept] = {}

    def find(self, field: str, element_ids: Index, column: int | None, owner: str) -> FieldPart:
        """Returns where in a model field some of the entity's own elements lie.

        Args:
            field: The field; all of one that is of no kind of element, such as `gravity`.
            element_ids: Which of the entity's own.
            column: Which column of each; None means all.
            owner: Who asks, for the error message.

        Raises:
            ValueError: The entity has no such element.
        """
        kind = field.partition("_")[0]
        key, version = (kind, id(element_ids), column), _version(element_ids)
        kept = self._kept.get(key)
        if kept is not None and kept.element_ids is element_ids and kept.version == version:
            return kept.part
        try:
            part = FieldPart.of(self._own.get(kind, slice(None)), element_ids, column)
        except (IndexError, TypeError) as error:
            raise ValueError(
                f"{owner}: element_ids leave what {self._entity!r} has of {field!r}; "
                "take them from Entity.element_ids"
            ) from error
        if version is not None:
            if len(self._kept) == _MOST:  # somebody makes a new choice for every call
                self._kept.clear()
            self._kept[key] = _Kept(element_ids, version, part)
        return part


def _version(element_ids: Index) -> int | None:
    """Returns a number that rises when a choice is changed in place; None of one that does not tell."""
    if not isinstance(element_ids, torch.Tensor):
        return 0
    return None if element_ids.is_inference() else element_ids._version
