"""A package of a third party: its backend, task and command are found, used and listed, and none of ours is touched.

It is installed as an installer leaves it, sources and a `.dist-info` beside them, in a folder that only the processes
of these tests look into. A second package fails wherever it is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent / "plugins"
WHY = "RuntimeError: the licence server does not answer"
# Every test starts interpreters that import torch, some of them several.
pytestmark = pytest.mark.timeout(300)


def install(name: str, site: Path) -> None:
    """Puts the sources of a package into a folder, with the metadata that its pyproject.toml says."""
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())["project"]
    shutil.copytree(
        PLUGINS / name / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in head.items()))
    groups = {
        group: [f"{entry} = {target}" for entry, target in entries.items()]
        for group, entries in project["entry-points"].items()
    }
    (info / "entry_points.txt").write_text(
        "\n".join("\n".join([f"[{group}]", *lines, ""]) for group, lines in groups.items())
    )


class Installation:
    """Processes that find some plug-ins beside our own packages."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.site = folder / "site"
        self.home = folder / "home"
        self.home.mkdir()
        for name in names:
            install(name, self.site)

    def python(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the interpreter."""
        return subprocess.run(
            [sys.executable, *args],
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": str(self.site), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
            | variables,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )

    def unilab(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the command line."""
        program = "import sys; from unilab_core.cli import main; sys.exit(main())"
        return self.python("-c", program, *args, **variables)


@pytest.fixture
def springs(tmp_path: Path) -> Installation:
    """Our packages and `springs`."""
    return Installation(tmp_path, "springs")


@pytest.fixture
def broken(tmp_path: Path) -> Installation:
    """Our packages, `springs`, and a package that cannot be imported."""
    return Installation(tmp_path, "springs", "broken")


# ---------------------------------------------------------------- a package that works


def test_its_task_and_backend_are_listed_beside_ours_without_torch_or_an_engine(springs: Installation):
    program = (
        "import sys; from unilab_core.cli import main; main(['list', '--json']); "
        "print(*sorted({'torch', 'mujoco', 'springs.task', 'springs.backend'} & set(sys.modules)), file=sys.stderr)"
    )
    listed = springs.python("-c", program)
    assert (listed.returncode, listed.stderr.strip()) == (0, "")
    found = json.loads(listed.stdout)
    tasks = {task["name"]: task for task in found["tasks"]}
    assert {"cartpole-balance", "springs-settle", "velocity-flat-quadruped"} <= tasks.keys()
    assert tasks["springs-settle"]["summary"] == "Bring two masses on springs to rest"
    assert tasks["springs-settle"]["learners"] == ["ppo"]
    assert found["backends"] == ["mujoco", "mujoco_warp", "springs"]


def test_its_task_trains_and_is_measured_on_its_backend(springs: Installation):
    options = ("--backend", "springs", "--iterations", "3", "--num-envs", "8", "--seed", "1")
    trained = springs.unilab("train", "springs-settle", *options)
    assert trained.returncode == 0, trained.stderr
    assert "finished after 3 iterations, 192 env steps" in trained.stdout  # 8 rows, 8 steps, 3 iterations
    (run,) = (springs.home / "runs" / "springs-settle").iterdir()
    assert (run / "checkpoints" / "model_3.pt").is_file()
    measured = springs.unilab("eval", "latest", "--episodes", "4", "--json")
    assert measured.returncode == 0, measured.stderr
    result = json.loads(measured.stdout)
    assert 0.0 < result["policy"]["return_mean"] <= 1.0  # at most 1 per second, for one second


def test_its_task_on_another_engine_is_refused_in_one_message(springs: Installation):
    refused = springs.unilab("train", "springs-settle", "--backend", "mujoco", "--iterations", "1")
    assert refused.returncode == 2
    assert refused.stderr == (
        "Error: scene.entities.robot.spec returned Springs, expected a new mujoco.MjSpec\n"
    )


def test_one_of_our_tasks_on_its_backend_is_refused_in_one_message(springs: Installation):
    refused = springs.unilab("train", "cartpole-balance", "--backend", "springs", "--iterations", "1")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        "Error: entity 'robot': spec returns a MjSpec, backend 'springs' expects Springs"
    )


