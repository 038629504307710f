"""A learning curve clears its bar only by a score above it, and only in time."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "learning.py"


@pytest.fixture(scope="module")
def learning():
    spec = importlib.util.spec_from_file_location("learning", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["learning"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("curve", "first"),
    [
        ([(100, 700.0), (200, 810.0), (300, 900.0)], 200),
        ([(100, 800.0), (200, 800.0)], None),
        ([(400, 790.0), (600, 900.0)], None),
        ([], None),
    ],
)
def test_the_first_point_over_the_bar_within_its_steps_is_found(learning, curve, first):
    bar = learning.ScoreBar("task", score=800.0, env_steps=500)
    points = [{"env_steps": steps, "score": score} for steps, score in curve]
    found = bar.passed(points)
    assert (found and found["env_steps"]) == first


GOOD, FAIR, FALLEN = (0, 0.1, 0.1), (2, 0.19, 0.1), (3, 0.1, 0.1)
TURNS_WRONG, CREEPS = (0, 0.1, 0.21), (0, 0.13, 0.1)


@pytest.mark.parametrize(
    ("curve", "walks", "steady"),
    [
        ([FALLEN, FAIR, GOOD, CREEPS, GOOD, GOOD], 200, 600),
        ([TURNS_WRONG, TURNS_WRONG], None, None),  # steady is about falls and the forward error alone
        ([FALLEN] * 6 + [GOOD, GOOD], None, None),  # walks too late
        ([GOOD, FALLEN] * 5, None, None),  # never twice running
        ([GOOD] + [FALLEN] * 9 + [GOOD, GOOD], None, None),  # steady too late
    ],
)
def test_a_walk_needs_an_early_evaluation_and_two_steady_ones_running(learning, curve, walks, steady):
    bar = learning.WalkBar("task", falls=2, error=0.2, first_steps=600, steady_error=0.12, steady_steps=1000)
    points = [
        {"env_steps": 100 * i, "falls": falls, "error_lin_vel_x": x, "error_ang_vel_z": z}
        for i, (falls, x, z) in enumerate(curve, start=1)
    ]
    found = bar.passed(points)
    assert (found and found["walks"]["env_steps"]) == walks
    assert (found and found["steady"]["env_steps"]) == steady


def test_a_task_without_a_bar_is_refused(learning, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["learning.py", "cartpole-balanse"])
    with pytest.raises(SystemExit) as stopped:
        learning.main()
    assert stopped.value.code == 2


@pytest.mark.parametrize(("seeds", "written"), [(["0", "1", "2"], True), (["1"], False)])
def test_only_all_seeds_are_evidence(
    learning, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds, written
):
    point = {"env_steps": 1, "score": 999.0}
    row = {"train_s": 1.0, "passed": point, "curve": [point]}
    monkeypatch.setattr(learning, "measure", lambda bar, seed, folder: {"seed": seed, **row})
    monkeypatch.setattr(learning, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["learning.py", "cartpole-balance", "--seeds", *seeds])
    assert learning.main() == 0
    assert (tmp_path / "cartpole-balance.json").exists() is written
