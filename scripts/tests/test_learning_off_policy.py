"""What an off-policy run has learnt is read from the evaluations of its training, and from nothing else."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("learning_off_policy")


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


def test_every_learner_and_seed_is_trained_and_sac_once_more_with_a_collector_apart(script):
    todo = script.trainings(["sac", "td3"], [4, 7])
    told = [(training.algorithm, training.seed, training.collectors) for training in todo]
    assert told == [("sac", 4, 0), ("sac", 7, 0), ("td3", 4, 0), ("td3", 7, 0), ("sac", 4, 1)]


def test_no_jobs_at_all_are_refused_before_anything_is_trained(script, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["learning_off_policy.py", "--jobs", "0"])
    monkeypatch.setattr(script, "measure", lambda training, folder: pytest.fail("a training began"))
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert caught.value.code == 2
    assert "--jobs is 0, expected at least 1" in capsys.readouterr().err
