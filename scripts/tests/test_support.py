"""What counts as trained, what the page shows, what is stale, and what the command takes from elsewhere."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest

import support_evidence
from _support import BACKENDS, PAGE, RESULTS, TASKS, Support, text_of

CAPABILITIES = {
    "execution": "host_bridge",
    "accepted_devices": ["cpu", "cuda"],
    "sensors": ["robot/gyro"],
    "wrenches": True,
    "rendering": False,
}
SUITE = {
    "schema": 1,
    "name": "slow",
    "device": "cpu",
    "capabilities": CAPABILITIES,
    "versions": {"python": "3.11.2", "slow-engine": "1.0"},
    "sentences": {"Water is wet": {"outcome": "passed"}, "Ice | is warm": {"outcome": "not applicable"}},
}
TASK = {
    "schema": 1,
    "backend": "slow",
    "device": "cpu",
    "num_envs": 8,
    "steps": 50,
    "versions": {"unisim": "2.0.0"},
    "tasks": {"reach": {"outcome": "runs"}, "swim": {"outcome": "not supported", "reason": "no water"}},
    "trained": {"reach": {"ppo": {"seeds": 2, "bar": {"score": 9.0}}}},
}
SETUP = {"algorithm": "ppo", "backend": "slow", "device": "cpu"}
RESULT = {
    "bar": {"task": "reach", "score": 9.0},
    "seeds": [{"seed": seed, "trained_with": SETUP, "passed": {"score": 9.5}} for seed in (0, 1)],
}


class Site:
    """A workspace with evidence, its page made of it."""

    def __init__(self, root):
        self.root = root
        self.put(BACKENDS / "slow-cpu.json", SUITE)
        self.put(TASKS / "slow-cpu.json", TASK)
        self.put(RESULTS / "reach.json", RESULT)
        self.put(RESULTS / "mutation.json", {"killed": 3})
        self.make_page()

    def put(self, path, content):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text_of(content))

    def make_page(self):
        (self.root / PAGE).write_text(self.support.page())

    @property
    def support(self):
        return Support(self.root)

    @property
    def errors(self):
        return list(self.support.errors())


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def changed(content, **changes):
    return {**copy.deepcopy(content), **changes}


# ---------------------------------------------------------------- learning runs


def test_a_task_is_trained_where_every_seed_cleared_its_bar(site):
    assert site.support.trained(("slow", "cpu")) == TASK["trained"]
    assert site.support.trained(("slow", "cuda")) == {}
    assert site.support.trained(("fast", "cpu")) == {}


@pytest.mark.parametrize(
    "seed", [{"passed": None}, {"trained_with": {**SETUP, "backend": "fast"}}], ids=["failed", "elsewhere"]
)
def test_one_seed_that_failed_or_ran_elsewhere_leaves_nothing_shown(site, seed):
    result = copy.deepcopy(RESULT)
    result["seeds"][1] |= seed
    site.put(RESULTS / "reach.json", result)
    assert site.support.trained(("slow", "cpu")) == {}
    assert site.support.trained(("fast", "cpu")) == {}


def test_a_task_is_trained_on_a_kind_of_device_whatever_its_index(site):
    seeds = [seed | {"trained_with": {**SETUP, "device": "cuda:1"}} for seed in RESULT["seeds"]]
    site.put(RESULTS / "reach.json", changed(RESULT, seeds=seeds))
    assert site.support.trained(("slow", "cuda")) == TASK["trained"]


# ---------------------------------------------------------------- the page


def test_the_page_shows_what_is_recorded_and_says_where_nothing_is(site):
    lines = site.support.page().splitlines()
    for line in (
        "| task | `slow` on cpu | `slow` on cuda |",
        "| `reach` | trained (ppo) | not shown |",
        "| `swim` | not supported: no water | not shown |",
        "- `slow` on cpu: 8 rows, 50 steps of random actions; unisim 2.0.0.",
        "| capability | `slow` |",
        "| `accepted_devices` | `cpu`, `cuda` |",
        "| `wrenches` | yes |",
        "| `rendering` | no |",
        "| sentence | `slow` on cpu |",
        "| Water is wet | passed |",
        "| Ice \\| is warm | not applicable |",
        "- `slow` on cpu: python 3.11.2, slow-engine 1.0.",
    ):
        assert line in lines, line
    assert not [line for line in lines if "sensors" in line]  # of the suite's model, not of the backend


def test_a_device_of_its_own_gets_a_column(site):
    site.put(BACKENDS / "slow-cuda.json", changed(SUITE, device="cuda"))
    site.put(
        TASKS / "slow-cuda.json",
        changed(TASK, device="cuda", tasks={"reach": {"outcome": "runs"}}, trained={}),
    )
    lines = site.support.page().splitlines()
    assert "| `reach` | trained (ppo) | runs |" in lines
    assert "| `swim` | not supported: no water | not shown |" in lines
    assert "| Water is wet | passed | passed |" in lines


# ---------------------------------------------------------------- what is stale


def test_current_evidence_has_no_errors(site):
    assert site.errors == []


def test_a_page_that_was_edited_is_found(site):
    (site.root / PAGE).write_text(site.support.page() + "\n")
    assert site.errors == ["docs/support.md: is not what the evidence says; run `nox -s evidence -- refresh`"]


def test_evidence_that_says_more_than_the_learning_runs_is_found(site):
    (site.root / RESULTS / "reach.json").unlink()
    assert site.errors == [
        f"{TASKS}/slow-cpu.json: says other learning results than docs/results; "
        "run `nox -s evidence -- refresh`"
    ]


def test_a_failed_sentence_is_found(site):
    site.put(BACKENDS / "slow-cpu.json", changed(SUITE, sentences={"Water is wet": {"outcome": "failed"}}))
    site.make_page()
    assert site.errors == [f"{BACKENDS}/slow-cpu.json: 1 sentence(s) failed, first 'Water is wet'"]


def test_records_of_one_backend_with_different_capabilities_are_found(site):
    site.put(
        BACKENDS / "slow-cuda.json",
        changed(SUITE, device="cuda", capabilities={**CAPABILITIES, "wrenches": False}),
    )
    site.make_page()
    assert site.errors == [
        f"{BACKENDS}/slow-cuda.json: has other capabilities than the backend's first file; "
        "run `nox -s evidence` there again"
    ]


def test_the_evidence_of_this_workspace_is_current():
    assert list(Support(support_evidence.ROOT).errors()) == []


# ---------------------------------------------------------------- the command


@pytest.fixture
def command(site, monkeypatch):
    monkeypatch.setattr(support_evidence, "ROOT", site.root)
    return support_evidence.main


def test_refresh_takes_over_learning_results_and_makes_the_page(site, command):
    (site.root / RESULTS / "reach.json").unlink()
    (site.root / PAGE).unlink()
    assert command(["refresh"]) == 0
    assert json.loads((site.root / TASKS / "slow-cpu.json").read_text()) == changed(TASK, trained={})
    assert "| `reach` | runs | not shown |" in (site.root / PAGE).read_text()


def test_take_brings_what_another_machine_recorded(site, command, tmp_path_factory):
    elsewhere = Site(tmp_path_factory.mktemp("elsewhere"))
    for kind, content in ((BACKENDS, SUITE), (TASKS, TASK)):
        (elsewhere.root / kind / "slow-cpu.json").unlink()
        elsewhere.put(kind / "slow-cuda.json", changed(content, device="cuda"))
    assert command(["take", str(elsewhere.root)]) == 0
    assert site.errors == []
    assert (
        "| `reach` | trained (ppo) | runs |" in (site.root / PAGE).read_text()
    )  # it was trained on the CPU only


def test_take_refuses_a_folder_without_evidence(site, command, tmp_path_factory):
    with pytest.raises(SystemExit, match="holds no evidence; give the folder that `record --out` wrote"):
        command(["take", str(tmp_path_factory.mktemp("empty"))])


@pytest.fixture
def recording(site, command, monkeypatch):
    """The command, with a suite and tasks that take no time."""

    def found(folder):
        return {("slow", "cpu"): SUITE}

    monkeypatch.setattr(support_evidence, "run_suite", lambda folder, device: None)
    monkeypatch.setattr(support_evidence, "suite_records", found)
    monkeypatch.setattr(
        support_evidence,
        "task_record",
        lambda place, versions: changed(TASK, versions=versions, device=place[1]),
    )
    return command


def test_record_writes_both_files_and_the_page(site, recording, capsys):
    assert recording(["record", "--backend", "slow"]) == 0
    recorded = json.loads((site.root / TASKS / "slow-cpu.json").read_text())
    assert recorded == changed(TASK, versions=SUITE["versions"])
    assert site.errors == []
    assert "swim on slow, cpu: not supported no water" in capsys.readouterr().out


def test_record_into_a_folder_leaves_the_workspace_alone(site, recording, tmp_path_factory):
    before = {path: path.read_text() for path in site.root.rglob("*") if path.is_file()}
    out = tmp_path_factory.mktemp("out")
    assert recording(["record", "--backend", "slow", "--out", str(out)]) == 0
    assert json.loads((out / BACKENDS / "slow-cpu.json").read_text()) == SUITE
    assert (out / TASKS / "slow-cpu.json").is_file()
    assert {path: path.read_text() for path in site.root.rglob("*") if path.is_file()} == before


def test_a_backend_that_no_suite_ran_on_is_not_recorded(site, recording):
    with pytest.raises(
        SystemExit, match=r"no conformance suite of slow ran on cuda; there are \[\('slow', 'cpu'\)\]"
    ):
        recording(["record", "--backend", "slow", "--device", "cuda"])
    assert not (site.root / TASKS / "slow-cuda.json").exists()


def test_a_suite_that_fails_is_not_recorded(monkeypatch, tmp_path):
    (tmp_path / "test_suite.py").write_text("def test_it():\n    raise AssertionError\n")
    monkeypatch.setattr(support_evidence, "ROOT", tmp_path)
    monkeypatch.setattr(support_evidence, "SUITE", "test_suite.py")
    with pytest.raises(SystemExit, match=r"the conformance suite fails \(1\)"):
        support_evidence.run_suite(tmp_path, "cpu")


def test_the_suite_is_told_which_device_is_meant(tmp_path, monkeypatch):
    given = {}

    def run(command, *, cwd, env, check):
        given.update(env)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(support_evidence.subprocess, "run", run)
    support_evidence.run_suite(tmp_path, "cuda:1")
    assert given["UNISIM_WARP_DEVICE"] == "cuda:1"
    assert given["UNISIM_CONFORMANCE_EVIDENCE"] == str(tmp_path)
