"""`unilab list`: the documented JSON, a table of what is known to work, and neither torch nor an engine."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from unilab_core import ConfigError, TaskSpec
from unilab_core.cli import dispatcher, main
from unilab_core.cli import list as list_module
from unilab_core.evidence import TaskEvidence
from unisim.evidence import BackendEvidence

TASK = TaskSpec("cartpole-balance", "m:f", {"sac": "m:s", "ppo": "m:p"}, summary="Balance a pole [really]")
HOST = {
    "execution": "host_bridge",
    "accepted_devices": ["cpu", "cuda"],
    "randomizable_fields": ["body_mass", "gravity"],
    "row_writes": True,
    "wrenches": False,
    "rendering": True,
}
RESIDENT = {"execution": "device_resident", "accepted_devices": ["cuda"]}
NEEDS = {"python": "3.9", "unisim": "1.0"}


def conformance(backend, device, capabilities, versions=NEEDS, **outcomes):
    return BackendEvidence(backend, device, capabilities, versions, outcomes)


class Shown:
    """What the listing is to find in place of what is installed."""

    def __init__(self) -> None:
        self.tasks = (TASK,)
        self.groups = {"unisim.backends": ["mujoco"], "unilab.algorithms": ["sac", "ppo"]}
        self.backends = {}
        self.recorded = {}

    def add(self, evidence):
        self.backends[evidence.backend, evidence.device] = evidence


@pytest.fixture
def shown(monkeypatch):
    found = Shown()
    monkeypatch.setenv("COLUMNS", "200")  # whatever the terminal of this test run says
    monkeypatch.setattr(list_module, "list_tasks", lambda: found.tasks)
    monkeypatch.setattr(list_module, "find_backend_evidence", lambda: found.backends)
    monkeypatch.setattr(list_module, "find_task_evidence", lambda: found.recorded)
    monkeypatch.setattr(
        list_module,
        "entry_points",
        lambda group: [SimpleNamespace(name=name) for name in found.groups[group]],
    )
    monkeypatch.setattr(
        dispatcher,
        "entry_points",
        lambda group: [SimpleNamespace(name="list", load=lambda: list_module.command)],
    )
    return found


def listing(capsys):
    assert main(["list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- JSON


def test_list_as_json_has_exactly_the_documented_keys(shown, capsys):
    nothing = {"level": "not shown", "reason": "", "conformance": "not shown"}
    known = {"installed": True, "other_versions": []}
    assert listing(capsys) == {
        "tasks": [
            {
                "name": "cartpole-balance",
                "summary": "Balance a pole [really]",
                "backends": ["mujoco"],
                "learners": ["ppo", "sac"],
                "support": [
                    {"backend": "mujoco", "device": "cpu", "algorithm": "ppo", **nothing, **known},
                    {"backend": "mujoco", "device": "cpu", "algorithm": "sac", **nothing, **known},
                ],
            }
        ],
        "backends": ["mujoco"],
        "algorithms": ["ppo", "sac"],
    }


def support(capsys) -> dict[tuple[str, str, str], dict]:
    entries = listing(capsys)["tasks"][0]["support"]
    return {(entry["backend"], entry["device"], entry["algorithm"]): entry for entry in entries}


def test_a_combination_has_the_level_that_is_recorded_of_it_and_no_other(shown, capsys):
    shown.groups["unisim.backends"] = ["fast", "mujoco"]
    shown.add(conformance("mujoco", "cpu", HOST, a="passed"))
    shown.add(conformance("fast", "cuda", RESIDENT, a="passed", b="failed"))
    shown.recorded = {
        ("cartpole-balance", "mujoco", "cpu"): TaskEvidence("runs", trained=frozenset({"ppo"})),
        ("cartpole-balance", "fast", "cuda"): TaskEvidence("not supported", "no hinge"),
        ("another-task", "mujoco", "cuda"): TaskEvidence("runs"),
    }
    found = support(capsys)
    assert {key: entry["level"] for key, entry in found.items()} == {
        ("fast", "cuda", "ppo"): "not supported",
        ("fast", "cuda", "sac"): "not supported",
        ("mujoco", "cpu", "ppo"): "trained",
        ("mujoco", "cpu", "sac"): "runs",
        ("mujoco", "cuda", "ppo"): "not shown",
        ("mujoco", "cuda", "sac"): "not shown",
    }
    assert found["fast", "cuda", "ppo"]["reason"] == "no hinge"
    conformed = {key: entry["conformance"] for key, entry in found.items() if key[2] == "ppo"}
    assert conformed == {
        ("fast", "cuda", "ppo"): "failed",
        ("mujoco", "cpu", "ppo"): "passed",
        ("mujoco", "cuda", "ppo"): "not shown",
    }


def test_a_task_without_learners_is_listed_with_no_algorithm(shown, capsys):
    shown.tasks = (TaskSpec("cartpole-balance", "m:f"),)
    shown.recorded = {("cartpole-balance", "mujoco", "cpu"): TaskEvidence("runs")}
    assert support(capsys)["mujoco", "cpu", None]["level"] == "runs"


def test_a_backend_whose_engine_is_not_there_is_told_from_its_evidence(shown, capsys):
    needs = {**NEEDS, "no-such-engine": "1.0"}
    shown.add(conformance("mujoco", "cpu", HOST, needs, a="passed"))
    assert support(capsys)["mujoco", "cuda", "ppo"]["installed"] is False
    assert main(["list"]) == 0
    assert "not installed: no-such-engine" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_evidence_of_other_versions_says_so(shown, capsys):
    shown.add(conformance("mujoco", "cpu", HOST, a="passed"))
    shown.recorded = {("cartpole-balance", "mujoco", "cpu"): TaskEvidence("runs", versions={"click": "0.1"})}
    others = support(capsys)["mujoco", "cpu", "ppo"]["other_versions"]
    assert [text.split(" (here")[0] for text in others] == ["unisim 1.0", "click 0.1"]
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "recorded with other versions than those here: unisim 1.0 (here " in out


def test_evidence_that_cannot_be_read_is_one_message(shown, capsys, monkeypatch):
    def refuse():
        raise ConfigError("evidence a.json of 'fast': no JSON")

    monkeypatch.setattr(list_module, "find_backend_evidence", refuse)
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "Error: evidence a.json of 'fast': no JSON\n"


# ---------------------------------------------------------------- table


def rows(out: str) -> list[list[str]]:
    """The cells of each line of a table."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]


