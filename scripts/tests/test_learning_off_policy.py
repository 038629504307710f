"""What an off-policy run has learnt is read from the evaluations of its training, and from nothing else."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location(
            "learning_off_policy", SCRIPTS / "learning_off_policy.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


def _run(folder: Path, scores: dict[int, float]) -> Path:
    rows = [
        {
            "iteration": steps // 800,
            "env_steps": steps,
            "elapsed_s": steps / 100,
            "metrics": {"Episode/return": 499.0} | ({"Eval/reward_per_step": score} if score else {}),
        }
        for steps, score in scores.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "manifest.json").write_text(json.dumps({"algorithm": "sac", "seed": 2, "task": "t"}))
    return folder


@pytest.fixture(autouse=True)
def _collects_apart(script, monkeypatch):
    monkeypatch.setattr(script, "collectors_of", lambda run: 1)


def test_the_first_evaluation_over_the_bar_is_what_counts(script, tmp_path):
    found = script.evidence_of(_run(tmp_path, {800: 0.0, 8000: 0.78, 16000: 0.7815, 24000: 0.9}))
    assert (found["algorithm"], found["seed"], found["collectors"]) == ("sac", 2, 1)
    assert found["passed"] == {"env_steps": 16000, "elapsed_s": 160.0, "score": 781.5}
    assert [point["env_steps"] for point in found["curve"]] == [8000, 16000, 24000]


def test_what_comes_after_the_bars_steps_is_too_late(script, tmp_path):
    assert script.evidence_of(_run(tmp_path, {200_800: 0.9}))["passed"] is None


def test_what_is_kept_can_be_written_as_json(script, tmp_path):
    kept = json.loads(json.dumps(script.report([script.evidence_of(_run(tmp_path, {8000: 0.9}))])))
    assert (kept["task"], kept["solved"]) == ("cartpole-swingup", {"score": 780.0, "env_steps": 200_000})
    assert [run["passed"]["score"] for run in kept["runs"]] == [900.0]
