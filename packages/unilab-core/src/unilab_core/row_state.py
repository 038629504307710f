"""The one registry of what an environment remembers: it undoes a rejected reset, fills checkpoints, compares twins.

It walks the objects it is given (the environment, its managers, class terms and their helpers) and finds tensors,
plain Python values, containers and generators by their path, for example `"rewards._sums[upright]"`.
"""

from __future__ import annotations

import random
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from io import IOBase
from logging import Logger
from pathlib import PurePath
from typing import Any, Literal

import torch

from unilab_core.errors import ConfigError
from unilab_core.row_attributes import attributes_of, put_attributes, rules_of, slot_names
from unilab_core.row_values import Place, Rule, check_fixed, check_like, is_flat, load_place, plain
from unisim.config import Cfg, FrozenDict
from unisim.model_layout import EntityLayout, ModelLayout

__all__ = ["ConstantChangedError", "RowStateRegistry", "SavedRows"]

_WHOLE_BYTES = 64 * 1024
"""Tensors below this size are saved whole; larger ones by rows."""
_HELPER_DEPTH = 3
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_LEAVES = (torch.Tensor, torch.Generator, *_VALUES)
_CONTAINERS = (dict, list, set, deque)
_CODE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, property)
_PLAIN_TYPES: frozenset[type] = frozenset((*_VALUES, *_CODE))
_NOTHING: frozenset[type] = frozenset()
_FIXED = (Cfg, FrozenDict, ModelLayout, EntityLayout, Enum, PurePath, Logger, IOBase, *_CODE)


_OF_ITEMS: Mapping[Rule, Rule] = {"state": "state", "setting": "setting", "record": "field", "field": "field"}
"""How the items of a container are kept, by how the container is."""

_Kind = Literal["leaf", "foreign", "mutable", "stop", "container", "tuple", "object", "opaque"]


class ConstantChangedError(ConfigError):
    """A large tensor without rows was changed where only rows may change."""


@dataclass
class SavedRows:
    """What `RowStateRegistry.save` remembers; opaque to others.

    Attributes:
        objects: Object, its attributes.
        containers: Container, a shallow copy of it.
        tensors: Tensor, its saved values, the rows that were saved or None for all.
        generators: Generator, its state.
        constants: Place of a large tensor that must not change while rows are staged, its version or values.
    """

    objects: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    containers: list[tuple[Any, Any]] = field(default_factory=list)
    tensors: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]] = field(default_factory=list)
    generators: list[tuple[torch.Generator, torch.Tensor]] = field(default_factory=list)
    constants: list[tuple[Place, int | torch.Tensor]] = field(default_factory=list)


