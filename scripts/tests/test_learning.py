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
    bar = learning.Bar("task", score=800.0, env_steps=500)
    points = [{"env_steps": steps, "score": score} for steps, score in curve]
    found = learning.first_over(bar, points)
    assert (found and found["env_steps"]) == first


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
    row = {"train_s": 1.0, "first_over_bar": point, "curve": [point]}
    monkeypatch.setattr(learning, "measure", lambda bar, seed, folder: {"seed": seed, **row})
    monkeypatch.setattr(learning, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["learning.py", "cartpole-balance", "--seeds", *seeds])
    assert learning.main() == 0
    assert (tmp_path / "docs" / "results" / "cartpole-balance.json").exists() is written
