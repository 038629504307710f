"""`unilab bench`: what a step of a task costs, and where the time goes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unilab_core.benching.intervals import FEWEST
from unilab_core.cli.errors import BadInputError

if TYPE_CHECKING:
    from unilab_core.benching.bench import BenchReport

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab bench cartpole-balance
  unilab bench velocity-flat-quadruped --num-envs 64,512 --warmup 400 --output quadruped.json
  unilab bench cartpole-balance --num-envs 64 --learner none --json
"""


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal() and int(part) > 0]
    if len(numbers) < len(parts):
        raise click.BadParameter(
            f"got {value!r}, expected positive whole numbers with commas between them, for example 64,512",
            ctx,
            param,
        )
    return tuple(dict.fromkeys(numbers))


@click.command("bench", epilog=_EXAMPLES)
@click.argument("task")
@click.option(
    "--num-envs",
    default="64,512,2048",
    show_default=True,
    callback=_numbers,
    metavar="N[,N...]",
    help="Numbers of rows, each measured on its own.",
)
@click.option("--backend", default="mujoco", show_default=True, metavar="NAME", help="Physics backend.")
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE", help="Torch device.")
@click.option(
    "--threads",
    type=click.IntRange(min=0),
    help="Threads of the engine and of Torch, which take turns; 0: all usable cores. Default: the task's, Torch's own.",
)
@click.option(
    "--pairs",
    type=click.IntRange(min=FEWEST),
    default=30,
    show_default=True,
    help="Windows of the environment, each beside the engine alone.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Steps of a window; by default 4,096 environment steps, and at least 5 steps.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Steps before anything is measured; timers longer than that have not run down by then.",
)
@click.option(
    "--action-std",
    type=click.FloatRange(min=0.0),
    default=0.2,
    show_default=True,
    help="Standard deviation of the actions, which are normal around zero and kept within their bounds.",
)
@click.option(
    "--learner",
    metavar="NAME",
    help="Algorithm whose iteration is measured too; by default the task's own where it is installed. none: none.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of all draws.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a field of the environment's config, or as learner.PATH one of the learner's; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the JSON object to a file as well.",
)
def command(
    task: str,
    num_envs: tuple[int, ...],
    backend: str,
    device: str,
    threads: int | None,
    pairs: int,
    steps: int | None,
    warmup: int,
    action_std: float,
    learner: str | None,
    seed: int,
    overrides: tuple[str, ...],
    as_json: bool,
    output: Path | None,
) -> None:
    """Measures steps of TASK, and beside each window of them the engine alone over the same states.

    The engine repeats the controls, resets and pushes that the environment gave it, and must come to the same state to
    the bit. Shown are the ratio with its 95 % interval, the time above the engine, where the time of a step goes, what
    it asks of Torch, what resets of a few rows cost, and what a learner adds. Other work on the CPU is reported.
    """
    _check_output(output)
    from unilab_core.benching.bench import BenchCfg, BenchStoppedError, run_bench
    from unilab_core.benching.pairs import NotTheSameWorkError
    from unilab_core.errors import EnvFaultedError, NonFiniteError

    cfg = BenchCfg(
        task=task,
        num_envs=num_envs,
        backend=backend,
        device=device,
        threads=threads,
        pairs=pairs,
        steps=steps,
        warmup=warmup,
        action_std=action_std,
        learner=learner,
        overrides=overrides,
        seed=seed,
    )
    failures = (NotTheSameWorkError, NonFiniteError, EnvFaultedError)
    failure: BaseException | None = None
    try:
        with _progress() as watch:
            report = run_bench(cfg, watch)
    except BenchStoppedError as stopped:
        report, failure = stopped.report, stopped.__cause__
    except failures as error:
        raise click.ClickException(str(error)) from error
    _show(report, as_json, output)
    if isinstance(failure, failures):
        raise click.ClickException(report.failure) from failure
    if failure is not None:
        raise failure


def _show(report: BenchReport, as_json: bool, output: Path | None) -> None:
    """Prints it first, so that a file that can no longer be written costs nothing."""
    from unilab_core.benching.report import in_text, to_data

    text = json.dumps(to_data(report), indent=2, allow_nan=False)
    click.echo(text if as_json else in_text(report))
    if as_json and report.load.warning:
        click.echo(f"WARNING: {report.load.warning}", err=True)
    if output is not None:
        try:
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"--output {output}: {error.strerror}") from error


def _check_output(output: Path | None) -> None:
    """Refuses a file that cannot be written before minutes are spent on what it shall hold."""
    if output is None:
        return
    folder = output.parent
    if not folder.is_dir():
        raise BadInputError(f"--output {output}: there is no folder {str(folder)!r}; make it first")
    if not os.access(output if output.exists() else folder, os.W_OK):
        raise BadInputError(f"--output {output}: it cannot be written to; name another file")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal's stderr how far it is."""
    from rich.console import Console

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("measuring ...") as status:
        yield lambda text: status.update(f"measuring ... {text}")
