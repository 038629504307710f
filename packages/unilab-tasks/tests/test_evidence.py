"""The evidence that ships of these tasks is current, and `unilab list` shows it; how it is recorded."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from unilab_core import CapabilityError, get_task, list_tasks
from unilab_core.evidence import find_task_evidence
from unilab_tasks.evidence import FOLDER

AGAIN = "record it again: nox -s evidence"
SCRIPTS = Path(__file__).parents[3] / "scripts"
SHIPPED = sorted(FOLDER.glob("*.json"))


# ---------------------------------------------------------------- what ships


def test_there_is_evidence_of_both_backends_on_the_cpu():
    assert {file.name for file in SHIPPED} >= {"mujoco-cpu.json", "mujoco_warp-cpu.json"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_it_is_of_exactly_these_tasks_and_versions(file: Path):
    content = json.loads(file.read_text())
    assert file.name == f"{content['backend']}-{content['device']}.json"
    assert set(content["tasks"]) == {task.name for task in list_tasks()}, AGAIN
    for name in ("unisim", "unilab-core", "unilab-managers", "unilab-tasks"):
        assert content["versions"][name] == version(name), AGAIN


def test_every_task_was_trained_with_its_default_learner_on_the_cpu():
    found = find_task_evidence()
    for task in list_tasks():
        trained = found[task.name, "mujoco", "cpu"].trained
        assert task.default_learner in trained
        assert trained <= set(task.learners)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_only_learners_that_a_task_has_are_said_to_have_trained_it(file: Path):
    for task, algorithms in json.loads(file.read_text())["trained"].items():
        assert set(algorithms) <= set(get_task(task).learners), AGAIN


def test_list_shows_it(cli: Callable[..., Any]):
    found = json.loads(cli("list", "--json").stdout)
    for task in found["tasks"]:
        levels = {(e["backend"], e["device"], e["algorithm"]): e["level"] for e in task["support"]}
        assert levels["mujoco", "cpu", "ppo"] == "trained"
        assert levels["mujoco_warp", "cpu", "ppo"] == "runs"
        assert {e["conformance"] for e in task["support"] if e["device"] == "cpu"} == {"passed"}


# ---------------------------------------------------------------- how it is recorded


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script behind `nox -s evidence`."""
    spec = importlib.util.spec_from_file_location("support_evidence", SCRIPTS / "support_evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(SCRIPTS))


def test_a_task_that_was_built_stepped_and_reset_runs(script: ModuleType):
    assert script.try_task("cartpole-balance", ("mujoco", "cpu")) == {"outcome": "runs"}


def test_a_task_that_the_backend_refuses_is_not_supported_with_its_reason(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    def refuse(task: str, **options: object) -> None:
        raise CapabilityError(
            f"{task} has a flexible body, {options['backend']} on {options['device']} has none"
        )

    monkeypatch.setattr("unilab_core.factory.make_env", refuse)
    monkeypatch.setattr("unilab_core.make_env", refuse)
    assert script.try_task("cartpole-balance", ("fast", "cuda")) == {
        "outcome": "not supported",
        "reason": "cartpole-balance has a flexible body, fast on cuda has none",
    }


def test_a_task_that_fails_otherwise_is_not_recorded(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    def break_(self: object, actions: torch.Tensor) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("unilab_core.env.TorchEnv.step", break_)
    with pytest.raises(RuntimeError, match="a defect"):
        script.try_task("cartpole-balance", ("mujoco", "cpu"))
