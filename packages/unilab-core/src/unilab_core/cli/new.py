"""`unilab new`: a task repository of one's own, which passes its own tests at once."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from unilab_core.cli.errors import BadInputError
from unilab_core.cli.new_names import problem_of, proposal
from unilab_core.cli.new_source import git_sources
from unilab_core.cli.new_tree import repository_files, write_tree

__all__ = ["command"]

_FROM_GIT = ("uv run pytest", "uv run --extra train unilab train {task}")
_FROM_HERE = ("python -m pytest", "pip install --editable '.[train]'", "unilab train {task}")


@click.command("new", epilog="Example: unilab new my_robot")
@click.argument("name")
@click.option(
    "--path",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder to make; by default NAME in the current one.",
)
def command(name: str, folder: Path | None) -> None:
    """Makes a task repository whose package is called NAME: a robot, its tasks, a learner's settings and tests.

    It depends on unilab-managers, and on unilab-rl to train. Nothing that exists is touched.
    """
    if problem := problem_of(name):
        raise BadInputError(f"{name!r} cannot be the name of the package: {problem}; try {proposal(name)!r}")
    folder = folder or Path(name)
    sources = git_sources()
    files = repository_files(name, sources)
    try:
        write_tree(folder, files)
    except OSError as error:
        raise BadInputError(f"{folder} was not made: {error.strerror or error}") from error
    click.echo(
        f"{folder}: {len(files)} files of the task repository {name!r}. README.md says what is where; next:\n"
    )
    task = f"{name.replace('_', '-')}-balance"
    for line in (f"cd {shlex.quote(os.fspath(folder))}", *(_FROM_GIT if sources else _FROM_HERE)):
        click.echo(f"  {line.format(task=task)}")