def test_its_task_is_explained_with_the_reads_of_its_own_term(springs: Installation):
    explained = springs.unilab("explain", "springs-settle", "--backend", "springs", "--json")
    assert explained.returncode == 0, explained.stderr
    (term,) = json.loads(explained.stdout)["terms"]["rewards"]
    assert (term["name"], term["func"], term["reads"]) == (
        "closeness",
        "springs.task:closeness",
        ["sensor:place"],
    )


def test_its_command_runs_and_is_in_the_list_of_commands(springs: Installation):
    shown = springs.unilab("--help")
    assert shown.returncode == 0
    (line,) = (line for line in shown.stdout.splitlines() if line.split()[:1] == ["springs"])
    assert line.split(maxsplit=1)[1] == "Shows the period of a mass of 1 kg on a spring."
    done = springs.unilab("springs", "--stiffness", "40")
    assert (done.returncode, done.stdout) == (0, "period 0.993 s\n")  # 2 pi / sqrt(40)


def test_its_backend_passes_the_conformance_suite_and_lists_the_evidence(springs: Installation):
    suite = PLUGINS / "springs" / "tests" / "springs_conformance.py"
    evidence = springs.site / "springs" / "recorded"
    done = springs.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={springs.home}", str(suite)),
        UNISIM_CONFORMANCE_EVIDENCE=str(evidence),
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert done.returncode == 0, done.stdout
    (file,) = evidence.glob("*.json")
    outcomes = [entry["outcome"] for entry in json.loads(file.read_text())["sentences"].values()]
    assert "failed" not in outcomes
    assert outcomes.count("passed") >= 40
    listed = json.loads(springs.unilab("list", "--json").stdout)
    (task,) = (task for task in listed["tasks"] if task["name"] == "springs-settle")
    on = {entry["backend"]: entry["conformance"] for entry in task["support"] if entry["device"] == "cpu"}
    assert on["springs"] == "passed"


def test_the_doctor_finds_nothing_wrong_with_its_backend_and_tries_it_with_its_task(springs: Installation):
    looked = springs.unilab("doctor", "--backend", "springs", "--device", "cpu", "--json")
    findings = {finding["name"]: finding for finding in json.loads(looked.stdout)["findings"]}
    assert looked.returncode == 0, looked.stdout
    assert findings["springs: run"] == {
        "name": "springs: run",
        "state": "note",
        "text": "it takes another kind of scene than the small one: "
        "entity 'hopper': spec returns a MjSpec, backend 'springs' expects Springs",
        "remedy": "unilab doctor TASK --backend springs tries it with a task of its own; "
        "it may add a doctor of its own, group unisim.doctors",
    }
    tried = springs.unilab("doctor", "springs-settle", "--backend", "springs", "--device", "cpu", "--json")
    assert tried.returncode == 0, tried.stdout
    (finding,) = (f for f in json.loads(tried.stdout)["findings"] if f["name"] == "springs: springs-settle")
    assert (finding["state"], finding["text"]) == (
        "ok",
        "stepped and reset 16 rows of task 'springs-settle' on cpu",
    )


# ---------------------------------------------------------------- a package that does not


def test_a_broken_package_is_named_by_the_list_which_shows_all_others(broken: Installation):
    listed = broken.unilab("list", "--json")
    assert listed.returncode == 0
    found = json.loads(listed.stdout)
    assert {"cartpole-balance", "springs-settle"} <= {task["name"] for task in found["tasks"]}
    assert "springs" in found["backends"]
    assert "Traceback" not in listed.stderr
    for group, what in (
        ("unilab.tasks", "(broken_plugin:register) cannot be loaded: {}; its tasks are left out"),
        ("unisim.evidence", "(broken_plugin:EVIDENCE) cannot be loaded: {}; its evidence is left out"),
        ("unilab.evidence", "(broken_plugin:EVIDENCE) cannot be loaded: {}; its evidence is left out"),
    ):
        line = f"{group} entry point 'broken' of broken-plugin 0.3.0 {what.format(WHY)}"
        assert listed.stderr.splitlines().count(line) == 1
    table = broken.unilab("list")
    assert table.returncode == 0
    assert "springs-settle" in table.stdout


