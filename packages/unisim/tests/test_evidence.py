"""Recorded evidence: what ships is current, and what cannot be read is refused by name."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import version
from types import SimpleNamespace

import pytest
from conforming import FakeHostSuite, MuJoCoSuite, MuJoCoWarpSuite

import unisim.evidence as module
from unisim import ConfigError
from unisim.evidence import BackendEvidence, find_backend_evidence, other_versions, read_recorded
from unisim.testing import BackendConformance
from unisim.testing.conformance.evidence import Evidence

AGAIN = "record it again: nox -s evidence"
SHIPPED = sorted(find_backend_evidence().items())
SUITES = {suite.backend_name: suite for suite in (MuJoCoSuite, MuJoCoWarpSuite)}


def promised() -> set[str]:
    tests = [
        getattr(BackendConformance, name) for name in dir(BackendConformance) if name.startswith("test_")
    ]
    return {" ".join(test.__doc__.split()).removesuffix(".") for test in tests}


# ---------------------------------------------------------------- what ships


def test_every_backend_of_this_package_ships_evidence_of_the_cpu():
    assert {place for place, _ in SHIPPED} >= {("mujoco", "cpu"), ("mujoco_warp", "cpu")}


@pytest.mark.parametrize(("place", "evidence"), SHIPPED)
def test_it_has_an_outcome_for_exactly_the_sentences_of_the_suite_and_none_failed(place, evidence):
    assert set(evidence.sentences) == promised(), AGAIN
    assert evidence.count("failed") == 0
    assert evidence.count("passed") > 40


@pytest.mark.parametrize(("place", "evidence"), SHIPPED)
def test_it_was_recorded_with_this_version(place, evidence):
    assert evidence.versions["unisim"] == version("unisim"), AGAIN


@pytest.mark.parametrize(("place", "evidence"), SHIPPED)
def test_its_capabilities_are_those_of_the_backend(place, evidence):
    if place[1] != "cpu":
        pytest.skip("recorded on a device that need not be here")
    with closing(SUITES[place[0]]().make_backend(2)) as backend:
        found = asdict(backend.get_tensor_capabilities())
    found["execution"] = found["execution"].value
    assert json.loads(json.dumps(found)) == evidence.capabilities, AGAIN


def test_reading_it_imports_neither_torch_nor_an_engine(program):
    finished = program("""
