"""Trains shipped tasks with their presets, evaluates every checkpoint, and says whether each seed clears its bar.

Run through `nox -s learning`. The evidence goes to `docs/results/<task>.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


@dataclass(frozen=True)
class ScoreBar:
    """What every seed must reach: 1000 x mean reward per step of 64 deterministic episodes, and by when."""

    task: str
    score: float
    env_steps: int

    def curve(self, run: Path) -> list[dict[str, float]]:
        """Returns score and env steps at every checkpoint of a run."""
        steps = {row["iteration"]: row["env_steps"] for row in metrics_of(run)}
        points = []
        for checkpoint in checkpoints_of(run):
            result = json.loads(unilab(run.parent, "eval", str(checkpoint), "--episodes", "64", "--json"))
            score = 1000.0 * result["policy"]["reward_per_step"]
            points.append({"env_steps": steps[result["iteration"]], "score": round(score, 1)})
        return points

    def passed(self, curve: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
        """Returns the first point over the bar within its steps, or None."""
        for point in curve:
            if point["env_steps"] <= self.env_steps and point["score"] > self.score:
                return dict(point)
        return None


@dataclass(frozen=True)
class WalkBar:
    """What every seed must reach in the evaluations of its training: few falls and small errors, twice.

    64 episodes of 10 s on the task's command grid, errors (m/s, rad/s) after the first second. An evaluation within
    `first_steps` must have at most `falls`, and both errors below `error`; within `steady_steps`, two evaluations
    running must have no falls, and a forward error below `steady_error`.
    """

    task: str
    falls: int
    error: float
    first_steps: int
    steady_error: float
    steady_steps: int

    def curve(self, run: Path) -> list[dict[str, float]]:
        """Returns what the evaluations of a run's training found."""
        prefix = "Eval/Metrics/twist/error_"
        return [
            {
                "env_steps": row["env_steps"],
                "elapsed_s": round(row["elapsed_s"], 1),
                "falls": int(found["Eval/falls"]),
                "return": round(found["Eval/return"], 2),
                "error_lin_vel_x": round(found[f"{prefix}lin_vel_x"], 4),
                "error_lin_vel_y": round(found[f"{prefix}lin_vel_y"], 4),
                "error_ang_vel_z": round(found[f"{prefix}ang_vel_z"], 4),
            }
            for row in metrics_of(run)
            if "Eval/falls" in (found := row["metrics"])
        ]

    def passed(self, curve: Sequence[Mapping[str, float]]) -> dict[str, Any] | None:
        """Returns the first point that walks and the second of two that walk steadily, or None."""
        walks = [p for p in curve if p["env_steps"] <= self.first_steps and self._walks(p)]
        steady = [
            after
            for before, after in pairwise(curve)
            if after["env_steps"] <= self.steady_steps and self._is_steady(before) and self._is_steady(after)
        ]
        return {"walks": dict(walks[0]), "steady": dict(steady[0])} if walks and steady else None

    def _walks(self, point: Mapping[str, float]) -> bool:
        errors = (point["error_lin_vel_x"], point["error_ang_vel_z"])
        return point["falls"] <= self.falls and max(errors) < self.error

    def _is_steady(self, point: Mapping[str, float]) -> bool:
        return point["falls"] == 0 and point["error_lin_vel_x"] < self.steady_error


Bar = ScoreBar | WalkBar
BARS: tuple[Bar, ...] = (
    ScoreBar("cartpole-balance", score=950.0, env_steps=250_000),
    ScoreBar("cartpole-swingup", score=800.0, env_steps=500_000),
    WalkBar(
        "velocity-flat-quadruped",
        falls=2,
        error=0.2,
        first_steps=1_200_000,
        steady_error=0.12,
        steady_steps=3_000_000,
    ),
)


SEEDS = [0, 1, 2]


def unilab(folder: Path, *args: str) -> str:
    """Runs the command in `folder` and returns what it prints."""
    program = "import sys; from unilab_core.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *args], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"unilab {' '.join(args)} failed with {done.returncode}:\n{done.stderr}")
    return done.stdout


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics, one per iteration."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def checkpoints_of(run: Path) -> list[Path]:
    """Returns a run's checkpoints, oldest first."""
    return sorted(run.glob("checkpoints/model_*.pt"), key=lambda path: int(path.stem.split("_")[1]))


def measure(bar: Bar, seed: int, folder: Path) -> dict[str, Any]:
    """Trains one seed with the task's preset and returns its curve, and where it passed."""
    started = time.perf_counter()
    keep_all = ("--set", "learner.keep_checkpoints=0")  # each is a point of the curve
    unilab(folder, "train", bar.task, "--seed", str(seed), *keep_all)
    train_s = time.perf_counter() - started
    run = max((folder / "runs" / bar.task).iterdir(), key=lambda path: path.stat().st_mtime)
    curve = bar.curve(run)
    manifest = json.loads((run / "manifest.json").read_text())
    trained_with = {name: manifest[name] for name in ("algorithm", "backend", "device")}
    return {
        "seed": seed,
        "trained_with": trained_with,
        "train_s": round(train_s, 1),
        "passed": bar.passed(curve),
        "curve": curve,
    }


def show(bar: WalkBar, folder: Path) -> dict[str, Any]:
    """Films the last run, and returns its evaluation with that of a policy that does nothing beside it."""
    video = RESULTS / f"{bar.task}.mp4"
    small = ("--camera", "width=480", "--camera", "height=320")
    unilab(folder, "play", "latest", "--video", str(video), "--force", "--row", "4", *small)
    result = json.loads(unilab(folder, "eval", "latest", "--json"))
    return {name: result[name] for name in ("iteration", "policy", "zero_policy")}


def main() -> int:
    """Measures the tasks named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="tasks to measure; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    chosen = parser.parse_args()
    unknown = set(chosen.tasks) - {bar.task for bar in BARS}
    if unknown:
        parser.error(f"no bar for {sorted(unknown)}; known are {[bar.task for bar in BARS]}")
    failed = 0
    for bar in [bar for bar in BARS if not chosen.tasks or bar.task in chosen.tasks]:
        evidence: dict[str, Any] = {"bar": asdict(bar), "seeds": []}
        is_whole = chosen.seeds == SEEDS  # a part is no evidence, and must not replace it
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for seed in chosen.seeds:
                row = measure(bar, seed, folder)
                evidence["seeds"].append(row)
                failed += row["passed"] is None
                print(
                    f"{bar.task} seed {seed}: {row['passed'] or 'FAILED'}, trained in {row['train_s']} s",
                    flush=True,
                )
            if is_whole:
                RESULTS.mkdir(parents=True, exist_ok=True)
                if isinstance(bar, WalkBar):
                    evidence["last_seed"] = show(bar, folder)
                (RESULTS / f"{bar.task}.json").write_text(json.dumps(evidence, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
