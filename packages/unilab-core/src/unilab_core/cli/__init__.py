"""The `unilab` command: a dispatcher whose commands come from the installed layers."""

from unilab_core.cli.main import main

__all__ = ["main"]
