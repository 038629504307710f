"""Checks of a GPU machine are isolated, timed and recorded, whatever becomes of them."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_check
from gpu_checks import runner as running
from gpu_checks.catalogue import CHECKS
from gpu_checks.reporting import Report, read_findings
from gpu_checks.runner import Check, Runner, table

SCRIPTS = Path(gpu_check.__file__).parent

SCRIPTED = """
import os, subprocess, sys, threading
from pathlib import Path

FOLDER = Path(__file__).parent

def fine(report):
    report.figure("device", report.device)
    report.figure("size", report.pick(1000, 2))
    report.at_most("error", 0.5, 1.0)
    report.expect_on_gpu(report.device != "cpu", "it is no GPU")

def wrong(report):
    report.at_most("error", 2.0, 1.0)
    report.expect(False, "and another fault")
    print("what it printed")

def not_a_number(report):
    report.at_most("error", float("nan"), 1.0)

def raises(report):
    report.figure("before", 1)
    raise ValueError("broken inside")

def dies(report):
    report.figure("before", 1)
    os._exit(7)

def dies_at_the_end(report):
    import atexit
    atexit.register(os._exit, 9)

def hangs_here(report):
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    report.figure("child", child.pid)
    threading.Event().wait()

def is_left_alone(report):
    report.figure("so_far", 3)
    (FOLDER / "ready").open("w").close()
    (FOLDER / "go").read_text()

def asks(report):
    (FOLDER / "ready").open("w").close()
    (FOLDER / "go").read_text()

def answers(report):
    (FOLDER / "ready").read_text()
    (FOLDER / "go").open("w").close()
