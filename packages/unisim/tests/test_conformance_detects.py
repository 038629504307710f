"""The suite fails a backend that breaks a promise, and the failure names the sentence."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from broken_backends import SUITES

PLUGINS = (
    "cacheprovider",
    "faulthandler",
    "timeout",
    "hypothesispytest",
    "logging",
    "threadexception",
)


def proves(test, sentence: str) -> bool:
    """Whether a test of the suite pins the sentence that contains these words."""
    return sentence.lower() in " ".join(test.__doc__.split()).lower()


class Collector:
    """Runs of each suite the tests of the broken sentence only, and keeps what failed, by class."""

    def __init__(self) -> None:
        self.failed: dict[str, list[str]] = {}
        self.errors: list[str] = []

    def pytest_collection_modifyitems(self, items) -> None:
        items[:] = [item for item in items if proves(item.function, SUITES[item.cls.__name__][1])]

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed and report.when == "call":
            name = report.nodeid.split("::")[-2]
            self.failed.setdefault(name, []).append(report.longrepr.reprcrash.message)
        elif report.failed:
            self.errors.append(report.longreprtext)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.errors.append(report.longreprtext)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """One run of the suite against all broken backends: what failed, and the folder of the evidence."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "test_broken.py").write_text(
        "from broken_backends import SUITES\n"
        "globals().update({name: suite for name, (suite, _) in SUITES.items()})\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    collector = Collector()
    options = ["-c", str(folder / "pytest.ini"), "--capture=no", "--tb=short", "-q"]
    output = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        patch.setenv("UNISIM_CONFORMANCE_EVIDENCE", str(folder / "evidence"))
        code = pytest.main(
            [str(folder), *options, *(f"-pno:{name}" for name in PLUGINS)], plugins=[collector]
        )
    assert code == pytest.ExitCode.TESTS_FAILED, output.getvalue()
    assert not collector.errors, collector.errors[0]
    return collector.failed, folder / "evidence"


@pytest.mark.parametrize("name", SUITES)
def test_a_broken_promise_is_named(outcome, name):
    failed, _ = outcome
    sentence = SUITES[name][1]
    messages = failed.get(name, [])
    assert any('broken promise: "' in m and sentence.lower() in m.lower() for m in messages), (
        "\n".join(messages) or "all passed"
    )


@pytest.mark.parametrize("name", SUITES)
def test_the_evidence_records_it_as_failed(outcome, name):
    _, folder = outcome
    evidence = json.loads((folder / f"{name}.json").read_text())
    sentence = SUITES[name][1]
    entries = [entry for text, entry in evidence["sentences"].items() if sentence.lower() in text.lower()]
    assert any(entry["outcome"] == "failed" for entry in entries)
