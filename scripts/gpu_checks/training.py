"""PPO from end to end, through the same function as `unilab train`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_checks.reporting import Report
from gpu_checks.tasks import CARTPOLE, HOST, QUADRUPED, RESIDENT
from unilab_rl import (
    BudgetCfg,
    Evaluator,
    Outcome,
    RunConfig,
    RunFolder,
    TrainRequest,
    load_checkpoint,
    resume,
    train,
)

__all__ = ["train_balance", "train_bridge", "train_walk"]

_BAR = 950.0
"""1000 x mean reward per step that the preset of cart-pole reaches."""
_UNMEASURED = ("learner.eval_interval=0",)


def _train(
    report: Report, task: str, backend: str, *, rows: int, iterations: int, overrides: Sequence[str] = ()
) -> tuple[Outcome, Path, list[dict[str, Any]]]:
    """Trains in the check's folder, in a dry run with few rows and steps.

    Returns:
        The outcome, the run's folder, and its metrics.
    """
    request = TrainRequest(
        task=task,
        backend=backend,
        device=report.device,
        runs=report.folder / task / backend,
        num_envs=report.pick(rows, 4),
        budget=BudgetCfg(iterations=iterations),
        overrides=(*overrides, *report.pick((), ("learner.num_steps_per_env=4",))),
    )
    outcome = train(request)
    run = outcome.checkpoint.parent.parent
    return outcome, run, _rows(run)


def _rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _describe(report: Report, name: str, rows: list[dict[str, Any]]) -> None:
    """Records speed and what the learner says; every number must be finite."""
    report.expect(
        all(math.isfinite(value) for row in rows for value in row["metrics"].values()), f"{name}: not finite"
    )
    last = rows[-1]
    report.figure(f"{name}_env_steps", last["env_steps"])
    report.figure(f"{name}_s", round(last["elapsed_s"], 2))
    report.figure(f"{name}_env_steps_per_s", round(last["env_steps"] / last["elapsed_s"]))
    for key in ("collect_s", "learn_s"):
        if key in last:
            report.figure(f"{name}_{key}_of_the_last_iteration", round(last[key], 3))
    report.figure(f"{name}_last_metrics", {k: round(v, 4) for k, v in last["metrics"].items()})


def train_bridge(report: Report) -> None:
    """Ten iterations of PPO on the device over physics on the host."""
    iterations = report.pick(10, 2)
    outcome, _, rows = _train(
        report, QUADRUPED, HOST, rows=1024, iterations=iterations, overrides=_UNMEASURED
    )
    report.expect(outcome.status == "finished", f"it {outcome.status}")
    report.expect(len(rows) == iterations, f"{len(rows)} iterations were logged, expected {iterations}")
    _describe(report, "bridge", rows)


def train_balance(report: Report) -> None:
    """The preset of cart-pole on the device reaches its bar, and a run goes on from its checkpoint."""
    iterations = report.pick(60, 2)
    outcome, run, rows = _train(report, CARTPOLE, RESIDENT, rows=128, iterations=iterations)
    _describe(report, "balance", rows)
    config = RunConfig.read(run / "config.yaml")
    evaluator = Evaluator(config, episodes=report.pick(64, 2))
    if not report.dry:  # whole episodes, which take as long as they take
        score = 1000.0 * evaluator.measure(load_checkpoint(outcome.checkpoint)).reward_per_step
        report.figure("score", round(score, 1))
        report.expect(score > _BAR, f"the score is {score:.1f}, expected more than {_BAR:g}")
    more = resume(RunFolder(run), budget=BudgetCfg(iterations=iterations + 1))
    report.expect(more.iteration == iterations + 1, f"the resumed run ended at iteration {more.iteration}")


def train_walk(report: Report) -> None:
    """Some of the quadruped's training with many rows: the return rises."""
    _, _, rows = _train(
        report, QUADRUPED, RESIDENT, rows=4096, iterations=report.pick(40, 2), overrides=_UNMEASURED
    )
    _describe(report, "walk", rows)
    key = "Episode/return"
    returns = [row["metrics"][key] for row in rows if key in row["metrics"]]
    report.figure("returns", [round(value, 2) for value in returns])
    begin, end = (sum(part) / max(1, len(part)) for part in (returns[:5], returns[-5:]))
    report.expect_on_gpu(
        len(returns) > 5 and end > begin, f"the return does not rise: from {begin:.2f} to {end:.2f}"
    )
