"""The error vocabulary of the environment layer; the backend's own words are re-exported."""

from __future__ import annotations

from unisim.errors import CapabilityError, ConfigError, NonFiniteError, ResetRejectedError, nearest
from unisim.plugins import PLUGIN_FAILURES, plugin_problem

__all__ = [
    "PLUGIN_FAILURES",
    "CapabilityError",
    "ConfigError",
    "EnvFaultedError",
    "NonFiniteError",
    "ResetRejectedError",
    "UnknownNameError",
    "nearest",
    "plugin_problem",
]


class EnvFaultedError(RuntimeError):
    """An earlier failure left the environment in no defined state; only `close()` still works."""


class UnknownNameError(KeyError):
    """No task or entity of that name; the message lists the nearest."""

    def __str__(self) -> str:
        """Returns the message as it is: KeyError would show its repr."""
        return str(self.args[0])
