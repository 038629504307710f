"""The dispatcher: finds commands by entry point and turns a wrong input into one message and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_SPINS = 2000
"""A few tens of microseconds, from one operator of an update to the next: waking a thread takes longer."""


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        args: Command-line arguments, by default those of the process.

    Returns:
        0; 1 failed; 2 bad input; 130 interrupted with a loadable checkpoint.
    """
    _share_cores()
    try:
        import click  # noqa: F401 - asked for here so that its absence is explained
    except ImportError:
        sys.stderr.write("unilab needs the cli extra: pip install 'unilab-core[cli]'\n")
        return 2
    from unilab_core.cli.dispatcher import run

    return run(sys.argv[1:] if args is None else list(args))


def _share_cores() -> None:
    """Lets threads of Torch that wait give their cores to physics, if whoever started this says nothing else.

    Before any import of torch, which reads it once: a second pool that spins on the same cores makes both many times
    slower. GNU's OpenMP, which Torch's packages for Linux bring along, still spins for a moment: without that, each
    operator of an update would have to wake the others.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPINS))
