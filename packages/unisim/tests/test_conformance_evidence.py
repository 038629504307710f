"""The file that a run of the suite leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conforming import FakeResidentSuite, MuJoCoSuite

from unisim.testing import BackendConformance
from unisim.testing.conformance.evidence import (
    Evidence,
    evidence_file,
    expect_raises,
    not_applicable,
    promise,
)


def head(suite: type) -> dict:
    return suite()._head()


def test_it_names_backend_versions_and_capabilities():
    found = head(MuJoCoSuite)
    assert found["backend"] == "unisim.backends.mujoco.backend.MuJoCoBackend"
    assert set(found["versions"]) == {"python", "unisim", "torch", "mujoco"}
    assert found["capabilities"]["data_plane"] == "packets"
    assert found["settings"] == {"num_envs": 4, "decimation": 4, "tolerance": 0.0}


def test_a_backend_that_cannot_be_made_is_told():
    assert head(BackendConformance)["problem"] == "NotImplementedError: give make_backend(self, num_envs)"


def test_it_is_plain_json_with_a_summary(tmp_path):
    evidence = Evidence()
    evidence.record("b", "test_1", "passed")
    evidence.record("a", "test_2", "not applicable", "no sensor")
    evidence.write(tmp_path / "deep" / "file.json", head(FakeResidentSuite))
    content = json.loads((tmp_path / "deep" / "file.json").read_text())
    assert content["schema"] == 1
    assert content["capabilities"]["execution"] == "device_resident"
    assert content["summary"] == {"not applicable": 1, "passed": 1, "failed": 0}
    assert content["sentences"]["a"] == {
        "outcome": "not applicable",
        "tests": {"test_2": {"outcome": "not applicable", "reason": "no sensor"}},
    }


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        (("passed", "failed", "passed"), "failed"),
        (("not applicable", "passed"), "passed"),
        (("not applicable", "not applicable"), "not applicable"),
    ],
)
def test_a_sentence_is_as_bad_as_its_worst_test(outcomes, whole):
    evidence = Evidence()
    for i, outcome in enumerate(outcomes):
        evidence.record("sentence", f"test_{i}", outcome)
    assert evidence.sentences["sentence"]["outcome"] == whole


@pytest.mark.parametrize(
    ("chosen", "variable", "expected"),
    [
        (None, None, "fallback/Suite.json"),
        (None, "out", "out/Suite.json"),
        (None, "out/mine.json", "out/mine.json"),
        ("here.json", "out", "here.json"),
        (Path("there"), "out", "there/Suite.json"),
    ],
)
def test_the_class_decides_where_it_goes_then_the_environment(monkeypatch, chosen, variable, expected):
    monkeypatch.delenv("UNISIM_CONFORMANCE_EVIDENCE", raising=False)
    if variable:
        monkeypatch.setenv("UNISIM_CONFORMANCE_EVIDENCE", variable)
    assert evidence_file("Suite", chosen, Path("fallback")) == Path(expected)


class Example:
    """Three tests of one sentence."""

    def __init__(self) -> None:
        self.evidence = Evidence()

    @promise
    def test_kept(self):
        """Water is wet
        at all times."""

    @promise
    def test_broken(self):
        """Water is wet at all times."""
        raise KeyError("dry")

    @promise
    def test_skipped(self):
        """Water is wet at all times."""
        not_applicable("there is none")


def test_a_failure_names_the_sentence_and_the_error():
    example = Example()
    example.test_kept()
    with pytest.raises(
        AssertionError, match="broken promise: \"Water is wet at all times\": KeyError: 'dry'"
    ):
        example.test_broken()
    with pytest.raises(pytest.skip.Exception, match="not applicable: there is none"):
        example.test_skipped()
    tests = example.evidence.sentences["Water is wet at all times"]["tests"]
    assert {name: entry.get("reason") for name, entry in tests.items()} == {
        "test_kept": None,
        "test_broken": "KeyError: 'dry'",
        "test_skipped": "there is none",
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: None, "it raised nothing; expected KeyError"),
        (lambda: 1 / 0, "it raised ZeroDivisionError: division by zero; expected KeyError"),
    ],
)
def test_another_error_than_the_expected_one_is_a_failure(call, message):
    with pytest.raises(AssertionError, match=message):
        expect_raises(KeyError, call, "it")


def test_every_test_of_the_suite_pins_a_sentence():
    tests = [name for name in dir(BackendConformance) if name.startswith("test_")]
    assert len(tests) > 50
    for name in tests:
        test = getattr(BackendConformance, name)
        assert hasattr(test, "__wrapped__"), name
        assert test.__doc__, name
