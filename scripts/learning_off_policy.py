"""Trains `cartpole-swingup` with every off-policy learner's preset, and says when each seed first solves it.

Run through `nox -s learning_off_policy`. The curves go to `docs/results/off-policy.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning import RESULTS, SEEDS, ScoreBar, metrics_of, unilab

BAR = ScoreBar("cartpole-swingup", score=780.0, env_steps=200_000)
"""What every learner and seed must exceed, and by when: for all of them what was written down before the first run."""
STEPS = {"sac": 120_000, "td3": 200_000, "fast_sac": 80_000, "fast_td3": 80_000, "flash_sac": 120_000}
"""How long each is trained: most solve it long before the bar's steps are used up."""
SETTINGS = ("learner.eval_interval=10", "learner.eval_episodes=16", "sim.num_threads=1")


@dataclass(frozen=True)
class Training:
    """One run to be made."""

    algorithm: str
    seed: int
    collectors: int = 0
    """How many processes collect for the learner; 0 if it does so itself."""

    def train(self, folder: Path) -> Path:
        """Trains in a folder below `folder` and returns the run."""
        runs = folder / f"{self.algorithm}-{self.seed}-{self.collectors}"
        runs.mkdir()
        settings = (*SETTINGS, f"learner.collectors={self.collectors}")
        sets = [part for setting in settings for part in ("--set", setting)]
        chosen = ("--algo", self.algorithm, "--seed", str(self.seed), "--steps", str(STEPS[self.algorithm]))
        unilab(runs, "train", BAR.task, *chosen, *sets, "--runs", str(runs))
        (run,) = (path for path in (runs / BAR.task).iterdir() if path.is_dir() and not path.is_symlink())
        return run


def trainings(algorithms: Sequence[str], seeds: Sequence[int]) -> list[Training]:
    """Returns every run that is to be made: each learner and seed, and SAC's first seed once more, collected apart."""
    found = [Training(algorithm, seed) for algorithm in algorithms for seed in seeds]
    return found + ([Training("sac", seeds[0], collectors=1)] if "sac" in algorithms else [])


def curve_of(run: Path) -> list[dict[str, float]]:
    """Returns env steps, seconds of training and score of every evaluation that a run's training made."""
    return [
        {
            "env_steps": row["env_steps"],
            "elapsed_s": round(row["elapsed_s"], 1),
            "score": round(1000.0 * row["metrics"]["Eval/reward_per_step"], 1),
        }
        for row in metrics_of(run)
        if "Eval/reward_per_step" in row["metrics"]
    ]


def collectors_of(run: Path) -> int:
    """Returns how many processes collected for a run, 0 if its learner did."""
    from unilab_rl import OffPolicyCfg
    from unilab_rl.run_folder import RunFolder

    cfg = RunFolder(run).config().learner
    assert isinstance(cfg, OffPolicyCfg)
    return cfg.collectors


def evidence_of(run: Path) -> dict[str, Any]:
    """Returns a run's curve, and the first point of it that clears the bar, or None."""
    manifest = json.loads((run / "manifest.json").read_text())
    curve = curve_of(run)
    return {
        "algorithm": manifest["algorithm"],
        "seed": manifest["seed"],
        "collectors": collectors_of(run),
        "passed": BAR.passed(curve),
        "curve": curve,
    }


def report(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what is kept of all runs."""
    solved = {"score": BAR.score, "env_steps": BAR.env_steps}
    return {"task": BAR.task, "solved": solved, "settings": SETTINGS, "runs": list(runs)}


def measure(training: Training, folder: Path) -> dict[str, Any]:
    """Makes one run, says how it ended, and returns its evidence."""
    found = evidence_of(training.train(folder))
    print(f"{training}: {found['passed'] or 'FAILED'}", flush=True)
    return found


def main() -> int:
    """Measures the learners named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithms", nargs="*", help="learners to measure; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many to train at a time, with one thread each"
    )
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.algorithms) - set(STEPS)):
        parser.error(f"unknown learners {unknown}; known are {list(STEPS)}")
    if chosen.jobs < 1:
        parser.error(f"--jobs is {chosen.jobs}, expected at least 1")
    todo = trainings(chosen.algorithms or list(STEPS), chosen.seeds)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(chosen.jobs) as pool:
        runs = list(pool.map(lambda training: measure(training, Path(name)), todo))
    if not chosen.algorithms and chosen.seeds == SEEDS:  # a part is no evidence, and must not replace it
        (RESULTS / "off-policy.json").write_text(json.dumps(report(runs), indent=2) + "\n")
    return 1 if any(run["passed"] is None for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
