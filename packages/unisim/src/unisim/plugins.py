"""What installed packages bring by entry point, and how one that is broken is named."""

from __future__ import annotations

from importlib.metadata import EntryPoint

__all__ = ["PLUGIN_FAILURES", "plugin_problem"]

PLUGIN_FAILURES = (Exception, SystemExit)
"""What a third party's module may raise when it is loaded: anything, also `sys.exit()`; an interrupt is the user's."""


def plugin_problem(entry: EntryPoint, error: BaseException) -> str:
    """Returns one sentence about an entry point that cannot be loaded: whose it is, what it names, and what went wrong.

    A broken package must not take others down: whoever loads entry points shows this, raises it where the broken one is
    the one that was asked for, and goes on without it elsewhere.

    Args:
        entry: The entry point.
        error: What loading or calling it raised.
    """
    owner = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
    # Some have no text: `sys.exit()`.
    why = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{entry.group} entry point {entry.name!r}{owner} ({entry.value}) cannot be loaded: {why}"
