"""Checks in a process that may be lost: what becomes of it is the finding."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unilab_core.cli.doctor_worker import Worker
from unisim.doctor import Finding

SUPPORT = str(Path(__file__).parent / "support")


@pytest.fixture
def check(monkeypatch):
    """Makes checks of the support module in one worker."""
    monkeypatch.setenv("PYTHONPATH", SUPPORT)
    with Worker() as worker:
        yield lambda function, timeout_s=60.0, **arguments: worker.check(
            "a check", f"doctor_support:{function}", timeout_s=timeout_s, **arguments
        )


def test_a_finding_comes_back_under_the_name_that_was_asked_for(check):
    found = check("fine", word="everything")
    assert (found.name, found.state, found.remedy) == ("a check", "ok", "nothing")
    assert found.text.startswith("everything is well in ")
    assert found.text != f"everything is well in {os.getpid()}"


def test_checks_share_one_process_as_long_as_it_lives(check):
    first = check("fine").text
    assert check("fail") == Finding("a check", "broken", "OSError: no such library")
    assert check("fine").text == first


def test_a_crash_is_a_finding_with_the_signal_and_the_last_words_and_the_next_check_is_made(check):
    first = check("fine").text
    text = "its process ended with SIGABRT: last words of a library"
    assert check("abort") == Finding("a check", "broken", text)
    assert check("fine").text != first


def test_an_exit_is_a_finding_with_its_code(check):
    assert check("leave") == Finding("a check", "broken", "its process ended with exit code 3")


def test_a_hang_is_a_finding_after_its_time_and_the_next_check_is_made(check):
    assert check("hang", 0.5) == Finding("a check", "broken", "no answer after 0.5 s: still waiting")
    assert check("fine").state == "ok"


def test_what_is_no_finding_is_refused(check):
    assert check("forget").text == "the check returned a dict, expected a Finding"


def test_a_check_that_does_not_exist_is_a_finding(check):
    text = "ConfigError: 'doctor_support:hangs': 'doctor_support' has no 'hangs'; did you mean 'hang'?"
    assert check("hangs") == Finding("a check", "broken", text)


def test_a_file_in_the_working_directory_does_not_stand_in_for_a_module(check, monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    assert check("fine").state == "ok"


def test_the_process_ends_with_its_worker(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SUPPORT)
    with Worker() as worker:
        pid = int(worker.check("x", "doctor_support:fine", timeout_s=60).text.rsplit(" ", 1)[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_output_can_be_shown_as_it_comes(monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", SUPPORT)
    with Worker(show_output=True) as worker:
        found = worker.check("x", "doctor_support:abort", timeout_s=60)
    assert found == Finding("x", "broken", "its process ended with SIGABRT")
    assert "last words of a library" in capfd.readouterr().err
