"""Recorded evidence of tasks: found by entry point, and no more than what was recorded."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import unisim.evidence
from unilab_core import ConfigError
from unilab_core.evidence import TaskEvidence, combinations, find_task_evidence


def content(**changes) -> dict:
    base = {
        "schema": 1,
        "backend": "fast",
        "device": "cuda",
        "num_envs": 8,
        "steps": 50,
        "versions": {"unisim": "2.0.0"},
        "tasks": {"reach": {"outcome": "runs"}, "swim": {"outcome": "not supported", "reason": "no water"}},
        "trained": {"reach": {"ppo": {"seeds": 3, "bar": {}}}, "walk": {"ppo": {"seeds": 3, "bar": {}}}},
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


@pytest.fixture
def ship(monkeypatch, tmp_path):
    """Lets one package ship files, by name and content, in place of all that are installed."""

    def make(**files) -> None:
        for name, data in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(data))
        entry = SimpleNamespace(name="downstream", value="downstream.evidence:FOLDER", load=lambda: tmp_path)
        groups = {"unilab.evidence": [entry]}
        monkeypatch.setattr(unisim.evidence, "entry_points", lambda group: groups[group])

    return make


def test_it_is_found_by_task_backend_and_device(ship):
    ship(a=content(), b=content(device="cpu", tasks={}, trained={}))
    versions = {"unisim": "2.0.0"}
    assert find_task_evidence() == {
        ("reach", "fast", "cuda"): TaskEvidence("runs", "", frozenset({"ppo"}), versions),
        ("swim", "fast", "cuda"): TaskEvidence("not supported", "no water", frozenset(), versions),
        ("walk", "fast", "cuda"): TaskEvidence(None, "", frozenset({"ppo"}), versions),
    }


@pytest.mark.parametrize(
    ("evidence", "levels"),
    [
        (TaskEvidence(), ("not shown", "not shown")),
        (TaskEvidence("runs"), ("runs", "runs")),
        (TaskEvidence("not supported", "no water"), ("not supported", "not supported")),
        (TaskEvidence("runs", trained=frozenset({"ppo"})), ("trained", "runs")),
        (TaskEvidence(None, trained=frozenset({"ppo"})), ("trained", "not shown")),
    ],
)
def test_only_the_algorithm_that_was_trained_is_trained(evidence, levels):
    assert (evidence.level("ppo"), evidence.level("sac")) == levels


def test_every_combination_is_listed_backend_by_backend(ship):
    ship(a=content())
    devices = {"fast": ["cuda", "cpu"], "slow": ["cpu"]}
    found = combinations("reach", ["ppo", "sac"], devices, find_task_evidence())
    assert [(c.backend, c.device, c.algorithm, c.level) for c in found] == [
        ("fast", "cuda", "ppo", "trained"),
        ("fast", "cuda", "sac", "runs"),
        ("fast", "cpu", "ppo", "not shown"),
        ("fast", "cpu", "sac", "not shown"),
        ("slow", "cpu", "ppo", "not shown"),
        ("slow", "cpu", "sac", "not shown"),
    ]
    assert [c.algorithm for c in combinations("reach", [], {"slow": ["cpu"]}, {})] == [""]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (content(schema=3), "schema 3, expected 1"),
        (content(tasks=None, device=None), r"lacks \['device', 'tasks'\]"),
        (
            content(tasks={"reach": {"outcome": "trained"}}),
            "task 'reach': outcome 'trained', expected one of",
        ),
        (content(tasks={"reach": {"reason": "none"}}), "task 'reach': outcome None, expected one of"),
    ],
)
def test_a_file_that_is_no_evidence_is_refused_by_name(ship, data, message):
    ship(a=data)
    with pytest.raises(ConfigError, match=f"^evidence a.json of 'downstream': {message}"):
        find_task_evidence()


def test_what_two_files_tell_of_the_same_is_refused(ship):
    ship(a=content(), b=content())
    expected = "b.json of 'downstream': another file tells of task 'reach' on 'fast' on cuda too"
    with pytest.raises(ConfigError, match=expected):
        find_task_evidence()