"""


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """A folder with the module of scripted checks, and two pipes."""
    (tmp_path / "scripted.py").write_text(SCRIPTED)
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def check(name, seconds=60.0, **settings):
    return Check(name, f"scripted:{name}", f"that {name}", seconds, **settings)


def run(folder, *checks, dry=False, minutes=5.0, jobs=1):
    """Runs checks; returns the exit status, the result file, and its checks by name."""
    result = folder / "result.json"
    told: list[str] = []
    runner = Runner(
        checks,
        device="cpu" if dry else "cuda:0",
        dry=dry,
        minutes=minutes,
        result=result,
        environment=gpu_check.environment(os.environ, None),
        jobs=jobs,
        tell=told.append,
    )
    status = runner.run()
    content = json.loads(result.read_text())
    assert len(told) == len(checks)
    return status, content, {entry["name"]: entry for entry in content["checks"]}


def test_checks_that_are_fine_pass_with_their_figures(scripted):
    status, content, found = run(scripted, check("fine"))
    assert status == 0
    assert found["fine"]["verdict"] == "passed"
    assert found["fine"]["figures"] == {"device": "cuda:0", "size": 1000, "error": 0.5}
    assert (content["status"], content["summary"], content["dry"]) == ("finished", {"passed": 1}, False)
    assert found["fine"]["trace"] == ""


def test_a_dry_run_passes_nothing_and_says_what_it_could_not_show(scripted):
    status, content, found = run(scripted, check("fine"), dry=True)
    assert (status, found["fine"]["verdict"]) == (0, "dry")
    assert found["fine"]["figures"]["size"] == 2
    assert found["fine"]["not_shown"] == ["it is no GPU"]
    assert content["summary"] == {"dry": 1}


def test_what_fails_raises_or_dies_is_told_apart_and_the_others_go_on(scripted):
    names = ("wrong", "raises", "dies", "dies_at_the_end", "not_a_number", "fine")
    status, content, found = run(scripted, *map(check, names))
    assert status == 1
    assert [found[name]["verdict"] for name in names] == [
        *("failed", "raised", "died", "died", "failed", "passed"),
    ]
    assert found["wrong"]["faults"] == ["error is 2, expected at most 1", "and another fault"]
    assert "what it printed" in found["wrong"]["trace"]
    assert found["raises"]["figures"] == {"before": 1}
    assert found["raises"]["trace"].splitlines()[-1] == "ValueError: broken inside"
    assert 'raise ValueError("broken inside")' in found["raises"]["trace"]
    assert found["dies"]["figures"] == {"before": 1}
    assert found["dies"]["faults"] == ["its process ended with status 7 before its end"]
    assert found["dies_at_the_end"]["faults"] == ["its process ended with status 9 after its end"]
    assert content["summary"] == {"failed": 2, "raised": 1, "died": 2, "passed": 1}


def test_what_hangs_is_ended_with_its_children_and_says_where(scripted):
    status, _, found = run(scripted, check("hangs_here", seconds=4.0), check("fine"))
    hung = found["hangs_here"]
    assert (status, hung["verdict"], found["fine"]["verdict"]) == (1, "hung", "passed")
    assert hung["faults"] == ["it took longer than 4 s"]
    assert "hangs_here" in hung["trace"]
    assert not is_running(hung["figures"]["child"])


def is_running(pid):
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_checks_that_no_time_is_left_for_are_not_run(scripted):
    status, content, found = run(scripted, check("fine"), check("wrong"), minutes=1e-9)
    assert status == 1
    assert [entry["verdict"] for entry in found.values()] == ["not run: out of time"] * 2
    assert content["summary"] == {"not run: out of time": 2}


def test_a_check_gets_no_more_time_than_is_left(scripted, monkeypatch):
    monkeypatch.setattr(running, "GRACE_S", 0.0)
    _, _, found = run(scripted, check("hangs_here", seconds=600.0), check("fine"), minutes=1.0 / 60.0)
    assert found["hangs_here"]["verdict"] == "hung"
    assert found["fine"]["verdict"] == "not run: out of time"


def test_without_a_required_check_nothing_after_it_runs(scripted):
    status, _, found = run(scripted, check("wrong", required=True), check("fine"))
    assert (status, found["fine"]["verdict"]) == (1, "not run: wrong is not fine")


def test_checks_that_share_run_side_by_side(scripted):
    shared = [check(name, shares=True) for name in ("asks", "answers")]  # each waits for the other
    status, _, found = run(scripted, *shared, jobs=2)
    assert (status, [entry["verdict"] for entry in found.values()]) == (0, ["passed", "passed"])


@pytest.mark.parametrize(
    ("shares", "batches"),
    [("", []), ("1", [1]), ("0110", [1, 2, 1]), ("1101", [2, 1, 1]), ("000", [1, 1, 1])],
)
def test_only_neighbours_that_share_make_a_batch(shares, batches):
    checks = [check("fine", shares=flag == "1") for flag in shares]
    assert [len(batch) for batch in running._batches(checks)] == batches


# ---------------------------------------------------------------- ended from outside

PROGRAM = """
import gpu_check, sys
from gpu_checks.runner import Check
checks = [Check(n, "scripted:" + n, n, 60.0) for n in ("fine", "is_left_alone", "wrong")]
sys.exit(gpu_check.main(["--out", "result.json"], checks))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["asked", "killed"])
def test_nothing_is_lost_when_the_machine_is_taken_away(scripted, number):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=scripted,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(scripted)])},
        stdout=subprocess.DEVNULL,
    )
    (scripted / "ready").read_text()  # until the second check is in the middle
    process.send_signal(number)
    status = process.wait()
    content = json.loads((scripted / "result.json").read_text())
    entries = content["checks"]
    assert [entry["name"] for entry in entries] == ["fine", "is_left_alone", "wrong"]
    assert (entries[0]["verdict"], entries[0]["figures"]["size"]) == ("passed", 1000)
    assert entries[2]["verdict"] == "not run: stopped before"
    if number == signal.SIGTERM:
        assert (status, content["status"]) == (1, "stopped")
        assert (entries[1]["verdict"], entries[1]["figures"]) == ("stopped", {"so_far": 3})
    else:
        assert (entries[1]["verdict"], content["status"]) == ("running", "running")
        with (scripted / "go").open("w"):
            pass  # the check that was left alone goes on, and ends


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    lines = tmp_path / "lines"
    report = Report("cpu", dry=True, lines=lines, folder=tmp_path)
    report.figure("whole", 1)
    with lines.open("a") as file:
        file.write('{"figure": "half", "val')
    found = read_findings(lines)
    assert (found.figures, found.ended) == ({"whole": 1}, False)


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "nothing"], "no check ['nothing']; there are ['machine'"),
        (["--dry-run", "--device", "cuda:0"], "--dry-run runs on the CPU, got --device cuda:0"),
        (["--device", "cpu"], "the CPU is no GPU"),
        (["--minutes", "0"], "--minutes 0, expected a positive number"),
        (["--jobs", "0"], "--jobs 0, expected at least 1"),
        (["--carried", "/nowhere"], "/nowhere holds no part"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        gpu_check.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_checks_are_listed_in_the_order_of_their_cost(capsys):
    assert gpu_check.main(["--list"]) == 0
    listed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [check.name for check in CHECKS]
    assert listed.index("machine") == 0
    assert listed.index("conformance") < listed.index("quadruped speed") < listed.index("balance training")


def test_every_check_names_a_function_that_is_there():
    for entry in CHECKS:
        module, _, function = entry.function.partition(":")
        tree = ast.parse((SCRIPTS / f"{module.replace('.', '/')}.py").read_text())
        found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert function in found, entry.function


def test_only_what_measures_no_time_shares_the_machine():
    alone = {entry.name for entry in CHECKS if not entry.shares}
    assert {name for name in alone if "speed" in name or "training" in name} == {
        *("quadruped speed", "cartpole speed", "graph speed"),
        *("bridge training", "walk training", "balance training"),
    }
    assert "streams" in alone


def test_what_was_carried_comes_before_what_is_installed():
    found = gpu_check.environment({"PYTHONPATH": "/before", "MUJOCO_GL": "osmesa"}, Path("/site"))
    assert found["PYTHONPATH"] == os.pathsep.join([str(SCRIPTS), "/site", "/before"])
    assert found["MUJOCO_GL"] == "osmesa"


def test_the_table_shows_faults_below_the_verdicts(scripted):
    runner = Runner(
        [check("wrong")],
        device="cuda:0",
        dry=False,
        minutes=5.0,
        result=scripted / "result.json",
        environment=gpu_check.environment(os.environ, None),
        tell=lambda _: None,
    )
    runner.run()
    lines = table(runner.outcomes).splitlines()
    assert lines[0].split()[0] == "wrong"
    assert "failed" in lines[0]
    assert lines[1:] == ["wrong: error is 2, expected at most 1", "wrong: and another fault"]
