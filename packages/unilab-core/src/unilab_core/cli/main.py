"""The dispatcher: finds commands by entry point and turns a wrong input into one message and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        args: Command-line arguments, by default those of the process.

    Returns:
        0; 1 failed; 2 bad input; 130 interrupted with a loadable checkpoint.
    """
    # Before any import of torch: a second spinning pool on the same cores makes both many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import click  # noqa: F401 - asked for here so that its absence is explained
    except ImportError:
        sys.stderr.write("unilab needs the cli extra: pip install 'unilab-core[cli]'\n")
        return 2
    from unilab_core.cli.dispatcher import run

    return run(sys.argv[1:] if args is None else list(args))