def test_list_shows_a_table(shown, capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert ["cartpole-balance", "ppo, sac", "not shown", "Balance a pole [really]"] in rows(out)
    assert ["mujoco", "cpu", "not shown", ""] in rows(out)
    assert "algorithms: ppo, sac" in out


def test_the_table_names_what_is_known_to_work_and_stays_silent_about_the_rest(shown, capsys):
    shown.groups["unisim.backends"] = ["fast", "mujoco"]
    shown.add(conformance("mujoco", "cpu", HOST, a="passed", b="passed", c="not applicable"))
    shown.add(conformance("fast", "cuda", RESIDENT, a="passed", b="failed"))
    shown.recorded = {
        ("cartpole-balance", "mujoco", "cpu"): TaskEvidence("runs", trained=frozenset({"ppo"})),
        ("cartpole-balance", "fast", "cuda"): TaskEvidence("not supported", "no hinge"),
    }
    assert main(["list"]) == 0
    found = rows(capsys.readouterr().out)
    tasks, backends = found[:-4], found[-4:]
    known = " ".join(row[2] for row in tasks)
    assert known == "fast, cuda: not supported: no hinge mujoco, cpu: trained (ppo)"
    assert [row[:3] for row in backends if row[1]] == [
        ["fast", "cuda", "1 passed, 1 failed"],
        ["mujoco", "cpu", "2 passed, 1 not applicable"],
        ["", "cuda", "not shown"],
    ]
    able = " ".join(" ".join(row[3] for row in backends).split())
    assert able == "device resident host bridge, 2 fields per row, row writes, images"


@pytest.mark.parametrize("terminal", ["60", "100", "250"])
def test_the_table_is_never_wider_than_100_columns_or_the_terminal(shown, capsys, monkeypatch, terminal):
    monkeypatch.setenv("COLUMNS", terminal)
    shown.tasks = tuple(
        TaskSpec(f"a-task-with-a-long-name-{i}", "m:f", TASK.learners, summary=9 * "words and ") for i in "12"
    )
    shown.add(
        conformance("mujoco", "cpu", {**HOST, **dict.fromkeys(["snapshots", "body_reads"], True)}, a="passed")
    )
    shown.recorded = {(task.name, "mujoco", "cpu"): TaskEvidence("runs") for task in shown.tasks}
    assert main(["list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if set(line) & set("│━─")]
    assert len(lines) > 8
    assert max(map(len, lines)) <= min(100, int(terminal))


def test_list_without_tasks_says_how_to_get_some(shown, capsys):
    shown.tasks = ()
    assert main(["list"]) == 0
    assert "no tasks are installed; install unilab-tasks" in capsys.readouterr().out


def test_list_without_algorithms_names_the_extras_to_install_whole(shown, capsys):
    shown.groups["unilab.algorithms"] = []
    assert main(["list"]) == 0
    assert "algorithms: none; install 'unilab-rl[cli,rsl-rl]>=2.0,<3'" in capsys.readouterr().out


# ---------------------------------------------------------------- in a process of its own


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_listing_reads_the_evidence_and_imports_neither_torch_nor_an_engine(program, options):
    finished = program(f"""
import sys
from unilab_core.cli import main
code = main(["list", *{options!r}])
heavy = {{"torch", "numpy", "mujoco", "mujoco_warp", "warp", "rsl_rl"}} & set(sys.modules)
sys.exit(f"imported {{heavy}}" if heavy else code)
""")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "mujoco" in finished.stdout
