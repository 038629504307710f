"""Finds algorithms by name, in this process and through the entry-point group `unilab.algorithms`."""

from __future__ import annotations

from importlib.metadata import entry_points

from unilab_core import ConfigError, nearest
from unilab_core.errors import PLUGIN_FAILURES, plugin_problem
from unilab_rl.contracts.algorithm import Algorithm

__all__ = ["get_algorithm", "list_algorithms", "register_algorithm"]

_GROUP = "unilab.algorithms"
_registered: dict[str, Algorithm] = {}


def register_algorithm(algorithm: Algorithm) -> None:
    """Makes an algorithm known in this process; an installed package uses the entry-point group instead.

    Raises:
        ValueError: The name is taken by another algorithm.
    """
    known = _registered.get(algorithm.name)
    if known is not None and known is not algorithm:
        raise ValueError(f"algorithm {algorithm.name!r} is registered already, by {type(known).__name__}")
    _registered[algorithm.name] = algorithm


def list_algorithms() -> list[str]:
    """Returns the names of all algorithms, sorted; nothing is imported."""
    return sorted({*_registered, *entry_points(group=_GROUP).names})


def get_algorithm(name: str) -> Algorithm:
    """Returns the algorithm of that name, whatever its case.

    Raises:
        ConfigError: There is none, and the message names the nearest; or its package cannot be imported.
    """
    key = name.lower()
    if key not in _registered:
        found = entry_points(group=_GROUP, name=key)
        if not found:
            raise ConfigError(f"unknown algorithm {name!r}; {nearest(key, list_algorithms())}")
        entry = next(iter(found))
        try:
            algorithm = entry.load()
        except PLUGIN_FAILURES as error:
            raise ConfigError(f"algorithm {name!r}: {plugin_problem(entry, error)}") from error
        register_algorithm(algorithm)
    return _registered[key]
