"""The click group behind `unilab`: lazy commands, and errors as messages."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import EntryPoint, entry_points

import click

from unilab_core.errors import (
    PLUGIN_FAILURES,
    CapabilityError,
    ConfigError,
    UnknownNameError,
    nearest,
    plugin_problem,
)

__all__ = ["run"]

GROUP = "unilab.commands"

# Commands that a layer above brings, so that a missing layer is named instead of a misspelling.
_HOMES = {
    "train": "unilab-rl[cli,rsl-rl]>=2.0,<3",
    "eval": "unilab-rl[cli,rsl-rl]>=2.0,<3",
    "export": "unilab-rl[cli,export,rsl-rl]>=2.0,<3",
    "diff": "unilab-rl[cli]>=2.0,<3",
    "explain": "unilab-managers[cli]>=0.1,<0.2",
    "check": "unilab-managers[cli]>=0.1,<0.2",
    "compare": "unilab-managers[cli]>=0.1,<0.2",
    "play": "unilab-rl[cli,rsl-rl,video]>=2.0,<3",
}

_BAD_INPUT = (ConfigError, CapabilityError, UnknownNameError)


class _Commands(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands of all installed layers."""
        return sorted({entry.name for entry in entry_points(group=GROUP)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command; one that cannot be had says so, in the list of commands and when it is called."""
        found = [entry for entry in entry_points(group=GROUP) if entry.name == cmd_name]
        # Two packages may bring the same function; which of two functions was meant is not for us to guess.
        if len(found) > 1 and len({entry.value for entry in found}) > 1:
            return _ambiguous(cmd_name, found)
        return _load(found[0]) if found else None

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


def _load(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
        if not isinstance(command, click.Command):
            raise TypeError(f"it is a {type(command).__name__}, expected a click command")
    except PLUGIN_FAILURES as error:
        help_ = f"cannot be imported: {_owner(entry)} raised {type(error).__name__}"
        return _Broken(entry.name, help_, plugin_problem(entry, error), error)
    return command


def _ambiguous(name: str, found: list[EntryPoint]) -> click.Command:
    owners = sorted(f"{_owner(entry)} ({entry.value})" for entry in found)
    help_ = f"brought by {len(found)} packages: {', '.join(sorted(map(_owner, found)))}"
    return _Broken(
        name, help_, f"command {name!r} is brought by {' and by '.join(owners)}; uninstall one of them"
    )


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


class _Broken(click.Command):
    """Stands for a command that cannot be had, so that all others still work."""

    def __init__(self, name: str, short_help: str, problem: str, error: BaseException | None = None) -> None:
        super().__init__(
            name,
            short_help=short_help,
            # Whatever it was called with, its own problem is the answer.
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
            add_help_option=False,
        )
        self._problem, self._error = problem, error

    def invoke(self, ctx: click.Context) -> None:
        """Raises what it is that went wrong."""
        raise click.ClickException(self._problem) from self._error


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
