"""The error vocabulary: one meaning per class, shared by every layer above."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CapabilityError",
    "ConfigError",
    "NonFiniteError",
    "ResetRejectedError",
    "nearest",
]


class CapabilityError(NotImplementedError):
    """A backend, device or term cannot do what was asked; raised at construction wherever it can be known then."""


class ConfigError(ValueError):
    """A config or an override is wrong; the message holds its dotted path and the nearest valid names."""


class ResetRejectedError(ValueError):
    """A staged reset failed before the commit; nothing was written.

    Attributes:
        transition: Of an automatic reset: the finished step, whose rows now wait for a reset. None otherwise.
    """

    transition: object | None = None


class NonFiniteError(ValueError):
    """A NaN or an infinity where a finite number is required; the message names where it was found."""


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns a hint that names the valid names closest to `name`, the closest first, or all of a short list.

    Args:
        name: The unknown name.
        valid: The names that would have been accepted.

    Returns:
        For example "did you mean 'tracking'?" or "valid names: 'a', 'b'".
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=3, cutoff=0.6)
    matches = sorted((n for n in names if n.lower() in close), key=lambda n: -_likeness(name, n))
    if matches:
        return "did you mean " + " or ".join(repr(n) for n in matches) + "?"
    if not names:
        return "there are none"
    shown = ", ".join(repr(n) for n in names[:12])
    return f"valid names: {shown}" + (", ..." if len(names) > 12 else "")
