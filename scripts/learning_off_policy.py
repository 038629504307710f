"""Trains `cartpole-swingup` with every off-policy learner's preset, and says when each seed first solves it.

Run through `nox -s learning_off_policy`. The curves go to `docs/results/off-policy.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from learning import RESULTS, SEEDS, ScoreBar, metrics_of, unilab

BAR = ScoreBar("cartpole-swingup", score=780.0, env_steps=200_000)
"""What every learner and seed must exceed, and by when: for all of them what was written down before the first run."""
STEPS = {"sac": 80_000, "td3": 200_000, "fast_sac": 80_000, "fast_td3": 80_000, "flash_sac": 80_000}
"""How long each is trained: most solve it long before the bar's steps are used up."""
COLLECTS_APART = ("learner.collectors=1",)
SETTINGS = ("learner.eval_interval=10", "learner.eval_episodes=16", "sim.num_threads=1")


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


def train(folder: Path, algorithm: str, seed: int, settings: Sequence[str] = ()) -> Path:
    """Trains one seed below `folder` and returns its run."""
    sets = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    budget = ("--steps", str(STEPS[algorithm]))
    unilab(
        folder,
        *("train", BAR.task, "--algo", algorithm, "--seed", str(seed), *budget, *sets, "--runs", str(folder)),
    )
    return max((folder / BAR.task).iterdir(), key=lambda path: path.stat().st_mtime)


def report(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what is kept of all runs."""
    solved = {"score": BAR.score, "env_steps": BAR.env_steps}
    return {"task": BAR.task, "solved": solved, "settings": SETTINGS, "runs": list(runs)}


def main() -> int:
    """Measures the learners named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithms", nargs="*", help="learners to measure; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.algorithms) - set(STEPS)):
        parser.error(f"unknown learners {unknown}; known are {list(STEPS)}")
    runs = []
    with tempfile.TemporaryDirectory() as name:
        for algorithm in chosen.algorithms or STEPS:
            for seed in chosen.seeds:
                runs.append(evidence_of(train(Path(name), algorithm, seed)))
                print(f"{algorithm} seed {seed}: {runs[-1]['passed'] or 'FAILED'}", flush=True)
        if "sac" in (chosen.algorithms or STEPS):
            runs.append(evidence_of(train(Path(name), "sac", chosen.seeds[0], COLLECTS_APART)))
            print(f"sac, collected in a process of its own: {runs[-1]['passed'] or 'FAILED'}", flush=True)
    if not chosen.algorithms and chosen.seeds == SEEDS:  # a part is no evidence, and must not replace it
        (RESULTS / "off-policy.json").write_text(json.dumps(report(runs), indent=2) + "\n")
    return 1 if any(run["passed"] is None for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