def test_a_package_that_leaves_at_its_import_takes_no_command_down(broken: Installation):
    leaves = {"BROKEN_PLUGIN_LEAVES": "1"}
    why = "cannot be loaded: SystemExit: the licence server does not answer"
    listed = broken.unilab("list", "--json", **leaves)
    assert listed.returncode == 0, listed.stderr
    assert {"cartpole-balance", "springs-settle"} <= {
        task["name"] for task in json.loads(listed.stdout)["tasks"]
    }
    assert listed.stderr.count(why) == 3  # its tasks, and its evidence of two kinds
    shown = broken.unilab("--help", **leaves)
    assert shown.returncode == 0, shown.stderr
    assert "cannot be imported: broken-plugin raised SystemExit" in shown.stdout
    for args, code in (
        (("broken",), 1),
        (("train", "cartpole-balance", "--backend", "broken"), 2),
        (("train", "cartpole-balance", "--algo", "broken"), 2),
    ):
        failed = broken.unilab(*args, **leaves)
        assert failed.returncode == code
        assert failed.stderr.splitlines()[-1].startswith("Error: ")
        assert failed.stderr.splitlines()[-1].endswith(why)


def test_a_broken_command_is_marked_in_the_list_of_commands_and_says_why_when_called(broken: Installation):
    shown = broken.unilab("--help")
    assert shown.returncode == 0, shown.stderr
    lines = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in shown.stdout.splitlines() if line[:2] == "  "
    }
    assert lines["broken"] == "cannot be imported: broken-plugin raised RuntimeError"
    assert {"springs", "list", "train"} <= lines.keys()
    for args in (["broken"], ["broken", "--any", "option"], ["broken", "--help"]):
        called = broken.unilab(*args)
        assert called.returncode == 1
        assert called.stdout == ""
        assert called.stderr == (
            "Error: unilab.commands entry point 'broken' of broken-plugin 0.3.0 (broken_plugin:command) "
            f"cannot be loaded: {WHY}\n"
        )
    assert "licence server does not answer" in broken.unilab("broken", "--debug").stderr.split("Traceback")[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("train", "cartpole-balance", "--backend", "broken"),
            "backend 'broken': unisim.backends entry point 'broken' of broken-plugin 0.3.0 "
            f"(broken_plugin:create_backend) cannot be loaded: {WHY}",
        ),
        (
            ("train", "cartpole-balance", "--algo", "broken"),
            "algorithm 'broken': unilab.algorithms entry point 'broken' of broken-plugin 0.3.0 "
            f"(broken_plugin:ALGORITHM) cannot be loaded: {WHY}",
        ),
        (
            ("train", "broken-walk"),
            "; unilab.tasks entry point 'broken' of broken-plugin 0.3.0 (broken_plugin:register) cannot be loaded: "
            f"{WHY}",
        ),
    ],
)
def test_asking_for_something_of_a_broken_package_is_one_message(
    broken: Installation, args: tuple[str, ...], message: str
):
    failed = broken.unilab(*args)
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].startswith("Error: ")
    assert failed.stderr.splitlines()[-1].endswith(message)
    assert "Traceback" not in failed.stderr
    assert list(broken.home.iterdir()) == []


def test_other_commands_work_beside_a_broken_package(broken: Installation):
    trained = broken.unilab(
        *("train", "springs-settle", "--backend", "springs", "--iterations", "1", "--num-envs", "8")
    )
    assert trained.returncode == 0, trained.stderr
    assert "finished after 1 iterations" in trained.stdout
    assert broken.unilab("springs").stdout == "period 0.993 s\n"
    assert broken.unilab("explain", "cartpole-balance", "--json").returncode == 0
