"""`unilab check`: what is wrong with a task, before anybody trains on it."""

from __future__ import annotations

import json
import sys

import click

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab check cartpole-balance
  unilab check cartpole-balance --only purity --only reset-isolation
  unilab check cartpole-balance --set "rewards.smooth.weight=0" --json
"""


@click.command("check", epilog=_EXAMPLES)
@click.argument("task")
@click.option("--backend", default="mujoco", show_default=True, metavar="NAME", help="Physics backend.")
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE", help="Torch device.")
@click.option("--num-envs", type=click.IntRange(min=3), default=11, show_default=True, help="Rows.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**62),
    default=0,
    show_default=True,
    help="The first seed; the ones after it are used too.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the environment's config; repeatable.",
)
@click.option("--only", multiple=True, metavar="CHECK", help="Run this check; repeatable.")
@click.option("--skip", multiple=True, metavar="CHECK", help="Leave this check out; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    task: str,
    backend: str,
    device: str,
    num_envs: int,
    seed: int,
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    as_json: bool,
) -> int:
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

    report = run_checks(
        task,
        overrides=overrides,
        backend=backend,
        device=device,
        num_envs=num_envs,
        seed=seed,
        only=only,
        skip=skip,
        each=_progress,
    )
    _progress("")
    click.echo(json.dumps(report.to_data(), indent=2) if as_json else report.in_text())
    return 0 if report.is_clean else 1


def _progress(name: str) -> None:
    """Shows on a terminal which check runs, in one line that the next one overwrites; an empty name clears it."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{name}{' ...' if name else ''}", nl=False, err=True)
