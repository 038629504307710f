"""Values of the row-state registry as plain data: how each kind is copied out, compared and written back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import torch

__all__ = ["Place", "Rule", "check_fixed", "check_like", "is_flat", "load_place", "plain"]

Rule = Literal["state", "setting", "record", "field"]
"""How what a place holds is kept: as state, not in a state at all, as a dict of fixed keys, or as a field of one."""

_PLAIN = (bool, int, float, str, type(None))


@dataclass(slots=True)
class Place:
    """One place that holds something: an attribute of an object, an item of a container, or of a tuple (fixed)."""

    path: str
    owner: Any
    key: Any
    kind: Literal["root", "attribute", "item", "fixed"]
    value: Any
    rule: Rule = "state"

    def now(self) -> object:
        """Returns what is there now, or None."""
        try:
            return getattr(self.owner, self.key) if self.kind == "attribute" else self.owner[self.key]
        except (AttributeError, KeyError, IndexError):
            return None


def is_flat(container: Any) -> bool:  # noqa: ANN401 - dict, list, set or deque
    """Whether a container holds nothing but plain values, so that it is saved as one, whatever its length."""
    if isinstance(container, dict):
        return all(isinstance(v, _PLAIN) for pair in container.items() for v in pair)
    return all(isinstance(v, _PLAIN) for v in container)


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a place of the registry holds
    """Returns a copy of a value that `torch.load(weights_only=True)` reads back."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set):
        return sorted(value, key=lambda item: (type(item).__name__, item))
    return list(value) if isinstance(value, list | tuple | deque) else value


def check_like(path: str, value: object, new: object) -> None:
    """Checks that `new` may take the place of `value`.

    Raises:
        ValueError: A tensor of another shape or dtype, or a value of another kind; names the path.
    """
    if isinstance(value, torch.Generator):
        check_like(path, value.get_state(), new)
        _try_generator_state(path, value, new)
        return
    if isinstance(value, torch.Tensor):
        if not isinstance(new, torch.Tensor) or new.shape != value.shape or new.dtype != value.dtype:
            got = f"{new.dtype} {tuple(new.shape)}" if isinstance(new, torch.Tensor) else type(new).__name__
            raise ValueError(
                f"environment state: {path} is {got}, expected {value.dtype} {tuple(value.shape)}"
            )
        return
    if _kind(value) != _kind(new) and not {_kind(value), _kind(new)} <= {
        "nothing",
        "number",
        "text",
        "truth",
    }:
        raise ValueError(
            f"environment state: {path} is a {type(new).__name__}, expected a {type(value).__name__}"
        )
    if len({_kind(value), _kind(new)} - {"nothing"}) == 2:
        raise ValueError(f"environment state: {path} is {new!r}, expected a {type(value).__name__}")
    if hasattr(value, "_fields") and isinstance(new, list | tuple) and len(new) != len(value._fields):
        raise ValueError(
            f"environment state: {path} has {len(new)} items, {type(value).__name__} has {len(value._fields)}"
        )


def check_fixed(path: str, value: object, new: object) -> None:
    """Checks that `new` may take the place of `value`, which always has the same form: no None, as many items.

    Raises:
        ValueError: As `check_like`, or of another form; names the path.
    """
    if not isinstance(value, torch.Tensor | torch.Generator) and _form(value) != _form(new):
        raise ValueError(f"environment state: {path} is {new!r}, expected the form of {value!r}")
    check_like(path, value, new)


def _form(value: object) -> object:
    """Returns what must not change about a value: the kinds of all that it holds."""
    if isinstance(value, list | tuple):
        return [_form(item) for item in value]
    return {key: _form(item) for key, item in value.items()} if isinstance(value, dict) else _kind(value)


def _try_generator_state(path: str, generator: torch.Generator, new: object) -> None:
    """A state of the right size may still be none: only a generator can tell."""
    try:
        torch.Generator(device=generator.device).set_state(new)  # type: ignore[arg-type] # whatever was given
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"environment state: {path} is no state of a random generator: {error}") from error


def _kind(value: object) -> str:
    if value is None:
        return "nothing"  # an attribute that may be absent
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "mapping"
    return "sequence" if isinstance(value, list | tuple | set | deque) else type(value).__name__


def load_place(place: Place, new: Any) -> None:  # noqa: ANN401 - what `plain` returned
    """Writes a checked value back: tensors and containers in place, plain values by assignment."""
    value = place.value
    if isinstance(value, torch.Tensor):
        value.detach().copy_(new)
    elif isinstance(value, torch.Generator):
        value.set_state(new)
    elif isinstance(value, dict | set):
        value.clear()
        value.update(new)
    elif isinstance(value, list | deque):
        value.clear()
        value.extend(new)
    else:
        if isinstance(value, tuple):
            new = type(value)(*new) if hasattr(value, "_fields") else tuple(new)
        if place.kind == "item":
            place.owner[place.key] = new
        elif place.kind == "attribute":
            object.__setattr__(place.owner, place.key, new)
