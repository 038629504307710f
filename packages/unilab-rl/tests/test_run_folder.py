"""A run folder appears whole, under a free name, and is found again."""

import json
import threading
from datetime import datetime
from pathlib import Path

import pytest
from rl_support import ScriptedEnv, run_config, small_ppo

from unilab_core import ConfigError
from unilab_rl import (
    BudgetCfg,
    Iteration,
    RunConfig,
    RunFolder,
    RunFolderError,
    create_run_folder,
    resolve_run,
)
from unilab_rl.manifest import make_manifest
from unilab_rl.metrics_log import MetricsLog, set_aside_after
from unilab_rl.run_folder import check_writable, find_runs

NOW = datetime(2026, 3, 4, 5, 6, 7)


def create(root, now=NOW, **changes):
    return create_run_folder(root, run_config(**changes), {"schema_version": 1}, now=now)


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_the_folder_is_named_by_task_time_algorithm_and_seed_and_holds_every_part(tmp_path):
    folder = create(tmp_path)
    assert folder.path == tmp_path / "scripted" / "20260304-050607-counting-s7"
    assert names(folder.path) == ["checkpoints", "config.yaml", "manifest.json", "metrics.jsonl", "videos"]
    assert [path.name for path in (tmp_path / "scripted").iterdir()] == [folder.path.name]


def test_runs_of_the_same_second_get_rising_numbers(tmp_path):
    made = [create(tmp_path).path.name for _ in range(3)]
    assert made == [
        "20260304-050607-counting-s7",
        "20260304-050607-counting-s7-2",
        "20260304-050607-counting-s7-3",
    ]


def test_runs_started_at_the_same_moment_never_share_a_folder(tmp_path):
    barrier = threading.Barrier(8)
    made = []

    def start():
        barrier.wait()
        made.append(create(tmp_path).path)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8
    assert all((path / "config.yaml").is_file() for path in made)


def test_a_place_that_cannot_be_written_is_an_error_with_the_remedy_and_leaves_nothing(tmp_path):
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "runs"
    for attempt in (lambda: check_writable(root), lambda: create(root)):
        with pytest.raises(
            RunFolderError, match=r"cannot make a run folder below .*file.*choose another .*--runs DIR"
        ):
            attempt()
    assert names(tmp_path) == ["file"]


def test_a_write_that_fails_half_way_removes_what_it_had_made(tmp_path, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_manifest", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        create(tmp_path / "new" / "runs")
    assert names(tmp_path) == []


def test_a_place_without_permission_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda place, _mode: place != tmp_path)
    with pytest.raises(RunFolderError, match=f"no permission to write in {tmp_path}; choose another place"):
        check_writable(tmp_path / "a" / "b")


@pytest.mark.parametrize("part", ["metrics.jsonl", "checkpoints/model_1.pt"])
def test_a_folder_that_holds_results_is_not_discarded(tmp_path, part):
    folder = create(tmp_path)
    (folder.path / part).write_text("{}\n")
    assert not folder.discard_unused()
    assert folder.config_path.is_file()
    (folder.path / part).write_text("")
    assert folder.discard_unused() is (part == "metrics.jsonl")


