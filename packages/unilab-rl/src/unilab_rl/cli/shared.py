"""What the commands share: options, finding a run, and failures as one message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unilab_core.cli.errors import BadInputError

if TYPE_CHECKING:
    from unilab_rl.run_folder import RunFolder

__all__ = ["RUNS", "SEED", "failures_as_messages", "find_run"]

SEED = click.IntRange(0, 2**63 - 1)  # as RunConfig.seed; written out, for importing that takes a while


class _Runs(click.Path):
    """The folder of all runs; an empty text, which a path would take for the current folder, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if value == "":
            self.fail("is empty, expected a folder; leave the option out for 'runs'", param, ctx)
        return super().convert(value, param, ctx)


RUNS = _Runs(path_type=Path)


def find_run(run: str, runs: Path) -> tuple[RunFolder, Path | None]:
    """Returns a run and the checkpoint where one was named; says so where `latest` is not the newest.

    Raises:
        RunFolderError: There is no such run.
    """
    from unilab_rl.run_folder import LATEST, find_runs, resolve_run

    folder, checkpoint = resolve_run(run, runs)
    if run == LATEST and folder != (newest := find_runs(runs)[-1]):
        click.echo(f"the newest run {newest.path} has no checkpoint; taking {folder.path}", err=True)
    return folder, checkpoint


@contextmanager
def failures_as_messages() -> Iterator[None]:
    """Turns a failure that is expected into one message on stderr: exit code 2 for bad input, else 1."""
    from unilab_core import CapabilityError, ConfigError, EnvFaultedError, NonFiniteError
    from unilab_rl.checkpoint import CheckpointError
    from unilab_rl.run_folder import RunFolderError

    try:
        yield
    except (CheckpointError, RunFolderError, ConfigError, CapabilityError) as error:
        raise BadInputError(_text(error)) from error
    except (NonFiniteError, EnvFaultedError, OSError) as error:
        raise click.ClickException(_text(error)) from error


def _text(error: Exception) -> str:
    """Returns the message and the notes that say more than it, each on a line."""
    message, notes = str(error), getattr(error, "__notes__", ())
    return "\n".join([message, *(note for note in notes if note not in message)])