import sys
from unisim.evidence import find_backend_evidence
assert ("mujoco", "cpu") in find_backend_evidence()
heavy = {"torch", "numpy", "mujoco", "warp", "pydantic"} & set(sys.modules)
assert not heavy, heavy
""")
    assert (finished.returncode, finished.stderr) == (0, "")


# ---------------------------------------------------------------- what a package may ship


def content(**changes) -> dict:
    base = {
        "schema": 1,
        "name": "fast",
        "device": "cuda",
        "capabilities": {"execution": "device_resident"},
        "versions": {"python": "3.11.2", "fast-engine": "1.5.0"},
        "sentences": {"Water is wet": {"outcome": "passed"}, "Ice is warm": {"outcome": "not applicable"}},
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


@pytest.fixture
def ship(monkeypatch, tmp_path):
    """Lets one package ship files, by name and content, in place of all that are installed."""

    def make(**files) -> None:
        for name, data in files.items():
            text = data if isinstance(data, str) else json.dumps(data)
            (tmp_path / f"{name}.json").write_text(text)
        entry = SimpleNamespace(name="fast-package", value="fast.evidence:FOLDER", load=lambda: tmp_path)
        monkeypatch.setattr(module, "entry_points", lambda group: {"unisim.evidence": [entry]}[group])

    return make


def test_files_of_a_package_are_found_by_backend_and_device(ship):
    ship(a=content(), b=content(device="cpu"))
    found = find_backend_evidence()
    assert set(found) == {("fast", "cuda"), ("fast", "cpu")}
    evidence = found["fast", "cuda"]
    assert evidence.sentences == {"Water is wet": "passed", "Ice is warm": "not applicable"}
    assert (evidence.count("passed"), evidence.count("failed"), evidence.count("not applicable")) == (1, 0, 1)
    assert evidence.missing() == ("fast-engine",)


def test_a_file_of_the_suite_is_evidence_as_it_is(tmp_path):
    class Suite(FakeHostSuite):
        backend_name = "fast"

    evidence = Evidence()
    evidence.record("Water is wet", "test_1", "passed")
    evidence.record("Water is wet", "test_2", "failed", "it is dry")
    evidence.write(tmp_path / "file.json", Suite()._head())
    found = BackendEvidence.parse("file", json.loads((tmp_path / "file.json").read_text()))
    assert (found.backend, found.device) == ("fast", "cpu")
    assert found.capabilities["execution"] == "host_bridge"
    assert found.versions["unisim"] == version("unisim")
    assert found.sentences == {"Water is wet": "failed"}


def test_what_is_written_is_read_again_as_it_was():
    evidence = BackendEvidence.parse("file", content())
    assert BackendEvidence.parse("file", json.loads(json.dumps(evidence.content()))) == evidence
    assert evidence.content()["schema"] == 1


def test_of_two_suites_a_sentence_has_the_worse_outcome(ship):
    other = {
        "Water is wet": {"outcome": "failed"},
        "Ice is warm": {"outcome": "passed"},
        "Fire is hot": {"outcome": "passed"},
    }
    ship(a=content(), b=content(sentences=other))
    assert find_backend_evidence()["fast", "cuda"].sentences == {
        "Water is wet": "failed",
        "Ice is warm": "passed",
        "Fire is hot": "passed",
    }


@pytest.mark.parametrize("changed", ["capabilities", "versions"])
def test_two_files_that_are_not_about_the_same_are_refused(ship, changed):
    ship(a=content(), b=content(**{changed: {"another": "1"}}))
    expected = (
        f"evidence b.json of 'fast-package': another file tells other {changed} of backend 'fast' on cuda"
    )
    with pytest.raises(ConfigError, match=expected):
        find_backend_evidence()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "no JSON: Expecting"),
        ("[]", "schema None, expected 1"),
        (content(schema=2), "schema 2, expected 1"),
        (content(name=""), "names no backend; set backend_name in the conformance class"),
        (content(name=None), "names no backend"),
        (content(device=None, versions=None), r"lacks \['device', 'versions'\]"),
        (content(sentences={"Water is wet": {"outcome": "maybe"}}), "outcomes are .*maybe.*, expected"),
        (content(sentences={"Water is wet": {}}), "outcomes are .*None.*, expected"),
        (content(sentences={}), "outcomes are missing, expected"),
    ],
)
def test_a_file_that_is_no_evidence_is_refused_by_name(ship, data, message):
    ship(a=data)
    with pytest.raises(ConfigError, match=f"^evidence a.json of 'fast-package': {message}"):
        find_backend_evidence()


def test_an_entry_point_that_is_no_folder_is_refused(monkeypatch):
    entry = SimpleNamespace(name="fast", value="fast:FOLDER", load=lambda: 3)
    monkeypatch.setattr(module, "entry_points", lambda group: [entry])
    with pytest.raises(
        TypeError, match="entry point 'fast' of 'unisim.evidence': fast:FOLDER is a int, expected"
    ):
        list(read_recorded("unisim.evidence"))


def test_a_folder_that_is_not_there_yet_holds_nothing(monkeypatch, tmp_path):
    entry = SimpleNamespace(name="fast", value="fast:FOLDER", load=lambda: tmp_path / "none")
    monkeypatch.setattr(module, "entry_points", lambda group: [entry])
    assert find_backend_evidence() == {}


def test_other_versions_are_told_but_not_builds_pythons_or_what_is_not_installed(monkeypatch):
    here = {"same": "1.0", "built": "1.0+cpu", "newer": "1.1"}
    monkeypatch.setattr(module, "installed_version", here.get)
    recorded = {"python": "3.9", "same": "1.0", "built": "1.0", "newer": "1.0", "absent": "1.0"}
    assert other_versions(recorded) == ["newer 1.0 (here 1.1)"]
