"""`unilab doctor`: findings of every backend, what is compiled, exit codes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from unilab_core import registry
from unilab_core.cli import doctor, main
from unilab_core.cli.doctor import Asked, examine
from unisim.doctor import Finding
from unisim.import_strings import import_object

SUPPORT = str(Path(__file__).parent / "support")
BACKENDS = {  # name: what creates it, its doctor or none
    "plain": ("create", None),
    "healthy": ("create", "HealthyDoctor"),
    "absent": ("create_incapable", "MissingDoctor"),
    "incapable": ("create_incapable", None),
    "deceived": ("create_incapable", "HealthyDoctor"),
    "crashing": ("create_crashing", "CrashingDoctor"),
    "unmade": ("create", "UnmadeDoctor"),
    "kernels": ("create", "KernelDoctor"),
    "silent": ("create", "SilentDoctor"),
    "foreign": ("create_foreign", None),
    "declared_foreign": ("create_foreign", "ForeignDoctor"),
    "refusing": ("create_foreign", "HealthyDoctor"),
    "leaving": ("create", "LeavingDoctor"),
}


@pytest.fixture(autouse=True)
def _installed(monkeypatch, tmp_path):
    """A distribution with backends, doctors and a task is installed, here and in the processes of the checks."""
    site = tmp_path / "site"
    info = site / "doctor_support-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doctor-support\nVersion: 1.0\n")
    creators = [f"{name} = doctor_support:{create}" for name, (create, _) in BACKENDS.items()]
    doctors = [f"{name} = doctor_support:{made}" for name, (_, made) in BACKENDS.items() if made]
    lines = ["[unisim.backends]", *creators, "[unisim.doctors]", *doctors]
    lines += ["[unilab.tasks]", "doctor-support = doctor_support:register"]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), SUPPORT]))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("KERNELS_OF_TESTS", str(tmp_path / "kernels"))
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    monkeypatch.delenv("UNILAB_COMMAND", raising=False)


class _Here:
    """Makes checks in this process, where starting one for each would only cost time."""

    def __init__(self, *, show_output=False):
        self.shown = show_output

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def check(self, name, function, *, timeout_s, **arguments):
        return replace(import_object(function)(**arguments), name=name)


@pytest.fixture
def _backends_only(monkeypatch):
    """Leaves out what concerns no backend."""
    monkeypatch.setattr(doctor, "check_python", lambda: Finding("Python", "ok", "3"))
    monkeypatch.setattr(doctor, "check_layers", lambda: [])
    monkeypatch.setattr(doctor, "_TORCH_CHECKS", ())


@pytest.fixture
def _here(monkeypatch, _backends_only):
    """Looks at backends only, and in this process."""
    monkeypatch.syspath_prepend(SUPPORT)
    monkeypatch.setattr(doctor, "Worker", _Here)


def found(*backends: str, **asked) -> list[tuple[str, str, str, str]]:
    """What is found of some backends on the CPU with two rows."""
    asked = {"device": "cpu", "num_envs": 2, **asked}
    return [
        (finding.name, finding.state, finding.text, finding.remedy)
        for finding in examine(Asked(backends=backends, **asked))
    ][0 if asked.get("warm") else 1 :]


# ---------------------------------------------------------------- backends


@pytest.mark.usefixtures("_here")
def test_a_backend_is_tried_with_a_small_scene_after_its_own_checks():
    run = "stepped and reset 2 rows of a small scene on cpu"
    assert found("plain") == [("plain: run", "ok", run, "")]
    assert found("healthy") == [
        ("healthy: engine", "ok", "Engine 3", ""),
        ("healthy: screen", "note", "dim", "dust"),
        ("healthy: run", "ok", run, ""),
    ]


@pytest.mark.usefixtures("_here")
def test_a_backend_without_its_engine_is_not_looked_at_further():
    assert found("absent") == [("absent: engine", "missing", "no Engine", "pip install engine")]


@pytest.mark.usefixtures("_here")
def test_a_backend_that_cannot_run_is_missing_or_broken_as_its_doctor_finds_the_engine():
    text = "a small scene on cpu: backend 'incapable' needs Engine X: pip install x"
    assert found("incapable") == [("incapable: run", "missing", text, "")]
    assert found("deceived")[-1] == ("deceived: run", "broken", text, "")


@pytest.mark.usefixtures("_here")
def test_a_backend_that_takes_another_kind_of_scene_is_not_broken_and_is_tried_with_a_task():
    text = "it takes another kind of scene than the small one"
    tries = "unilab doctor TASK --backend {} tries it with a task of its own"
    remedy = f"{tries.format('foreign')}; it may add a doctor of its own, group unisim.doctors"
    refused = f"{text}: entity 'hopper': expected Springs"
    assert found("foreign") == [("foreign: run", "note", refused, remedy)]
    name = "declared_foreign"
    assert found(name)[-1] == (f"{name}: run", "note", text, tries.format(name))
    done = "stepped and reset 2 rows of task 'scripted-task' on cpu"
    for backend in ("foreign", name):
        tried = found(backend, tasks=("scripted-task",))[-1]
        assert tried == (f"{backend}: scripted-task", "ok", done, "")


@pytest.mark.usefixtures("_backends_only")
def test_a_small_scene_that_is_refused_where_its_doctor_lays_claim_to_it_is_broken():
    text = "ConfigError: entity 'hopper': expected Springs"
    assert found("refusing")[-1] == ("refusing: run", "broken", text, "")


@pytest.mark.usefixtures("_here")
def test_a_doctor_that_leaves_when_it_is_made_is_a_finding():
    text = "SystemExit: no licence"
    assert found("leaving", "plain")[0] == ("leaving: doctor", "broken", text, "")
    assert found("leaving", "plain")[1][:2] == ("plain: run", "ok")


@pytest.mark.usefixtures("_backends_only")
def test_crashes_are_findings_and_everything_else_is_still_looked_at():
    words = "its process ended with SIGABRT: last words of a library"
    crashed = found("crashing", "unmade", "plain")
    assert crashed[0] == ("crashing: engine", "ok", "Engine 3", "")
    assert crashed[1] == ("crashing: GL", "broken", words, "")
    assert crashed[2][:2] == ("crashing: after", "ok")
    assert crashed[3] == ("crashing: run", "broken", words, "")
    assert crashed[4] == ("unmade: doctor", "broken", "OSError: no licence", "")
    assert crashed[5][:2] == ("plain: run", "ok")


@pytest.mark.usefixtures("_here")
def test_a_task_is_tried_in_place_of_the_small_scene():
    text = "stepped and reset 2 rows of task 'scripted-task' on cpu"
    assert found("plain", tasks=("scripted-task",)) == [("plain: scripted-task", "ok", text, "")]


def test_nothing_installed_says_what_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "list_backends", lambda: ())
    text, remedy = "none is installed", "pip install 'unisim[mujoco]>=2.0'"
    assert list(examine(Asked(warm=True))) == [Finding("backends", "missing", text, remedy)]


# ---------------------------------------------------------------- kernels


@pytest.mark.usefixtures("_here")
def test_a_cold_cache_is_found_cold_and_nothing_is_compiled(tmp_path):
    remedy = "unilab doctor --warm --backend kernels --device cpu compiles them once, which may take a minute or more"
    text = "kernels for a small scene on cpu are not in the cache, a_kernel for one"
    assert found("kernels")[-1] == ("kernels: run", "note", text, remedy)
    assert not (tmp_path / "kernels").exists()


@pytest.mark.usefixtures("_here")
def test_a_warm_cache_is_found_warm(tmp_path):
    (tmp_path / "kernels").write_text("machine code")
    text = "stepped and reset 2 rows of a small scene on cpu; 1 kernel modules from the cache"
    assert found("kernels")[-1] == ("kernels: run", "ok", text, "")


@pytest.mark.usefixtures("_backends_only")
def test_warming_compiles_in_a_process_that_shows_its_progress(capfd, tmp_path):
    text = "stepped and reset 2 rows of a small scene on cpu; 0 kernel modules from the cache, 1 compiled in 61 s"
    assert found("kernels", warm=True)[-1] == ("kernels: run", "ok", text, "")
    assert (tmp_path / "kernels").exists()
    assert "backend 'kernels', a small scene: module 1 compiled\n" in capfd.readouterr().err


@pytest.mark.usefixtures("_here")
def test_the_command_that_warms_is_as_it_was_typed(monkeypatch):
    monkeypatch.setenv("UNILAB_COMMAND", "uv run unilab")
    remedy = found("kernels", tasks=("scripted-task",), device=None)[-1][-1]
    assert remedy.startswith("uv run unilab doctor --warm scripted-task --backend kernels compiles them")


@pytest.mark.usefixtures("_here")
def test_a_watch_that_saw_nothing_does_not_call_the_cache_warm():
    name, state, text, _ = found("silent")[-1]
    assert (name, state) == ("silent: run", "note")
    assert text.endswith("; no kernel was seen being loaded, so that nothing can be said of the cache")


def test_warming_leaves_out_backends_that_compile_nothing_unless_asked_for_by_name(monkeypatch):
    assert found("healthy", warm=True) == [("healthy: run", "note", "this backend compiles no kernels", "")]
    monkeypatch.setattr(doctor, "list_backends", lambda: ("healthy", "plain"))
    assert found(warm=True) == []


# ---------------------------------------------------------------- the command


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("backend", "code"),
    [
        ("plain", 0),
        ("kernels", 0),  # cold kernels are no failure
        ("foreign", 0),
        ("absent", 1),  # missing, and asked for
        ("deceived", 1),
        ("unmade", 1),
    ],
)
def test_the_exit_code_says_whether_something_is_broken(backend, code, capfd):
    assert main(["doctor", "--backend", backend, "--device", "cpu", "--json"]) == code
    assert json.loads(capfd.readouterr().out)["ok"] is (code == 0)


@pytest.mark.usefixtures("_here")
def test_what_is_missing_and_was_not_asked_for_is_no_failure(monkeypatch, capfd):
    monkeypatch.setattr(doctor, "list_backends", lambda: ("absent",))
    assert main(["doctor"]) == 0
    out = capfd.readouterr().out
    assert "absent: engine" in out
    assert out.endswith("What can be done:\n  absent: engine: pip install engine\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "plan"], "Error: unknown backend 'plan'; did you mean 'plain'?\n"),
        (["scripted-tusk"], "Error: unknown task 'scripted-tusk'; did you mean 'scripted-task'?"),
        (["--device", "mps"], "Error: --device 'mps'; expected 'cpu', 'cuda' or 'cuda:<index>'\n"),
        (["--timeout", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_bad_input_is_one_message_before_anything_is_looked_at(arguments, message, capfd, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda asked: pytest.fail("looked"))
    assert main(["doctor", *arguments]) == 2
    captured = capfd.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_this_machine_as_json_has_exactly_the_documented_keys(monkeypatch, capfd):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    main(["doctor", "--backend", "mujoco", "--device", "cpu", "--json"])
    report = json.loads(capfd.readouterr().out)
    assert list(report) == ["ok", "findings"]
    assert all(list(finding) == ["name", "state", "text", "remedy"] for finding in report["findings"])
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    layers = ["unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks"]
    last = ["mujoco: engine", "mujoco: GL", "mujoco: run"]
    assert list(states) == ["Python", *layers, "torch", "CUDA", "threads", *last]
    assert (states["Python"], states["torch"]) == ("ok", "ok")
    assert (states["mujoco: engine"], states["mujoco: run"]) == ("ok", "ok")