class RowStateRegistry:
    """Finds, saves and restores everything that a reset may change outside the engine.

    Rules: tensors under 64 KiB are saved whole, larger ones with leading size N by rows, any other large tensor counts
    as a constant; Python numbers, strings and tuples by value; lists, dicts, sets and deques by their items; generators
    by state; objects of other classes attribute by attribute, to a depth of three. It stops at the classes it is told
    to (environment, scene, backend, handles), at configs, at code, and skips packet storage and expanded tensors. A
    class may say more of its attributes: see `row_attributes.rules_of`. What only a closure or a module global
    remembers is not found; what is found and could not be put back (foreign random generators, iterators, byte
    buffers, writable NumPy arrays) is refused.
    """

    def __init__(
        self,
        roots: Mapping[str, object],
        num_envs: int,
        *,
        stop: tuple[type, ...] = (),
        skip_storage: Sequence[torch.Tensor] = (),
    ) -> None:
        """Remembers where to start.

        Args:
            roots: Path prefix to object; attributes of these are visited even if their class is in `stop`.
            num_envs: N.
            stop: Classes whose instances are not entered.
            skip_storage: Tensors whose storage belongs to the packets.
        """
        self._roots = dict(roots)
        self._n = num_envs
        self._stop = (*stop, *_FIXED)
        self._kinds: dict[type, _Kind] = {}
        self._skip = {t.untyped_storage().data_ptr() for t in skip_storage if t.numel()}

    # ------------------------------------------------------------------ walking

    def _places(self, *, plain: bool = True) -> Iterator[Place]:
        """Yields every place that is entered or has a value of its own; objects and containers before their content.

        Args:
            plain: Whether plain values are yielded too, which their owners' attributes and items remember.
        """
        skip = _NOTHING if plain else _PLAIN_TYPES
        seen = {id(root): 0 for root in self._roots.values()}
        for prefix, root in self._roots.items():
            yield Place(prefix, None, None, "root", root)
            yield from self._attributes(prefix, root, 0, seen, skip)

    def _attributes(
        self, path: str, owner: object, depth: int, seen: dict[int, int], skip: frozenset[type]
    ) -> Iterator[Place]:
        rules = rules_of(type(owner))  # type: ignore[arg-type] # a class is hashable
        for key, value in attributes_of(owner).items():
            if type(value) in skip:
                continue
            here = f"{path}.{key}" if path else key
            place = Place(here, owner, key, "attribute", value, rules.get(key, "state"))
            yield from self._visit(place, depth, seen, skip)

    def _visit(
        self, place: Place, depth: int, seen: dict[int, int], skip: frozenset[type]
    ) -> Iterator[Place]:
        value, kind = place.value, self._kind_of(type(place.value))
        if kind == "leaf" or (kind == "tuple" and _is_value_tuple(value)):
            yield place
            return
        if kind == "foreign":
            raise ConfigError(
                f"{place.path} is a {type(value).__name__}, whose draws a rejected reset cannot take back; "
                "draw from env.rng instead"
            )
        if kind == "mutable" and not _is_read_only(value):
            raise ConfigError(
                f"{place.path} is a {type(value).__name__}, whose content a rejected reset cannot put back; "
                "keep state in torch tensors, numbers, lists, dicts or sets (a read-only NumPy array may stay)"
            )
        # What is not entered is remembered by its owner, as a reference. What was met only farther away is entered
        # again, for it now reaches farther.
        if kind in ("stop", "opaque", "mutable") or seen.get(id(value), depth + 1) <= depth:
            return
        if kind == "object":
            if depth < _HELPER_DEPTH:
                seen[id(value)] = depth
                yield place
                yield from self._attributes(place.path, value, depth + 1, seen, skip)
            return
        seen[id(value)] = depth
        if kind == "container":
            yield place
        # A tuple itself cannot change; what it holds can.
        held: Literal["fixed", "item"] = "fixed" if kind == "tuple" else "item"
        rule = _OF_ITEMS[place.rule]
        for key, item in _items(value):
            if type(item) not in skip:
                here = Place(f"{place.path}[{key}]", value, key, held, item, rule)
                yield from self._visit(here, depth, seen, skip)

    def _kind_of(self, kind: type) -> _Kind:
        """Returns how values of a class are treated; decided once per class."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = self._classify(kind)
        return found

    def _classify(self, kind: type) -> _Kind:
        if issubclass(kind, _LEAVES):
            return "leaf"
        if issubclass(kind, random.Random) or kind.__module__.startswith("numpy.random"):
            return "foreign"
        if issubclass(kind, self._stop):
            return "stop"
        if issubclass(kind, (bytearray, memoryview, array, Iterator)) or _is_ndarray(kind):
            return "mutable"
        if issubclass(kind, _CONTAINERS):
            return "container"
        if issubclass(kind, tuple):
            return "tuple"
        return "object" if kind.__dictoffset__ or slot_names(kind) else "opaque"  # type: ignore[arg-type] # hashable

    def _is_skipped(self, tensor: torch.Tensor) -> bool:
        if 0 in tensor.stride() and any(
            s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)
        ):
            return True
        return bool(tensor.numel()) and tensor.untyped_storage().data_ptr() in self._skip

    # ------------------------------------------------------------------ undo

    def save(self, ids: torch.Tensor) -> SavedRows:
        """Remembers everything that staging a reset of the rows `ids`, (K,) int64, may change.

        Raises:
            ConfigError: A term holds a generator that cannot be put back.
        """
        saved = SavedRows()
        for place in self._places(plain=False):
            value = place.value
            kind = "object" if place.kind == "root" else self._kind_of(type(value))
            if kind == "object":
                saved.objects.append((value, attributes_of(value)))
            elif kind == "container":
                saved.containers.append((value, value.copy()))
            elif isinstance(value, torch.Tensor):
                if not self._is_skipped(value):
                    self._save_tensor(saved, place, value, ids)
            elif isinstance(value, torch.Generator):
                saved.generators.append((value, value.get_state()))
        return saved

    def _save_tensor(self, saved: SavedRows, place: Place, value: torch.Tensor, ids: torch.Tensor) -> None:
        value = value.detach()
        if value.nbytes < _WHOLE_BYTES:
            saved.tensors.append((value, value.clone(), None))
        elif value.ndim and value.shape[0] == self._n:
            saved.tensors.append((value, value[ids], ids))
        else:
            # A tensor born in inference mode counts no versions.
            saved.constants.append((place, value.clone() if value.is_inference() else place.value._version))

    def check_constants(self, saved: SavedRows) -> None:
        """Checks that no large tensor without rows was changed while a reset was staged.

        Raises:
            ConstantChangedError: One was, and names it; unless only replaced, it cannot be taken back.
        """
        for place, before in saved.constants:
            tensor = place.value
            same = torch.equal(tensor, before) if torch.is_tensor(before) else tensor._version == before
            if place.now() is not tensor or not same:
                raise ConstantChangedError(
                    f"{place.path}, a tensor of shape {tuple(tensor.shape)}, was changed where only rows may change "
                    "(in a reset, or when terms are tried before the first one), and is too large to be saved whole; "
                    f"put the {self._n} environments in its first dimension"
                )

    def restore(self, saved: SavedRows) -> None:
        """Puts back what `save` remembered: first references, then values in place; what was born inside goes."""
        for owner, attributes in saved.objects:
            put_attributes(owner, attributes)
        for container, items in saved.containers:
            container.clear()
            (container.extend if isinstance(container, list | deque) else container.update)(items)
        with torch.inference_mode():
            for tensor, values, ids in saved.tensors:
                if ids is None:
                    tensor.copy_(values)
                else:
                    tensor[ids] = values
        for generator, state in saved.generators:
            generator.set_state(state)

    # ------------------------------------------------------------------ checkpoints and twins

    def _kept(self) -> dict[str, Place]:
        """Returns every place whose value is part of a state, by path; a container of plain values is one place."""
        kept: dict[str, Place] = {}
        inside: set[int] = set()
        for place in self._places():
            value = place.value
            if id(place.owner) in inside or place.rule == "setting":
                continue
            if isinstance(value, _CONTAINERS):
                if place.rule == "record" or not is_flat(value):
                    continue
                inside.add(id(value))
            elif isinstance(value, torch.Tensor):
                if self._is_skipped(value):
                    continue
            elif place.kind == "root" or not (
                isinstance(value, bool | int | float | str | type(None) | torch.Generator)
                or _is_value_tuple(value)
            ):
                continue
            kept[place.path] = place
        return kept

    def state_dict(self) -> dict[str, Any]:
        """Returns every value by its path: copies of tensors, generator states, plain values.

        Only what `torch.load(weights_only=True)` reads back: tensors, numbers, strings, None, lists and dicts of them.
        """
        return {path: plain(place.value) for path, place in self._kept().items()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that `state` fits, path by path, without writing anything.

        Raises:
            ValueError: Missing or unknown paths, a tensor of another shape or dtype, or a value of another kind.
        """
        kept = self._kept()
        missing, unknown = sorted(set(kept) - set(state)), sorted(set(state) - set(kept))
        if missing or unknown:
            raise ValueError(
                f"environment state: missing {missing[:6]}, unknown {unknown[:6]}; not of this task, or made by terms "
                "whose attributes are born after construction: make them in __init__"
            )
        for path, place in kept.items():
            check = check_fixed if place.rule == "field" else check_like
            check(path, place.value, state[path])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes a state that `state_dict` returned.

        Raises:
            ValueError: As `check_state_dict`; nothing has changed.
        """
        self.check_state_dict(state)
        kept = self._kept()
        with torch.inference_mode():
            for path, value in state.items():
                load_place(kept[path], value)


def _is_ndarray(kind: type) -> bool:
    """Whether a class is NumPy's array, told without importing NumPy."""
    return any((base.__module__, base.__name__) == ("numpy", "ndarray") for base in kind.__mro__)


def _is_read_only(value: Any) -> bool:  # noqa: ANN401 - a value of kind "mutable"
    return _is_ndarray(type(value)) and not value.flags.writeable


def _items(container: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - dict, list, tuple, set or deque
    """Returns keys and items; a set has none that could hold anything mutable."""
    if isinstance(container, dict):
        return list(container.items())
    return [] if isinstance(container, set) else list(enumerate(container))


def _is_value_tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, _VALUES) for v in value)
