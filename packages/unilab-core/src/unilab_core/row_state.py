"""The one registry of what an environment remembers: it undoes a rejected reset, fills checkpoints, compares twins.

It walks the objects it is given (the environment, its managers, class terms and their helpers) and finds tensors,
plain Python values, containers and generators by their path, for example `"reward_manager._sums[upright]"`.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unilab_core.errors import ConfigError
from unisim.config import Cfg, FrozenDict

__all__ = ["RowStateRegistry", "SavedRows"]

_WHOLE_BYTES = 64 * 1024
"""Tensors below this size are saved whole; larger ones by rows."""
_HELPER_DEPTH = 3
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_LEAVES = (torch.Tensor, torch.Generator, *_VALUES)
_CODE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, property)


@dataclass(frozen=True)
class _Slot:
    """One place that holds something: an attribute of an object, or an item of a container."""

    path: str
    owner: Any
    key: Any
    is_item: bool

    def assign(self, value: object) -> None:
        if self.is_item:
            self.owner[self.key] = value
        else:
            object.__setattr__(self.owner, self.key, value)


@dataclass
class SavedRows:
    """What `RowStateRegistry.save` remembers; opaque to others.

    Attributes:
        undo: Calls that put things back, in order.
        constants: Path, tensor, its version counter: large tensors that must not change while rows are staged.
    """

    undo: list[Callable[[], None]]
    constants: list[tuple[_Slot, torch.Tensor, int]]


class RowStateRegistry:
    """Finds, saves and restores everything that a reset may change outside the engine.

    Rules: tensors under 64 KiB are saved whole, larger ones with leading size N by rows, any other large tensor counts
    as a constant; Python numbers, strings and tuples by value; lists, dicts and sets by their items; generators by
    state; objects of other classes attribute by attribute, to a depth of three. It stops at the classes it is told to
    (environment, scene, backend, handles), at configs, at code, and skips packet storage and expanded tensors. What
    only a closure or a module global remembers is not found.
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
        self._stop = (*stop, Cfg, FrozenDict, *_CODE)
        self._skip = {t.untyped_storage().data_ptr() for t in skip_storage if t.numel()}

    # ------------------------------------------------------------------ walking

    def _slots(self) -> Iterator[tuple[_Slot, Any]]:
        """Yields every place and its present value, containers before their items."""
        seen = {id(root) for root in self._roots.values()}
        for prefix, root in self._roots.items():
            yield from self._attributes(prefix, root, 0, seen)

    def _attributes(
        self, path: str, owner: object, depth: int, seen: set[int]
    ) -> Iterator[tuple[_Slot, Any]]:
        for key, value in list(getattr(owner, "__dict__", {}).items()):
            here = f"{path}.{key}" if path else key
            yield from self._visit(_Slot(here, owner, key, is_item=False), value, depth, seen)

    def _visit(self, slot: _Slot, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[_Slot, Any]]:  # noqa: ANN401
        if isinstance(value, _LEAVES) or _is_value_tuple(value):
            yield slot, value
            return
        if isinstance(value, random.Random) or type(value).__module__.startswith("numpy.random"):
            raise ConfigError(
                f"{slot.path} is a {type(value).__name__}, whose draws a rejected reset cannot take back; "
                "draw from env.rng instead"
            )
        if isinstance(value, self._stop) or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, dict | list | set):
            yield slot, value
            items = list(
                value.items()
                if isinstance(value, dict)
                else enumerate(value)
                if isinstance(value, list)
                else ()
            )
            for key, item in items:
                yield from self._visit(
                    _Slot(f"{slot.path}[{key}]", value, key, is_item=True), item, depth, seen
                )
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                # The tuple itself cannot change; what it holds can.
                yield from self._visit(_Slot(f"{slot.path}[{i}]", value, i, is_item=True), item, depth, seen)
        elif depth < _HELPER_DEPTH and hasattr(value, "__dict__"):
            yield slot, value
            yield from self._attributes(slot.path, value, depth + 1, seen)

    def _is_skipped(self, tensor: torch.Tensor) -> bool:
        if any(s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)):
            return True
        return bool(tensor.numel()) and tensor.untyped_storage().data_ptr() in self._skip

    def _rows_of(self, tensor: torch.Tensor) -> bool:
        return tensor.ndim > 0 and tensor.shape[0] == self._n

    # ------------------------------------------------------------------ undo

    def save(self, ids: torch.Tensor) -> SavedRows:
        """Remembers everything that staging a reset of the rows `ids`, (K,) int64, may change.

        Raises:
            ConfigError: A term holds a generator that cannot be put back.
        """
        undo: list[Callable[[], None]] = []
        constants: list[tuple[_Slot, torch.Tensor, int]] = []
        undo += [_undo_born(root) for root in self._roots.values()]
        for slot, value in self._slots():
            if isinstance(value, torch.Tensor):
                if self._is_skipped(value):
                    continue
                if value.nbytes <= _WHOLE_BYTES:
                    undo.append(_undo_tensor(slot, value, None))
                elif self._rows_of(value):
                    undo.append(_undo_tensor(slot, value, ids))
                else:
                    constants.append((slot, value, value._version))
            elif isinstance(value, torch.Generator):
                undo.append(_undo_generator(slot, value))
            elif isinstance(value, dict | list | set):
                undo.append(_undo_container(slot, value))
            elif isinstance(value, (tuple, *_VALUES)):
                undo.append(_undo_value(slot, value))
            else:
                undo += [_undo_value(slot, value), _undo_born(value)]
        return SavedRows(undo, constants)

    def check_constants(self, saved: SavedRows) -> None:
        """Checks that no large tensor without rows was changed while a reset was staged.

        Raises:
            ConfigError: One was: it could not be taken back. Names it.
        """
        for slot, tensor, version in saved.constants:
            now = slot.owner[slot.key] if slot.is_item else getattr(slot.owner, slot.key, None)
            if now is not tensor or tensor._version != version:
                raise ConfigError(
                    f"{slot.path}, a tensor of shape {tuple(tensor.shape)}, was changed while a reset was staged, and "
                    f"is too large to be saved whole; put the {self._n} environments in its first dimension"
                )

    def restore(self, saved: SavedRows) -> None:
        """Puts back what `save` remembered: first references, then values in place; what was born inside goes."""
        with torch.inference_mode():
            for call in saved.undo:
                call()

    # ------------------------------------------------------------------ checkpoints and twins

    def state_dict(self) -> dict[str, Any]:
        """Returns every value by its path: copies of tensors, generator states, plain values.

        Only what `torch.load(weights_only=True)` reads back: tensors, numbers, strings, None.
        """
        state: dict[str, Any] = {}
        for slot, value in self._slots():
            if isinstance(value, torch.Tensor):
                if not self._is_skipped(value):
                    state[slot.path] = value.clone()
            elif isinstance(value, torch.Generator):
                state[slot.path] = value.get_state()
            elif isinstance(value, bool | int | float | str | type(None)):
                state[slot.path] = value
            elif isinstance(value, set):
                state[slot.path] = sorted(value)
            elif _is_value_tuple(value):
                state[slot.path] = list(value)
        return state

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that `state` fits, path by path, without writing anything.

        Raises:
            ValueError: Missing or unknown paths, or a tensor of another shape or dtype.
        """
        writable = self.state_dict()
        missing, unknown = sorted(set(writable) - set(state)), sorted(set(state) - set(writable))
        if missing or unknown:
            raise ValueError(
                f"environment state: missing {missing[:6]}, unknown {unknown[:6]}; not of this task"
            )
        for path, value in writable.items():
            _check_like(path, value, state[path])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes a state that `state_dict` returned.

        Raises:
            ValueError: As `check_state_dict`; nothing has changed.
        """
        self.check_state_dict(state)
        present = {slot.path: (slot, value) for slot, value in self._slots()}
        with torch.inference_mode():
            for path, value in state.items():
                _load(*present[path], value)


