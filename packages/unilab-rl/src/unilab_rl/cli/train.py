"""`unilab train`: trains a task, or continues a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unilab_core.cli.errors import BadInputError

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.runner import Outcome

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
@click.option("--seed", type=click.IntRange(min=0), help="Seed of environments and learner; by default 0.")
@click.option("--iterations", type=click.IntRange(min=1), help="Budget: iterations in all.")
@click.option("--steps", type=click.IntRange(min=1), help="Budget: environment steps in all.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Budget: minutes of training from now."
)
@click.option("--resume", "run", metavar="RUN", help="Continue a run: its folder, a checkpoint, or 'latest'.")
@click.option(
    *("--set", "overrides"),
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a field of the environment's config, or as learner.PATH one of the learner's.",
)
@click.option(
    "--runs", "runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of all runs."
)
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
    run: str | None,
    overrides: tuple[str, ...],
    runs: Path,
) -> None:
    """Trains a task, or continues a run with --resume.

    Ctrl-C once finishes the iteration, saves and says how to go on; twice stops at once, still resumable.
    """
    from unilab_rl.checkpoint import CheckpointError
    from unilab_rl.run_folder import RunFolderError

    budget = _budget(iterations, steps, minutes)
    chosen = {
        "task": task,
        "algorithm": algo,
        "backend": backend,
        "device": device,
        "num_envs": num_envs,
        "seed": seed,
    }
    try:
        if run is not None:
            outcome = _resume(run, runs, budget, chosen, overrides)
        elif task is None:
            raise BadInputError("train needs a TASK (unilab list shows them), or --resume RUN")
        else:
            outcome = _train(chosen, budget, overrides, runs)
    except (CheckpointError, RunFolderError) as error:
        raise BadInputError(str(error)) from error
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


def _train(
    chosen: dict[str, str | int | None], budget: BudgetCfg | None, overrides: tuple[str, ...], runs: Path
) -> Outcome:
    from unilab_rl.cli.progress import PlainProgress
    from unilab_rl.runtime.session import TrainRequest, train

    given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    return train(TrainRequest(**given, budget=budget, overrides=overrides, runs=runs), PlainProgress())


def _resume(
    run: str,
    runs: Path,
    budget: BudgetCfg | None,
    chosen: dict[str, str | int | None],
    overrides: tuple[str, ...],
) -> Outcome:
    from unilab_rl.cli.progress import PlainProgress
    from unilab_rl.run_folder import resolve_run
    from unilab_rl.runtime.session import resume

    folder, checkpoint = resolve_run(run, runs)
    _check_agrees(folder, folder.config(), chosen, overrides)
    return resume(folder, checkpoint, budget=budget, watcher=PlainProgress())


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
        own = getattr(config, name)
        same = given is None or (given.lower() == own.lower() if isinstance(given, str) else given == own)
        if not same:
            option = {"task": "TASK", "algorithm": "--algo"}.get(name, f"--{name.replace('_', '-')}")
            raise BadInputError(
                f"{option} {given} contradicts --resume: the run {folder.path} has {own}; leave the option out, or "
                "start a new run"
            )


def _report(outcome: Outcome) -> None:
    run = outcome.checkpoint.parent.parent
    click.echo(f"{outcome.status} after {outcome.iteration} iterations, {outcome.env_steps:,} env steps")
    click.echo(f"checkpoint: {outcome.checkpoint}")
    if outcome.status == "interrupted":
        click.echo(f"resume it:  unilab train --resume {run}")
    else:
        click.echo(f"measure it: unilab eval {run}")
        click.echo(f"go on:      unilab train --resume {run} --iterations {2 * outcome.iteration}")
