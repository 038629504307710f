"""Attributes of any object: read with those in slots, put back, and what its class says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from unilab_core.row_values import Rule

__all__ = [
    "assigned_names",
    "attributes_of",
    "put_assigned",
    "put_attributes",
    "rules_of",
    "slot_names",
]


@lru_cache(maxsize=1024)
def slot_names(kind: type) -> tuple[str, ...]:
    """Returns the attributes that a class keeps in slots."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def attributes_of(owner: object) -> dict[str, Any]:
    """Returns a copy of an object's attributes, those in slots included."""
    found: dict[str, Any] = dict(getattr(owner, "__dict__", ()))
    for name in slot_names(type(owner)):  # type: ignore[arg-type] # a class is hashable
        if hasattr(owner, name):
            found[name] = getattr(owner, name)
    return found


def put_attributes(owner: object, attributes: Mapping[str, Any]) -> None:
    """Gives an object back the attributes that `attributes_of` returned; those born since go."""
    now = attributes_of(owner)
    for name in now.keys() - attributes.keys():
        object.__delattr__(owner, name)
    for name, value in attributes.items():
        if name not in now or now[name] is not value:
            object.__setattr__(owner, name, value)


def assigned_names(kind: type) -> tuple[str, ...] | None:
    """Returns the only attributes of a class that are assigned once an environment is built; None: any may be.

    A class says so of itself by `row_assigned`, and not of its subclasses. Its other attributes are not looked at in
    every reset: each refers to what it always has, whose content is kept as that of any other.
    """
    names: tuple[str, ...] | None = vars(kind).get("row_assigned")
    return names


def put_assigned(owner: object, attributes: Mapping[str, Any], names: Collection[str]) -> None:
    """Gives an object of such a class back the attributes that are assigned; those that are not of `names` go."""
    for name in attributes_of(owner).keys() - names:
        object.__delattr__(owner, name)
    for name, value in attributes.items():
        object.__setattr__(owner, name, value)


@lru_cache(maxsize=1024)
def rules_of(kind: type) -> Mapping[str, Rule]:
    """Returns how attributes of a class are kept, where it says so, its bases included.

    `row_settings` names attributes that say how an object was made: undone like any other, but no part of a state; an
    object that one of them holds goes by the rules of its own class.
    `row_records` names dicts whose keys never change: each item is state of its own, and keeps its kind.
    """
    rules: dict[str, Rule] = {}
    for base in kind.__mro__:
        rules |= dict.fromkeys(vars(base).get("row_settings", ()), "setting")
        rules |= dict.fromkeys(vars(base).get("row_records", ()), "record")
    return rules
