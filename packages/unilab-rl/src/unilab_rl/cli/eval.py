"""`unilab eval`: measures the deterministic policy of a run over whole episodes."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unilab_rl.cli.shared import RUNS, SEED, failures_as_messages, find_run

if TYPE_CHECKING:
    from rich.table import Table

    from unilab_rl.runtime.evaluate import Evaluation
    from unilab_rl.runtime.pairing import PairedEvaluation

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab train cartpole-balance --num-envs 64 --iterations 20
  unilab eval latest
  unilab eval latest --episodes 256 --json
  unilab eval latest --backend mujoco_warp --episodes 16
"""


@click.command("eval", epilog=_EXAMPLES)
@click.argument("run", default="latest")
@click.option(
    "--episodes", type=click.IntRange(min=1), default=64, show_default=True, help="Whole episodes to run."
)
@click.option("--seed", type=SEED, help="Seed of the episodes; by default not one used in training.")
@click.option(
    "--backend",
    metavar="NAME",
    help="Physics backend; by default the run's. Another one is sim-to-sim: the run's is shown beside it.",
)
@click.option("--device", metavar="DEVICE", help="Torch device; by default the run's.")
@click.option("--as-trained", is_flag=True, help="Measure on the config of the training in any case.")
@click.option(
    "--baseline/--no-baseline",
    default=None,
    help="Also measure a policy that does nothing; by default where the task has an evaluation config.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs.")
def command(
    run: str,
    episodes: int,
    seed: int | None,
    backend: str | None,
    device: str | None,
    as_trained: bool,
    baseline: bool | None,
    as_json: bool,
    runs: Path,
) -> None:
    """Measures a run's policy over whole episodes.

    RUN is a run's folder, one of its checkpoints, or 'latest' (the default). The policy acts without exploration
    noise, on the task's evaluation config where it has one, else in the environment as it was trained, whatever
    randomisation that has.

    Every environment runs for one time limit. Return and length are those of its first episode, so short episodes
    count no more than long ones. An environment that falls begins again: every fall counts, and metrics are means over
    all episodes that ended in time. Above 1024 episodes the number is rounded up to what divides evenly, and as many
    time limits follow each other.
    """
    from unilab_rl.checkpoint import load_checkpoint, load_latest_checkpoint
    from unilab_rl.runtime.evaluator import Evaluator

    with failures_as_messages():
        folder, path = find_run(run, runs)
        config = folder.config()
        if path is None:
            path, checkpoint = load_latest_checkpoint(folder.checkpoints)
        else:
            checkpoint = load_checkpoint(path)
        backend, device = backend or config.backend, device or config.device
        evaluator = Evaluator(
            config, episodes=episodes, seed=seed, as_trained=as_trained, backend=backend, device=device
        )
        with_zero = bool(evaluator.function) if baseline is None else baseline
        paired = None
        if backend == config.backend:
            policy = evaluator.measure(checkpoint, path)
        else:
            paired = evaluator.measure_beside_own_backend(checkpoint, path)
            policy = paired.other
        zero = evaluator.measure_zero(checkpoint, path) if with_zero else None
    facts = {
        "task": config.task,
        "checkpoint": str(path),
        "iteration": checkpoint.iteration,
        "env_steps": checkpoint.env_steps,
        "backend": backend,
        "device": device,
        "seed": evaluator.seed,
        "evaluation": evaluator.function or None,
    }
    if as_json:
        data = facts | _to_data(policy, zero, paired, config.backend)
        click.echo(json.dumps(data, indent=2, allow_nan=False))
        return
    from rich.console import Console

    on = f"evaluation config {evaluator.function}" if evaluator.function else "config as trained"
    click.echo(f"{config.task}, {path}: backend {backend}, device {device}, seed {evaluator.seed}, {on}")
    if paired is None:
        columns = {"policy": policy}
    else:
        columns = {f"on {backend}": policy, f"on {config.backend}": paired.reference}
    if zero is not None:
        columns["zero policy"] = zero
    Console(markup=False, highlight=False, emoji=False).print(_table(columns))
    if paired is not None:
        click.echo(_verdict(paired, backend, config.backend))


def _to_data(
    policy: Evaluation, zero: Evaluation | None, paired: PairedEvaluation | None, own_backend: str
) -> dict[str, Any]:
    """Returns what was measured for JSON; what the run's own backend gave only where that is another one."""
    data: dict[str, Any] = {"policy": _finite(asdict(policy))}
    if zero is not None:
        data["zero_policy"] = _finite(asdict(zero))
    if paired is not None:
        pairs = asdict(paired)
        del pairs["other"]
        data["reference"] = {"backend": own_backend, "policy": _finite(pairs.pop("reference"))}
        data["paired"] = pairs
    return data


def _verdict(paired: PairedEvaluation, backend: str, own_backend: str) -> str:
    """Returns the ratio of the returns, and how alike the episodes began."""
    what = f"return on {backend} / on {own_backend}"
    if paired.return_ratio is None:
        ratio = f"{what}: no ratio, the latter is 0"
    else:
        ratio = f"{what}: {paired.return_ratio:.4f}{_interval(paired.return_ratio_ci95)}"
    return (
        f"{ratio}; difference {paired.return_difference:.3g}{_interval(paired.return_difference_ci95)}\n"
        f"{paired.other.episodes} pairs of episodes that begin alike; "
        f"their first observations differ by at most {paired.first_observation_difference:.2g}"
    )


def _interval(half_width: float | None) -> str:
    return "" if half_width is None else f" ± {half_width:.2g}"


def _table(results: dict[str, Evaluation]) -> Table:
    """Returns one line a measure and one column a policy, by what it is called."""
    from rich.table import Table

    table = Table("measure")
    for name in results:
        table.add_column(name, justify="right")
    columns = [_lines(result) for result in results.values()]
    for measure in dict.fromkeys(measure for column in columns for measure in column):
        table.add_row(measure, *(column.get(measure, "-") for column in columns))
    return table


def _lines(result: Evaluation) -> dict[str, str]:
    """Returns the measures of one policy by what they are called."""
    interval = "" if result.return_ci95 is None else f" ± {result.return_ci95:.3g}"
    return {
        "episodes": f"{result.episodes}",
        "return (95 % interval)": f"{result.return_mean:.4g}{interval}",
        "length, steps": f"{result.length_mean:.4g}",
        "reward per step": f"{result.reward_per_step:.4g}",
        "reward per second": f"{result.reward_per_s:.4g}",
        "terminated": f"{result.terminated_share:.0%}",
        "timed out": f"{result.truncated_share:.0%}",
        "falls, restarts counted": f"{result.falls}",
        **{key: f"{value:.4g}" for key, value in result.metrics.items()},
    }


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the measures for JSON, which has no NaN: a metric that isn't finite is null."""
    metrics = {key: value if math.isfinite(value) else None for key, value in data["metrics"].items()}
    return data | {"metrics": metrics}
