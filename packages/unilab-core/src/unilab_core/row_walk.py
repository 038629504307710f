"""The walk of the row-state registry: which objects, containers, tensors and generators are reached from where."""

from __future__ import annotations

import random
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from io import IOBase
from logging import Logger
from pathlib import PurePath
from typing import Any, Literal

import torch

from unilab_core.errors import ConfigError
from unilab_core.row_attributes import attributes_of, rules_of, slot_names
from unilab_core.row_values import Place, Rule
from unisim.config import Cfg, FrozenDict
from unisim.model_layout import EntityLayout, ModelLayout

__all__ = ["CONTAINERS", "Kind", "Kinds", "RowWalk", "is_read_only", "is_value_tuple"]

_HELPER_DEPTH = 3
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
CONTAINERS = (dict, list, set, deque)
_CODE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    property,
    partial,
)
_FIXED = (Cfg, FrozenDict, ModelLayout, EntityLayout, Enum, PurePath, Logger, IOBase, *_CODE)

_OF_ITEMS: Mapping[Rule, Rule] = {"state": "state", "setting": "setting", "record": "field", "field": "field"}
"""How the items of a container are kept, by how the container is."""

Kind = Literal["value", "leaf", "foreign", "mutable", "stop", "container", "tuple", "object", "opaque"]
_PASSED: frozenset[Kind] = frozenset(("stop", "opaque"))
"""What is not entered is remembered by its owner, as a reference."""
_INERT: frozenset[Kind] = _PASSED | {"value"}


class Kinds(dict[type, Kind]):
    """How values of each class are treated; decided when it is asked for first."""

    def __init__(self, stop: tuple[type, ...]) -> None:
        """Remembers the classes whose instances are not entered."""
        super().__init__()
        self._stop = (*stop, *_FIXED)

    def __missing__(self, kind: type) -> Kind:
        """Decides."""
        self[kind] = decided = self._classify(kind)
        return decided

    def _classify(self, kind: type) -> Kind:
        if issubclass(kind, (torch.Tensor, torch.Generator)):
            return "leaf"
        if issubclass(kind, _VALUES):
            return "value"
        if issubclass(kind, random.Random) or kind.__module__.startswith("numpy.random"):
            return "foreign"
        if issubclass(kind, self._stop):
            return "stop"
        if issubclass(kind, (bytearray, memoryview, array, Iterator)) or _is_ndarray(kind):
            return "mutable"
        if issubclass(kind, CONTAINERS):
            return "container"
        if issubclass(kind, tuple):
            return "tuple"
        return "object" if kind.__dictoffset__ or slot_names(kind) else "opaque"  # type: ignore[arg-type] # hashable

    def is_inert(self, value: object) -> bool:
        """Whether a value is neither entered nor saved itself: its owner's attributes and items remember it."""
        return self[type(value)] in _INERT or is_value_tuple(value)


class RowWalk:
    """One walk: what it has found so far, and how far from a root it has met what it has entered.

    Attributes:
        found: Every place that is entered or has a value of its own, objects and containers before their content.
        arrays: The read-only arrays that were met, which are allowed for as long as they are read-only.
        met: How often each container was met, by its id.
    """

    def __init__(self, kinds: Kinds, roots: Mapping[str, object], *, values: bool = True) -> None:
        """Walks.

        Args:
            kinds: How values of each class are treated.
            roots: Path prefix to object; attributes of these are visited whatever their class.
            values: Whether plain values are found too, which their owners' attributes and items remember.

        Raises:
            ConfigError: Something was met that could not be put back.
        """
        self.found: list[Place] = []
        self.arrays: list[Any] = []
        self.met: dict[int, int] = {}
        self._kinds = kinds
        self._passed = _PASSED if values else _INERT
        self._seen = {id(root): 0 for root in roots.values()}
        for prefix, root in roots.items():
            self.found.append(Place(prefix, None, None, "root", root))
            self._attributes(prefix, root, 0)

    def _attributes(self, path: str, owner: object, depth: int) -> None:
        kinds, passed, dot = self._kinds, self._passed, "." if path else ""
        rules = rules_of(type(owner))  # type: ignore[arg-type] # a class is hashable
        for key, value in attributes_of(owner).items():
            if kinds[type(value)] not in passed:
                rule = rules.get(key, "state")
                self._visit(Place(f"{path}{dot}{key}", owner, key, "attribute", value, rule), depth)

    def _items(self, place: Place, held: Literal["item", "fixed"], depth: int) -> None:
        kinds, passed, holder = self._kinds, self._passed, place.value
        rule = _OF_ITEMS[place.rule]
        if isinstance(holder, set):  # which has no items that could hold anything mutable
            return
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if kinds[type(item)] not in passed:
                self._visit(Place(f"{place.path}[{key}]", holder, key, held, item, rule), depth)

    def _visit(self, place: Place, depth: int) -> None:
        value, seen = place.value, self._seen
        kind = self._kinds[type(value)]
        if kind == "leaf" or kind == "value" or (kind == "tuple" and is_value_tuple(value)):
            self.found.append(place)
            return
        if kind == "foreign" or kind == "mutable":
            self._check(place, kind)
            return
        if kind == "container":
            self.met[id(value)] = self.met.get(id(value), 0) + 1
        # What was met only farther away is entered again, for it now reaches farther.
        if seen.get(id(value), depth + 1) <= depth or (kind == "object" and depth >= _HELPER_DEPTH):
            return
        seen[id(value)] = depth
        if kind == "object":
            self.found.append(place)
            self._attributes(place.path, value, depth + 1)
        elif kind == "container":
            self.found.append(place)
            self._items(place, "item", depth)
        else:  # a tuple itself cannot change; what it holds can
            self._items(place, "fixed", depth)

    def _check(self, place: Place, kind: Kind) -> None:
        """Refuses what could not be put back; notes an array that may stay while it is read-only.

        Raises:
            ConfigError: A foreign random generator, or something whose content can change.
        """
        name = type(place.value).__name__
        if kind == "foreign":
            raise ConfigError(
                f"{place.path} is a {name}, whose draws a rejected reset cannot take back; "
                "draw from env.rng instead"
            )
        if not is_read_only(place.value):
            raise ConfigError(
                f"{place.path} is a {name}, whose content a rejected reset cannot put back; "
                "keep state in torch tensors, numbers, lists, dicts or sets (a read-only NumPy array may stay)"
            )
        self.arrays.append(place.value)


def _is_ndarray(kind: type) -> bool:
    """Whether a class is NumPy's array, told without importing NumPy."""
    return any((base.__module__, base.__name__) == ("numpy", "ndarray") for base in kind.__mro__)


def is_read_only(value: Any) -> bool:  # noqa: ANN401 - a value of kind "mutable"
    """Whether a value of kind "mutable" is an array that nobody can write to."""
    return _is_ndarray(type(value)) and not value.flags.writeable


def is_value_tuple(value: object) -> bool:
    """Whether a value is a tuple of plain values."""
    return isinstance(value, tuple) and all(isinstance(v, _VALUES) for v in value)
