"""`unilab list`: what this machine can train, and with what."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import Any

import click

from unilab_core.registry import list_tasks

__all__ = ["collect", "command"]


def collect() -> dict[str, Any]:
    """Returns tasks, backends and algorithms as plain data; imports no engine and no torch."""
    backends = sorted(entry.name for entry in entry_points(group="unisim.backends"))
    return {
        "tasks": [
            {
                "name": task.name,
                "summary": task.summary,
                "backends": backends,
                "learners": sorted(task.learners),
            }
            for task in list_tasks()
        ],
        "backends": backends,
        "algorithms": sorted(entry.name for entry in entry_points(group="unilab.algorithms")),
    }


@click.command("list", epilog="Example: unilab list --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Shows tasks, backends and algorithms on this machine."""
    found = collect()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "learners", "backends", "summary")
    for task in found["tasks"]:
        table.add_row(task["name"], ", ".join(task["learners"]), ", ".join(task["backends"]), task["summary"])
    Console().print(table)
    # Not through rich, which would take the brackets of an extra for markup.
    algorithms = ", ".join(found["algorithms"]) or "none; install 'unilab-rl[cli,rsl-rl]>=2.0,<3'"
    click.echo(f"algorithms: {algorithms}")
    if not found["tasks"]:
        click.echo("no tasks are installed; install unilab-tasks, or register your own by entry point")
