"""What code can remember outside of its objects: closures, module globals, class attributes, mutable defaults.

A rejected reset does not put it back, no checkpoint holds it, and two environments of one process share it.
"""

from __future__ import annotations

import dis
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unilab_core.env import TorchEnv
from unilab_core.errors import ConfigError
from unilab_core.row_state import RowStateRegistry
from unilab_core.scene import EntityScene
from unilab_managers.managers.manager_base import ManagerBase
from unisim.contract import SimBackend

__all__ = ["hidden_memory"]

_LIBRARIES = {
    *sys.stdlib_module_names,
    *("mujoco", "mujoco_warp", "numpy", "pydantic", "torch", "warp"),
    *("unisim", "unilab_core", "unilab_managers", "unilab_rl"),
}
"""Whose code is not searched: it is nobody's term, or tested where it comes from."""
_STOP = (TorchEnv, ManagerBase, EntityScene, SimBackend)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CODE = (
    *(type, types.FunctionType, types.MethodType, types.BuiltinFunctionType),
    *(staticmethod, classmethod, property),
)
_GLOBALS = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME")
_IMPORTS = ("IMPORT_NAME",)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "IMPORT_FROM")
_UNKNOWN = "cannot be compared"


def hidden_memory(*roots: object) -> dict[str, object]:
    """Returns what functions and classes remember outside of objects, by a name for people: comparable values.

    Args:
        roots: Functions, classes or methods; what they use of their own package is searched too.
    """
    found: dict[str, object] = {}
    seen: set[int] = set()
    for root in roots:
        found.update(_of(root, seen))
    return found


def _of(code: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(code, staticmethod | classmethod):
        code = code.__func__
    if isinstance(code, property):
        for part in (code.fget, code.fset):
            yield from _of(part, seen)
        return
    if isinstance(code, types.MethodType):
        code = code.__func__
    if id(code) in seen or _is_library(code):
        return
    seen.add(id(code))
    if isinstance(code, types.FunctionType):
        yield from _of_function(code, seen)
    elif isinstance(code, type):
        yield from _of_class(code, seen)
    elif hasattr(code, "__wrapped__"):  # a cache, which only remembers what would come out again
        yield from _of(code.__wrapped__, seen)


def _is_library(code: object) -> bool:
    module = getattr(code, "__module__", None)
    return not isinstance(module, str) or module.partition(".")[0] in _LIBRARIES


def _of_function(function: types.FunctionType, seen: set[int]) -> Iterator[tuple[str, object]]:
    name = f"{function.__module__}.{function.__qualname__}"
    for variable, value in _closure(function).items():
        yield from _value(f"{variable!r} in the closure of {name}", value, seen)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    for value in defaults:
        yield from _value(f"a mutable default of {name}", value, seen)
    for attribute, value in vars(function).items():
        if not attribute.startswith("__"):
            yield from _value(f"attribute {attribute!r} of {name}", value, seen)
    if "__wrapped__" in vars(function):
        yield from _of(vars(function)["__wrapped__"], seen)
    for variable in _global_names(function.__code__):
        if variable in function.__globals__:
            value = function.__globals__[variable]
            yield from _value(f"module global {function.__module__}.{variable}", value, seen)
    yield from _of_modules(function, seen)


def _closure(function: types.FunctionType) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[variable] = cell.cell_contents
        except ValueError:  # nothing in it yet
            continue
    return found


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Yields the globals that a function and the functions inside it read or write."""
    yield from _names(code, _GLOBALS)


def _of_modules(function: types.FunctionType, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Yields what modules hold that a function reaches by attributes: `helper.count`, or `from helper import count`."""
    code, variables = function.__code__, _closure(function)
    reached = [function.__globals__.get(name) for name in _global_names(code)]
    reached += [*variables.values(), *(sys.modules.get(name) for name in _names(code, _IMPORTS))]
    names = set(_names(code, _ATTRIBUTES))
    modules = [module for module in reached if isinstance(module, types.ModuleType)]
    own, visited = function.__module__.partition(".")[0], set()
    while modules:
        module = modules.pop()
        if module in visited or _is_library_module(module, own):
            continue
        visited.add(module)
        for name in names & vars(module).keys():
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                modules.append(value)
            else:
                yield from _value(f"module global {module.__name__}.{name}", value, seen)


def _is_library_module(module: types.ModuleType, own: str) -> bool:
    """Whether a module is nobody's term: not of the package `own`, and a library or installed as one is."""
    top = module.__name__.partition(".")[0]
    if top in _LIBRARIES:
        return True
    path = getattr(module, "__file__", None)
    parts = Path(path).parts if path else ()
    return top != own and ("site-packages" in parts or "dist-packages" in parts)


def _names(code: types.CodeType, operations: tuple[str, ...]) -> Iterator[str]:
    """Yields the names that a function and the functions inside it use in certain operations."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in operations:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, operations)


def _of_class(kind: type, seen: set[int]) -> Iterator[tuple[str, object]]:
    for base in kind.__mro__:
        if _is_library(base):
            continue
        for name, value in vars(base).items():
            if name.startswith("__") and not isinstance(value, types.FunctionType):
                continue
            here = f"class attribute {base.__module__}.{base.__qualname__}.{name}"
            yield from _value(here, value, seen)


def _value(name: str, value: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(value, types.ModuleType):
        return
    if isinstance(value, staticmethod | classmethod | property | type) or callable(value):
        yield from _of(value, seen)
        if _is_code(value):
            return
    yield name, _comparable(value)


def _is_code(value: object) -> bool:
    return isinstance(value, _CODE) or hasattr(value, "__wrapped__")


def _comparable(value: object) -> object:
    """Returns something that is equal as long as a value stays as it is."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().reshape(-1)
        return value.dtype, tuple(value.shape), flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    for kind, state in _GENERATORS:
        if isinstance(value, kind):
            return repr(state(value))
    try:
        held = RowStateRegistry({"": types.SimpleNamespace(value=value)}, 1, stop=_STOP).state_dict()
    except ConfigError:  # it holds what the registry refuses, an array or a generator
        return _pickled(value)
    return tuple(
        (path, _comparable(item) if torch.is_tensor(item) else repr(item)) for path, item in held.items()
    )


_GENERATORS: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (random.Random, lambda generator: generator.getstate()),
    (np.random.Generator, lambda generator: generator.bit_generator.state),
    (np.random.RandomState, lambda generator: generator.get_state()),
    (torch.Generator, lambda generator: generator.get_state().tolist()),
)


def _pickled(value: object) -> object:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - what cannot be pickled says nothing either way
        return _UNKNOWN
