"""What a term writes beyond state; the backend must know before the model is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from unilab_core.errors import nearest
from unisim.randomization import MODEL_FIELDS

__all__ = ["declared_writes", "writes"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__unilab_writes__"


def writes(*model_fields: str) -> Callable[[F], F]:
    """Declares the model fields that a term writes, for example `@writes("body_mass")`.

    Raises:
        ValueError: No such field can differ per row; the message lists the nearest.
    """
    for name in model_fields:
        if name not in MODEL_FIELDS:
            raise ValueError(f"writes: unknown model field {name!r}; {nearest(name, MODEL_FIELDS)}")

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, (*declared_writes(function), *model_fields))
        return function

    return mark


def declared_writes(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the model fields declared on a term by `@writes`."""
    fields: tuple[str, ...] = getattr(function, _ATTRIBUTE, ())
    return fields
