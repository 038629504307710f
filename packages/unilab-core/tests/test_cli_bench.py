"""`unilab bench` on the command line: options, files, bad input, exit codes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from unilab_core import CapabilityError, NonFiniteError, TaskSpec, register_task, registry
from unilab_core.benching import bench, parts
from unilab_core.benching.bench import BenchCfg
from unilab_core.benching.pairs import NotTheSameWorkError
from unilab_core.cli import bench as command_module
from unilab_core.cli import dispatcher, main

TINY = ("pushed", "--num-envs", "2", "--pairs", "6", "--steps", "1", "--warmup", "0", "--learner", "none")


@pytest.fixture(autouse=True)
def _task(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    monkeypatch.setattr(parts, "entry_points", lambda group: [])
    entry = SimpleNamespace(name="bench", load=lambda: command_module.command)
    monkeypatch.setattr(dispatcher, "entry_points", lambda group: [entry])
    register_task(TaskSpec("pushed", "bench_support:pushed_task"))


@pytest.fixture
def asked(monkeypatch):
    """What the measurement is asked for; it is not made."""
    seen: list[BenchCfg] = []

    def fails(cfg, watch):
        seen.append(cfg)
        raise NotTheSameWorkError("window 3: elsewhere")

    monkeypatch.setattr(bench, "run_bench", fails)
    return seen


def test_a_table_is_printed_and_the_data_are_written_to_a_file(capsys, tmp_path):
    assert main(["bench", *TINY, "--output", "found.json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("pushed on mujoco, cpu: 6 pairs of windows")
    assert err == ""
    assert json.loads((tmp_path / "found.json").read_text())["rows"][0]["num_envs"] == 2


def test_json_is_one_object_on_stdout_and_a_warning_goes_to_stderr(capsys, monkeypatch):
    monkeypatch.setattr("unilab_core.benching.load.BUSY", -1.0)
    assert main(["bench", *TINY, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["task"] == "pushed"
    assert err.startswith("WARNING: ")


def test_options_say_what_is_measured(asked):
    options = (
        *("--num-envs", "8, 4,8", "--pairs", "7", "--steps", "5", "--warmup", "9", "--backend", "other"),
        *("--device", "cuda", "--threads", "0", "--action-std", "0.25", "--learner", "ppo", "--seed", "3"),
        *("--set", "a=1", "--set", "learner.b=2"),
    )
    assert main(["bench", "pushed", *options]) == 1
    assert asked == [
        BenchCfg(
            task="pushed",
            num_envs=(8, 4),
            backend="other",
            device="cuda",
            threads=0,
            pairs=7,
            steps=5,
            warmup=9,
            action_std=0.25,
            learner="ppo",
            overrides=("a=1", "learner.b=2"),
            seed=3,
        )
    ]


def test_what_is_not_asked_for_is_as_documented(asked):
    main(["bench", "pushed"])
    assert asked == [BenchCfg(task="pushed")]
    cfg = asked[0]
    assert (cfg.num_envs, cfg.pairs, cfg.threads, cfg.learner) == ((64, 512, 2048), 30, None, None)
    assert [cfg.window(n) for n in (1, 64, 512, 2048)] == [4096, 64, 8, 5]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--num-envs", "64,"), "got '64,', expected positive whole numbers with commas between them"),
        (("--num-envs", "0"), "expected positive whole numbers"),
        (("--num-envs", "many"), "expected positive whole numbers"),
        (("--pairs", "5"), "5 is not in the range x>=6"),
        (("--steps", "0"), "0 is not in the range x>=1"),
        (("--action-std", "-1"), "-1.0 is not in the range x>=0"),
        (("--action-std", "inf"), "action_std: Input should be a finite number (got inf)"),
        (("--action-std", "nan"), "action_std: Input should be a finite number (got nan)"),
        (("--set", "num_envs=2"), "--num-envs says the numbers of rows; leave --set num_envs out"),
        (("--threads", "1", "--set", "sim.num_threads=2"), "both say the threads of the engine"),
        (("--learner", "none", "--set", "learner.foo=1"), "no learner is measured"),
        (("--output", "nowhere/found.json"), "--output nowhere/found.json: there is no folder 'nowhere'"),
        (("--output", "."), "is a directory"),
    ],
)
def test_bad_options_are_one_message(options, text, capsys, asked):
    assert main(["bench", "pushed", *options]) == 2
    out, err = capsys.readouterr()
    assert text in " ".join(err.split())
    assert (out, asked) == ("", [])


def test_a_file_that_may_not_be_written_is_refused_before_anything_is_measured(capsys, asked, monkeypatch):
    monkeypatch.setattr(command_module.os, "access", lambda path, mode: False)
    assert main(["bench", "pushed", "--output", "found.json"]) == 2
    assert "--output found.json: it cannot be written to; name another file" in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pusht", *TINY[1:]), "unknown task 'pusht'; did you mean 'pushed'?"),
        ((*TINY, "--backend", "mujco"), "unknown backend 'mujco'; did you mean 'mujoco'"),
        ((*TINY, "--set", "decimatio=3"), "decimatio"),
        ((*TINY[:-1], "ppo"), "--learner ppo: no installed package measures learners"),
    ],
)
def test_what_does_not_exist_is_named_and_costs_no_file(arguments, text, capsys, tmp_path):
    assert main(["bench", *arguments, "--output", "found.json"]) == 2
    out, err = capsys.readouterr()
    assert text in err
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [NotTheSameWorkError("window 3: elsewhere"), NonFiniteError("obs of row 2")]
)
def test_a_measurement_that_fails_is_one_message_and_exit_code_1(error, capsys, monkeypatch, tmp_path):
    def fails(cfg, watch):
        raise error

    monkeypatch.setattr(bench, "run_bench", fails)
    assert main(["bench", "pushed", "--output", "found.json"]) == 1
    assert capsys.readouterr().err == f"Error: {error}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NotTheSameWorkError("elsewhere"), 1, "Error: 4 envs: elsewhere"),
        (CapabilityError("too many rows"), 2, "Error: too many rows"),
    ],
)
def test_a_later_failure_shows_what_was_measured_and_then_the_error(
    error, code, message, capsys, monkeypatch, tmp_path
):
    measured = bench.measure_pairs

    def fails(env, *arguments, **options):
        if env.num_envs == 4:
            raise error
        return measured(env, *arguments, **options)

    monkeypatch.setattr(bench, "measure_pairs", fails)
    options = ("pushed", "--num-envs", "2,4", *TINY[3:], "--output", "found.json")
    assert main(["bench", *options]) == code
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"STOPPED at 4 envs: {error}"
    assert err.strip() == message
    assert [row["num_envs"] for row in json.loads((tmp_path / "found.json").read_text())["rows"]] == [2]


def test_a_file_that_can_no_longer_be_written_costs_no_table(capsys, monkeypatch, tmp_path):
    def fails(self, text, encoding):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command_module.Path, "write_text", fails)
    assert main(["bench", *TINY, "--output", "found.json"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("pushed on mujoco, cpu: 6 pairs of windows")
    assert err == "Error: --output found.json: No space left on device\n"


def test_help_has_an_example_and_imports_no_torch(program):
    finished = program(
        "import sys\n"
        "import unilab_core.cli.bench\n"
        "assert not {'torch', 'mujoco', 'rich'} & set(sys.modules), 'too much'\n"
    )
    assert (finished.returncode, finished.stderr) == (0, "")


def test_help_names_an_example(capsys):
    assert main(["bench", "--help"]) == 0
    assert "unilab bench cartpole-balance" in capsys.readouterr().out
