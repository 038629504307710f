"""`unilab diff`: what differs between two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unilab_rl.cli.shared import RUNS, failures_as_messages, find_run

if TYPE_CHECKING:
    from rich.table import Table

    from unilab_rl.cli.run_comparison import Change, Comparison, Point, RunFacts

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab train cartpole-balance --num-envs 64 --iterations 20 --runs before
  unilab train cartpole-balance --num-envs 64 --iterations 20 --set learner.learning_rate=5e-4
  unilab diff before/cartpole-balance/* latest
"""
_WIDEST = 60  # characters of a value in the table; --json has all of it


@click.command("diff", epilog=_EXAMPLES)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs, for 'latest'.")
def command(first: str, second: str, as_json: bool, runs: Path) -> None:
    """Shows what differs between two runs: config, versions, threads, and their curves.

    RUN is a run's folder, one of its checkpoints (which stands for its run), or 'latest'. Curves are the return of the
    training's episodes and, where there were evaluations, of these: the last value and the best one, with the
    environment steps until then. Differences are no failure: the exit code is 0.
    """
    from unilab_rl.cli.run_comparison import compare_runs

    with failures_as_messages():
        found = compare_runs(*(find_run(run, runs)[0] for run in (first, second)))
    if as_json:
        click.echo(json.dumps(found.to_data(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    for name, run in (("first", found.first), ("second", found.second)):
        click.echo(f"{name + ':':7} {_title(run)}")
    parts = {"config": found.config, "versions": found.versions, "threads": found.threads}
    equal = [name for name, changes in parts.items() if not changes]
    if equal:
        click.echo(f"equal:  {', '.join(equal)}")
    table = _table(found)
    if table.row_count:
        Console(markup=False, highlight=False, emoji=False).print(table)


def _title(run: RunFacts) -> str:
    config = run.config
    resumed = f", resumed {run.num_resumes} times" if run.num_resumes else ""
    return (
        f"{run.folder.path}: {config.task} with {config.algorithm}, backend {config.backend}, device {config.device}, "
        f"{config.num_envs} environments, seed {config.seed}, {run.iterations:,} iterations, "
        f"{run.env_steps:,} env steps{resumed}"
    )


def _table(found: Comparison) -> Table:
    from rich.table import Table

    table = Table("", "first", "second")
    table.columns[0].overflow = table.columns[1].overflow = table.columns[2].overflow = "fold"
    for heading, changes in (
        ("", found.config),
        ("version of ", found.versions),
        ("threads: ", found.threads),
    ):
        for change in changes:
            table.add_row(f"{heading}{change.name}", *_cells(change, grouped=bool(heading)))
        table.add_section()
    for row in _curve_rows(found):
        table.add_row(*row)
    return table


def _cells(change: Change, *, grouped: bool) -> Iterator[str]:
    """Returns both values as text; grouped ones are tuples, one value for each process that had another."""
    from unilab_rl.run_config import MISSING

    for value in (change.first, change.second):
        if value is MISSING:
            text = "-"
        elif grouped and isinstance(value, tuple):
            text = ", then ".join("none" if entry is None else str(entry) for entry in value)
        else:
            text = str(value)
        yield text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _curve_rows(found: Comparison) -> Iterator[tuple[str, str, str]]:
    from unilab_rl.cli.run_comparison import CURVES

    for key in CURVES:
        curves = [run.curves.get(key) for run in (found.first, found.second)]
        if any(curves):
            for index, end in enumerate(("final", "best")):
                first, second = ("-" if curve is None else _point(curve[index]) for curve in curves)
                yield f"{key}, {end}", first, second


def _point(point: Point) -> str:
    return f"{point.value:.4g} at {point.env_steps:,} steps"
