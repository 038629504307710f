"""`unilab train`: trains a task, or continues a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unilab_core.cli.errors import BadInputError
from unilab_rl.cli.shared import RUNS, SEED, failures_as_messages, find_run

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.runner import Outcome, Watcher

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab train cartpole-balance --num-envs 64 --iterations 20
  unilab train cartpole-balance --set learner.learning_rate=5e-4 --seed 1
  unilab train --resume latest --iterations 600
"""


@click.command("train", epilog=_EXAMPLES)
@click.argument("task", required=False)
@click.option("--algo", metavar="NAME", help="Algorithm; by default the task's own.")
@click.option("--backend", metavar="NAME", help="Physics backend; by default mujoco.")
@click.option("--device", metavar="DEVICE", help="Torch device; by default cpu.")
@click.option("--num-envs", type=click.IntRange(min=1), help="Environments; by default the task's number.")
@click.option("--seed", type=SEED, help="Seed of environments and learner; by default 0.")
@click.option("--iterations", type=click.IntRange(min=1), help="Budget: iterations in all.")
@click.option("--steps", type=click.IntRange(min=1), help="Budget: environment steps in all.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Budget: minutes of training from now."
)
@click.option(
    "--eval-interval",
    type=click.IntRange(min=0),
    help="Measure the policy every so many iterations, as `unilab eval` does; 0: never. By default the task's choice.",
)
@click.option("--plain", is_flag=True, help="Print lines on a terminal too, instead of a live panel.")
@click.option("--resume", "run", metavar="RUN", help="Continue a run: its folder, a checkpoint, or 'latest'.")
@click.option(
    *("--set", "overrides"),
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a field of the environment's config, or as learner.PATH one of the learner's.",
)
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs.")
@click.pass_context
def command(
    context: click.Context,
    task: str | None,
    algo: str | None,
    backend: str | None,
    device: str | None,
    num_envs: int | None,
    seed: int | None,
    iterations: int | None,
    steps: int | None,
    minutes: float | None,
    eval_interval: int | None,
    plain: bool,
    run: str | None,
    overrides: tuple[str, ...],
    runs: Path,
) -> None:
    """Trains a task, or continues a run with --resume.

    Ctrl-C once finishes the iteration, saves and says how to go on; twice stops at once, still resumable.
    """
    budget = _budget(iterations, steps, minutes)
    chosen: dict[str, str | int | None] = {
        "task": task,
        "algorithm": algo,
        "backend": backend,
        "device": device,
        "num_envs": num_envs,
        "seed": seed,
    }
    try:
        with failures_as_messages():
            if run is not None:
                outcome = _resume(
                    run, runs, budget, chosen | {"eval_interval": eval_interval}, overrides, plain
                )
            else:
                if eval_interval is not None:
                    overrides = (*overrides, f"learner.eval_interval={eval_interval}")
                outcome = _train(chosen, budget, overrides, runs, plain)
    except KeyboardInterrupt as error:
        raise click.ClickException("interrupted before training began; nothing was saved") from error
    _report(outcome)
    if outcome.status == "interrupted":
        context.exit(130)


def _budget(iterations: int | None, steps: int | None, minutes: float | None) -> BudgetCfg | None:
    from unilab_rl.run_config import BudgetCfg

    given = {"iterations": iterations, "steps": steps, "minutes": minutes}
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise BadInputError(
            f"{' and '.join(named)} contradict each other: a run has one budget, give one of them"
        )
    return BudgetCfg(iterations=iterations, steps=steps, minutes=minutes) if named else None


def _watcher(plain: bool) -> Watcher:
    """Returns a panel where a person watches a terminal that can redraw, else lines."""
    from rich.console import Console

    from unilab_rl.cli.panel import PanelProgress
    from unilab_rl.cli.progress import PlainProgress

    if plain or not sys.stdout.isatty():
        return PlainProgress()
    console = Console()
    return PlainProgress() if console.is_dumb_terminal else PanelProgress(console)


def _train(
    chosen: dict[str, str | int | None],
    budget: BudgetCfg | None,
    overrides: tuple[str, ...],
    runs: Path,
    plain: bool,
) -> Outcome:
    from unilab_rl.run_folder import command_line
    from unilab_rl.runtime.session import TrainRequest, train

    if chosen["task"] is None:
        raise BadInputError(f"train needs a TASK ({command_line('list')} shows them), or --resume RUN")
    given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    return train(TrainRequest(**given, budget=budget, overrides=overrides, runs=runs), _watcher(plain))


def _resume(
    run: str,
    runs: Path,
    budget: BudgetCfg | None,
    chosen: dict[str, str | int | None],
    overrides: tuple[str, ...],
    plain: bool,
) -> Outcome:
    from unilab_rl.runtime.session import resume

    folder, checkpoint = find_run(run, runs)
    _check_agrees(folder, folder.config(), chosen, overrides)
    return resume(folder, checkpoint, budget=budget, watcher=_watcher(plain))


def _check_agrees(
    folder: RunFolder, config: RunConfig, chosen: dict[str, str | int | None], overrides: tuple[str, ...]
) -> None:
    """Refuses options that would make the run another one: only its budget may change."""
    if overrides:
        raise BadInputError(
            f"--set {overrides[0]} contradicts --resume: a run continues with its own {folder.config_path}; start a "
            "new run to change it"
        )
    for name, given in chosen.items():
        own = getattr(config.learner if name == "eval_interval" else config, name)
        same = given is None or (given.lower() == own.lower() if isinstance(given, str) else given == own)
        if not same:
            option = {"task": "TASK", "algorithm": "--algo"}.get(name, f"--{name.replace('_', '-')}")
            raise BadInputError(
                f"{option} {given} contradicts --resume: the run {folder.path} has {own}; leave the option out, or "
                "start a new run"
            )


def _report(outcome: Outcome) -> None:
    from unilab_rl.checkpoint import list_checkpoints
    from unilab_rl.run_folder import command_line

    checkpoint = outcome.checkpoint
    # What the run's name stands for, if that is this checkpoint.
    run = checkpoint.parent.parent if checkpoint in list_checkpoints(checkpoint.parent)[-1:] else checkpoint
    click.echo(f"{outcome.status} after {outcome.iteration} iterations, {outcome.env_steps:,} env steps")
    click.echo(f"checkpoint: {checkpoint}")
    if outcome.status == "interrupted":
        click.echo(f"resume it:  {command_line('train', '--resume', run)}")
    else:
        more = ("--iterations", 2 * outcome.iteration)
        click.echo(f"measure it: {command_line('eval', run)}")
        click.echo(f"go on:      {command_line('train', '--resume', run, *more)}")