def _items(container: dict[Any, Any] | list[Any] | set[Any]) -> list[tuple[Any, Any]]:
    """Returns keys and items; a set has none that could hold anything mutable."""
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container)) if isinstance(container, list) else []


def _is_value_tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, _VALUES) for v in value)


def _check_like(path: str, value: object, new: object) -> None:
    if isinstance(value, torch.Tensor):
        good = isinstance(new, torch.Tensor) and new.shape == value.shape and new.dtype == value.dtype
        if not good:
            got = f"{new.dtype} {tuple(new.shape)}" if isinstance(new, torch.Tensor) else type(new).__name__
            raise ValueError(
                f"environment state: {path} is {got}, expected {value.dtype} {tuple(value.shape)}"
            )
    elif isinstance(new, torch.Tensor):
        raise ValueError(f"environment state: {path} is a tensor, expected {type(value).__name__}")


def _load(slot: _Slot, value: Any, new: Any) -> None:  # noqa: ANN401 - whatever the slot holds
    if isinstance(value, torch.Tensor):
        value.copy_(new)
    elif isinstance(value, torch.Generator):
        value.set_state(new)
    elif isinstance(value, set):
        value.clear()
        value.update(new)
    elif isinstance(value, tuple):
        slot.assign(tuple(new))
    else:
        slot.assign(new)


def _undo_tensor(slot: _Slot, tensor: torch.Tensor, ids: torch.Tensor | None) -> Callable[[], None]:
    saved = tensor.clone() if ids is None else tensor[ids]

    def undo() -> None:
        if not isinstance(slot.owner, tuple):
            slot.assign(tensor)
        if ids is None:
            tensor.copy_(saved)
        else:
            tensor[ids] = saved

    return undo


def _undo_generator(slot: _Slot, generator: torch.Generator) -> Callable[[], None]:
    state = generator.get_state()

    def undo() -> None:
        if not isinstance(slot.owner, tuple):
            slot.assign(generator)
        generator.set_state(state)

    return undo


def _undo_value(slot: _Slot, value: object) -> Callable[[], None]:
    def undo() -> None:
        if not isinstance(slot.owner, tuple):
            slot.assign(value)

    return undo


def _undo_container(slot: _Slot, container: Any) -> Callable[[], None]:  # noqa: ANN401 - dict, list or set
    items = container.copy()

    def undo() -> None:
        if not isinstance(slot.owner, tuple):
            slot.assign(container)
        container.clear()
        if isinstance(container, list):
            container.extend(items)
        else:
            container.update(items)

    return undo


def _undo_born(owner: object) -> Callable[[], None]:
    names = set(getattr(owner, "__dict__", ()))

    def undo() -> None:
        for name in set(getattr(owner, "__dict__", ())) - names:
            object.__delattr__(owner, name)

    return undo
