"""The click group behind `unilab`: lazy commands, and errors as messages."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import entry_points

import click

from unilab_core.errors import CapabilityError, ConfigError, UnknownNameError, nearest

__all__ = ["run"]

GROUP = "unilab.commands"

# Commands that a layer above brings, so that a missing layer is named instead of a misspelling.
_HOMES = {
    "train": "unilab-rl[cli,rsl-rl]>=2.0,<3",
    "eval": "unilab-rl[cli,rsl-rl]>=2.0,<3",
    "explain": "unilab-managers[cli]>=0.1,<0.2",
    "compare": "unilab-managers[cli]>=0.1,<0.2",
    "play": "unilab-rl[cli,rsl-rl,video]>=2.0,<3",
}

_BAD_INPUT = (ConfigError, CapabilityError, UnknownNameError)


class _Commands(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands of all installed layers."""
        return sorted(entry.name for entry in entry_points(group=GROUP))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command."""
        for entry in entry_points(group=GROUP):
            if entry.name == cmd_name:
                command: click.Command = entry.load()
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but an unknown name is answered with the nearest ones."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and args[0] in _HOMES:
            raise click.UsageError(f"{args[0]!r} needs another layer: pip install '{_HOMES[args[0]]}'", ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"unknown command {args[0]!r}; {nearest(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: unilab train cartpole-balance",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def _unilab(debug: bool) -> None:
    """Trains and inspects robot policies on MuJoCo."""


def run(args: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    debug = "--debug" in args
    try:
        result = _unilab.main([a for a in args if a != "--debug"], prog_name="unilab", standalone_mode=False)
    except click.ClickException as error:
        if debug:
            traceback.print_exc()
        error.show(sys.stderr)
        return error.exit_code
    except click.Abort:
        # 130 promises a loadable checkpoint, which only a command that wrote one can return.
        sys.stderr.write("Interrupted.\n")
        return 1
    except _BAD_INPUT as error:
        if debug:
            traceback.print_exc()
        sys.stderr.write(f"Error: {error}\n")
        return 2
    return result if isinstance(result, int) else 0
