"""`unilab check`: what is wrong with a task, before anybody trains on it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from unilab_managers.cli.shared import backend_option, json_option, overrides_option

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab check cartpole-balance
  unilab check cartpole-balance --only purity --only reset-isolation
  unilab check cartpole-balance --set "rewards.smooth.weight=0" --json
"""


@click.command("check", epilog=_EXAMPLES)
@click.argument("task")
@backend_option
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE", help="Torch device.")
@click.option("--num-envs", type=click.IntRange(min=3), default=11, show_default=True, help="Rows.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**62),
    default=0,
    show_default=True,
    help="The first seed; the ones after it are used too.",
)
@overrides_option
@click.option("--only", multiple=True, metavar="CHECK", help="Run this check; repeatable.")
@click.option("--skip", multiple=True, metavar="CHECK", help="Leave this check out; repeatable.")
@json_option
def command(task: str, as_json: bool, **settings: Any) -> int:  # noqa: ANN401 - of run_checks, as click parsed them
    """Looks for what is wrong with TASK: drives it and short variants of it, and says what to do.

    \b
    rollout           nothing fails, all is finite, episodes last longer than a step
    spaces            observations and actions are as declared
    description       every observation column has a name and a unit
    purity            reading changes nothing; no memory in closures, globals, classes
    reset-isolation   a reset of some rows leaves all others alone
    determinism       one seed, one outcome; no global randomness; states can be loaded
    constant-columns  no observation column without noise stays the same for ever
    dead-rewards      no reward is always 0, or has no weight that ever changes
    silent-events     every event can fire within an episode
    randomization     each randomised model field differs between rows and moves physics
    transfers         a step moves what its ledger says, and no term waits for the device

    Recorders and the NaN guard are left out, so nothing is written. Exits with 0 if nothing is wrong, with 1 if there
    are findings, with 2 for wrong input. Notes are worth knowing and change nothing.
    """
    from unilab_managers.checking.running import run_checks

    report = run_checks(task, each=_progress, **settings)
    _progress("")
    click.echo(json.dumps(report.to_data(), indent=2) if as_json else report.in_text())
    return 0 if report.is_clean else 1


def _progress(name: str) -> None:
    """Shows on a terminal which check runs, in one line that the next one overwrites; an empty name clears it."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{name}{' ...' if name else ''}", nl=False, err=True)
