"""Finds what can't be sent to another process before one is started, and where in a config it is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from multiprocessing.reduction import ForkingPickler

from pydantic import BaseModel

from unilab_core import ConfigError

__all__ = ["check_can_be_sent"]


def check_can_be_sent(what: str, parts: Mapping[str, object]) -> None:
    """Checks that everything in `parts` can be sent to a spawned process.

    Args:
        what: Wants to send it; begins the message.
        parts: By the name that the path in a message starts with.

    Raises:
        ConfigError: Something can't be; names its path and value.
    """
    for name, part in parts.items():
        error = _failure(part)
        if error is not None:
            path, value, reason = _deepest(name, part, error)
            raise ConfigError(
                f"{what}: {path} is {value!r:.80}, which can't be sent to another process ({reason}); use what can be "
                "imported, as a function of a module, or set learner.collectors=0"
            )


def _failure(value: object) -> Exception | None:
    try:
        ForkingPickler.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return error
    return None


def _deepest(path: str, value: object, error: Exception) -> tuple[str, object, Exception]:
    """Returns path, value and error of the innermost part that can't be sent by itself."""
    for below, part in _parts(value):
        reason = _failure(part)
        if reason is not None:
            return _deepest(f"{path}.{below}", part, reason)
    return path, value, error


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        yield from ((name, getattr(value, name)) for name in type(value).model_fields)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), part) for index, part in enumerate(value))