def test_a_writable_place_passes_the_check_without_being_made(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert names(tmp_path) == []


def test_latest_is_the_newest_run_over_all_tasks(tmp_path):
    create(tmp_path, now=datetime(2026, 1, 1))
    newest = create(tmp_path, now=datetime(2026, 1, 3), task="another")
    create(tmp_path, now=datetime(2026, 1, 2))
    assert resolve_run("latest", tmp_path) == (newest, None)
    tenth = [create(tmp_path, now=datetime(2026, 1, 4)) for _ in range(10)][-1]
    assert tenth.path.name.endswith("-10")
    assert resolve_run("latest", tmp_path)[0] == tenth


def test_a_run_is_found_by_its_folder_and_by_one_of_its_checkpoints(tmp_path):
    folder = create(tmp_path)
    path = folder.checkpoints / "model_3.pt"
    path.touch()
    assert resolve_run(str(folder.path), tmp_path) == (folder, None)
    assert resolve_run(str(path), tmp_path) == (folder, path)


def test_a_run_that_does_not_exist_is_an_error_that_names_the_nearest(tmp_path):
    with pytest.raises(RunFolderError, match=r"no runs below .* yet; make one with: unilab train TASK"):
        resolve_run("latest", tmp_path)
    folder = create(tmp_path)
    with pytest.raises(RunFolderError, match=f"no run .*; did you mean '{folder.path}'"):
        resolve_run(str(folder.path)[:-1], tmp_path)
    with pytest.raises(RunFolderError, match="is not a run: a run is a folder with config.yaml"):
        resolve_run(str(tmp_path), tmp_path)


def test_unfinished_and_foreign_folders_are_no_runs(tmp_path):
    for name in (".0123.tmp", "notes", "20260304-050607-ppo"):
        (tmp_path / "scripted" / name).mkdir(parents=True)
        (tmp_path / "scripted" / name / "config.yaml").touch()
    assert find_runs(tmp_path) == []


def test_the_config_is_complete_and_reads_back_equal(tmp_path):
    config = run_config(learner=small_ppo(learning_rate=3e-4), algorithm="ppo")
    folder = create_run_folder(tmp_path, config, {}, now=NOW)
    assert folder.config() == config
    assert type(folder.config().learner) is type(config.learner)
    text = folder.config_path.read_text()
    assert "learning_rate: 0.0003" in text
    assert "steps: 5" in text


def test_a_renamed_key_in_the_config_is_an_error_that_names_the_file_and_the_nearest(tmp_path):
    folder = create(tmp_path)
    folder.config_path.write_text(
        folder.config_path.read_text().replace("num_envs: 4\nseed", "num_env: 4\nseed")
    )
    with pytest.raises(
        ConfigError, match=r"config.yaml: RunConfig: num_env: unknown key 'num_env'.*num_envs"
    ):
        folder.config()


def test_config_keys_are_those_that_other_tools_read():
    assert [key for key in run_config().to_data() if key != "_target_"] == [
        *("task", "algorithm", "backend", "device", "num_envs", "seed", "budget", "env", "learner")
    ]


def test_manifest_keys_are_those_that_other_tools_read():
    manifest = make_manifest(run_config(), ScriptedEnv(), overrides=("gain=2.0",), now=NOW)
    assert list(manifest) == [
        *(
            "schema_version",
            "created",
            "task",
            "algorithm",
            "backend",
            "device",
            "device_name",
            "num_envs",
            "seed",
        ),
        *("overrides", "versions", "platform", "threads", "capabilities", "config_hash", "resumes"),
    ]
    assert (manifest["schema_version"], manifest["created"]) == (1, "2026-03-04T05:06:07")
    assert manifest["overrides"] == ["gain=2.0"]
    assert manifest["capabilities"] == {"execution": "scripted"}
    assert {"python", "torch", "unilab-rl", "unilab-core", "unisim", "mujoco"} <= set(manifest["versions"])
    assert manifest["config_hash"] == run_config().digest()
    json.dumps(manifest, allow_nan=False)


def test_the_config_hash_changes_with_any_setting():
    assert run_config().digest() == run_config().digest()
    assert run_config(seed=8).digest() != run_config().digest()


def test_metrics_keys_are_those_that_other_tools_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        done = Iteration(24, 0.25, 0.5, {"Loss/value": 1.5, "Metrics/odd": float("nan")})
        log.append(done, iteration=3, env_steps=96, elapsed_s=2.0, resumed=None)
    assert json.loads(path.read_text()) == {
        "iteration": 3,
        "env_steps": 96,
        "elapsed_s": 2.0,
        "collect_s": 0.25,
        "learn_s": 0.5,
        "resumed": None,
        "metrics": {"Loss/value": 1.5, "Metrics/odd": None},
    }


def test_lines_after_the_resumed_iteration_are_set_aside_a_cut_one_too(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1}\n{"iteration": 2}\n{"iteration": 3}\n{"iterat')
    assert set_aside_after(path, 2) == 2
    assert path.read_text() == '{"iteration": 1}\n{"iteration": 2}\n'
    assert Path(f"{path}.superseded").read_text() == '{"iteration": 3}\n{"iterat\n'
    assert set_aside_after(path, 2) == 0


@pytest.mark.parametrize("given", [{}, {"iterations": 1, "steps": 2}, {"minutes": 1.0, "steps": 2}])
def test_a_budget_is_exactly_one_of_three(given):
    with pytest.raises(ConfigError, match="expected exactly one of iterations, steps, minutes"):
        BudgetCfg(**given)


def test_a_budget_is_used_by_iterations_by_steps_or_by_time():
    assert BudgetCfg(iterations=4).fraction(1, 999, 999.0) == 0.25
    assert BudgetCfg(steps=100).fraction(9, 150, 999.0) == 1.5
    assert BudgetCfg(minutes=2.0).fraction(9, 999, 30.0) == 0.25
    assert str(BudgetCfg(steps=1_500_000)) == "1,500,000 steps"


def test_a_config_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ConfigError, match=r"config.yaml: cannot be read"):
        RunConfig.read(tmp_path / "config.yaml")
