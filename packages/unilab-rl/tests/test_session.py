"""A whole run from a task's name, and its continuation."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rl_support import COUNTING, ScriptedEnv

from unilab_core import CapabilityError, ConfigError, UnknownNameError
from unilab_rl import (
    BudgetCfg,
    CheckpointError,
    RunFolder,
    RunFolderError,
    TrainRequest,
    Watcher,
    list_checkpoints,
    load_checkpoint,
    resume,
    save_checkpoint,
    train,
)


@pytest.fixture(autouse=True)
def _fresh():
    COUNTING.made.clear()


def request(tmp_path, **changes):
    values = {"task": "scripted", "backend": "scripted", "seed": 7, "runs": tmp_path / "runs"}
    return TrainRequest(**(values | changes))


def start(tmp_path, **changes):
    outcome = train(request(tmp_path, **changes))
    return outcome, RunFolder(outcome.checkpoint.parent.parent)


def lines(folder):
    return [json.loads(line) for line in folder.metrics_path.read_text().splitlines()]


def everything_below(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


def test_a_run_leaves_its_config_metrics_manifest_and_last_checkpoint(tmp_path):
    outcome, folder = start(tmp_path, num_envs=2, overrides=("gain=2.0", "learner.rate=0.5"))
    assert (outcome.status, outcome.iteration, outcome.env_steps) == ("finished", 3, 12)
    assert folder.path.parent == tmp_path / "runs" / "scripted"
    assert folder.path.name.endswith("-counting-s7")
    config = folder.config()
    assert (config.num_envs, config.env.num_envs, config.env.gain, config.learner.rate) == (2, 2, 2.0, 0.5)
    assert config.budget == BudgetCfg(iterations=3)
    assert folder.manifest()["overrides"] == ["gain=2.0", "learner.rate=0.5"]
    assert folder.manifest()["config_hash"] == config.digest()
    assert [line["iteration"] for line in lines(folder)] == [1, 2, 3]
    assert load_checkpoint(outcome.checkpoint).learner["weight"].tolist() == [1.5, 1.5]


def test_the_environment_is_closed_once_after_success_and_after_failure(tmp_path):
    start(tmp_path)
    with pytest.raises(ValueError, match="boom"):
        start(tmp_path, overrides=("fail_at=3",))
    assert [learner.env.num_closes for learner in COUNTING.made] == [1, 1]


def test_the_environment_is_closed_when_the_learner_cannot_be_built(tmp_path, monkeypatch):
    made = []

    def fail(env, cfg, *, seed, factory):
        made.append(env)
        raise ConfigError("no such learner")

    monkeypatch.setattr(COUNTING, "make_learner", fail)
    with pytest.raises(ConfigError):
        start(tmp_path)
    assert made[0].num_closes == 1
    assert everything_below(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"task": "scriptd"}, UnknownNameError, "did you mean 'scripted'"),
        ({"algorithm": "countin"}, ConfigError, "unknown algorithm 'countin'; did you mean 'counting'"),
        ({"backend": "mujocoo"}, CapabilityError, "unknown backend 'mujocoo'"),
        ({"overrides": ("gian=1.0",)}, ConfigError, "unknown key 'gian'; did you mean 'gain'"),
        (
            {"overrides": ("learner.raet=1.0",)},
            ConfigError,
            r"--set learner.PATH.*'raet'; did you mean 'rate'",
        ),
        ({"overrides": ("learner.rate=lots",)}, ConfigError, r"--set learner.PATH.*rate"),
    ],
    ids=["task", "algorithm", "backend", "env override", "learner override", "learner value"],
)
def test_bad_input_is_an_error_with_the_nearest_name_and_leaves_no_file(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        start(tmp_path, **changes)
    assert everything_below(tmp_path) == []


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_built(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(RunFolderError, match="choose another place with --runs DIR"):
        start(tmp_path)
    assert COUNTING.made == []
    assert everything_below(tmp_path) == ["runs"]


def test_a_task_without_settings_for_the_algorithm_says_which_it_has(tmp_path):
    from unilab_core import TaskSpec, register_task

    register_task(
        TaskSpec(name="ppo-only", env_cfg="rl_support:scripted_cfg", learners={"ppo": "rl_support:ppo_cfg"})
    )
    with pytest.raises(
        ConfigError, match=r"task 'ppo-only' has no settings for the algorithm 'counting'; .*'ppo'"
    ):
        start(tmp_path, task="ppo-only", algorithm="counting")


def test_a_preset_of_the_wrong_type_is_a_config_error_that_names_it(tmp_path):
    from unilab_core import TaskSpec, register_task

    learners = {"counting": "rl_support:ppo_cfg"}
    register_task(TaskSpec(name="mixed-up", env_cfg="rl_support:scripted_cfg", learners=learners))
    with pytest.raises(ConfigError, match="'rl_support:ppo_cfg' returned a PpoCfg, expected a CountingCfg"):
        start(tmp_path, task="mixed-up", algorithm="counting")


def test_a_resumed_run_continues_at_the_next_iteration_in_the_same_folder_and_is_labelled_warm(tmp_path):
    _, folder = start(tmp_path)
    second = resume(folder, budget=BudgetCfg(iterations=5))
    assert (second.status, second.iteration, second.env_steps) == ("finished", 5, 40)
    assert [(line["iteration"], line["env_steps"], line["resumed"]) for line in lines(folder)] == [
        *((1, 8, None), (2, 16, None), (3, 24, None)),
        *((4, 32, "warm"), (5, 40, None)),
    ]
    assert load_checkpoint(second.checkpoint).learner["weight"].tolist() == [5.0, 5.0]
    (entry,) = folder.manifest()["resumes"]
    assert (entry["kind"], entry["iteration"], entry["env_steps"], entry["budget"]) == (
        "warm",
        3,
        24,
        "5 iterations",
    )


def test_qa_084_the_step_counter_that_curricula_follow_continues_before_the_first_reset(
    tmp_path, monkeypatch
):
    _, folder = start(tmp_path)
    seen = []
    reset = ScriptedEnv.reset
    monkeypatch.setattr(
        ScriptedEnv,
        "reset",
        lambda env, *args, **kw: seen.append(env.step_counter) or reset(env, *args, **kw),
    )
    outcome = resume(folder, budget=BudgetCfg(iterations=4))
    assert seen[0] == 6  # three iterations of two steps
    assert load_checkpoint(outcome.checkpoint).env_training_state == {"version": 1, "step_counter": 8}


def test_a_resumed_run_does_not_draw_the_first_episodes_again(tmp_path):
    _, folder = start(tmp_path)
    resume(folder, budget=BudgetCfg(iterations=4))
    assert [learner.env.seeds[0] for learner in COUNTING.made] == [7, 10]
    assert [learner.seed for learner in COUNTING.made] == [7, 7]


def test_the_budget_of_a_finished_run_has_to_be_raised(tmp_path):
    _, folder = start(tmp_path)
    for budget in (None, BudgetCfg(iterations=2), BudgetCfg(steps=24)):
        with pytest.raises(
            ConfigError, match=r"has done 3 iterations and 24 steps.*raise it with --iterations"
        ):
            resume(folder, budget=budget)
    assert folder.manifest()["resumes"] == []


def test_resuming_from_an_older_checkpoint_sets_aside_what_came_after_it(tmp_path):
    _, folder = start(tmp_path)
    outcome = resume(folder, folder.checkpoints / "model_2.pt", budget=BudgetCfg(iterations=3))
    assert outcome.iteration == 3
    assert [line["iteration"] for line in lines(folder)] == [1, 2, 3]
    assert lines(folder)[2]["resumed"] == "warm"
    assert [path.name for path in list_checkpoints(folder.checkpoints)] == ["model_2.pt", "model_3.pt"]
    assert (folder.checkpoints / "model_3.pt.superseded").is_file()
    assert json.loads(Path(f"{folder.metrics_path}.superseded").read_text())["iteration"] == 3


def test_qa_086_a_damaged_latest_checkpoint_is_passed_over_with_a_warning_unless_it_was_named(
    tmp_path, caplog
):
    _, folder = start(tmp_path)
    damaged, good = folder.checkpoints / "model_3.pt", folder.checkpoints / "model_2.pt"
    damaged.write_bytes(b"")
    before = folder.metrics_path.read_text(), folder.manifest()
    with pytest.raises(CheckpointError, match=r"model_3.pt: the file is empty; use the older (.*model_2.pt)"):
        resume(folder, damaged, budget=BudgetCfg(iterations=5))
    assert (folder.metrics_path.read_text(), folder.manifest()) == before
    assert caplog.records == []
    heard = []
    watcher = Watcher()
    watcher.on_start = lambda *args: heard.append(args[-1])
    assert resume(folder, budget=BudgetCfg(iterations=5), watcher=watcher).iteration == 5
    assert (heard[0].path, heard[0].checkpoint.iteration) == (good, 2)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{damaged}: the file is empty; use the older {good}",
        f"taking {good} instead, of iteration 2",
    ]
    assert [line["iteration"] for line in lines(folder)] == [1, 2, 3, 4, 5]
    assert damaged.with_name("model_3.pt.superseded").read_bytes() == b""


def test_only_the_newest_checkpoints_are_kept_and_the_one_resumed_from(tmp_path):
    settings = ("learner.save_interval=1", "learner.keep_checkpoints=2")
    _, folder = start(tmp_path, overrides=settings, budget=BudgetCfg(iterations=5))

    def kept():
        return [path.name for path in list_checkpoints(folder.checkpoints)]

    assert kept() == ["model_4.pt", "model_5.pt"]
    resume(folder, folder.checkpoints / "model_4.pt", budget=BudgetCfg(iterations=8))
    assert kept() == ["model_4.pt", "model_7.pt", "model_8.pt"]
    assert (folder.checkpoints / "model_5.pt.superseded").is_file()
    resume(folder, budget=BudgetCfg(iterations=9))
    assert kept() == ["model_8.pt", "model_9.pt"]


def test_all_checkpoints_are_kept_where_the_config_says_so(tmp_path):
    settings = ("learner.save_interval=1", "learner.keep_checkpoints=0")
    _, folder = start(tmp_path, overrides=settings, budget=BudgetCfg(iterations=25))
    assert len(list_checkpoints(folder.checkpoints)) == 25
    with pytest.raises(ConfigError, match="keep_checkpoints"):
        start(tmp_path, overrides=("learner.keep_checkpoints=-1",))


def test_a_checkpoint_that_does_not_fit_its_run_is_refused_and_nothing_is_set_aside(tmp_path):
    outcome, folder = start(tmp_path)
    held = load_checkpoint(outcome.checkpoint)
    save_checkpoint(outcome.checkpoint, replace(held, learner={"weight": torch.zeros(3)}))
    with pytest.raises(
        CheckpointError, match=r"model_3.pt: doesn't fit the run's config.yaml: weight has shape \(3,\)"
    ):
        resume(folder, budget=BudgetCfg(iterations=5))
    save_checkpoint(outcome.checkpoint, replace(held, task="another"))
    with pytest.raises(
        CheckpointError, match=r"config.yaml: task is 'scripted' there, .* was trained with 'another'"
    ):
        resume(folder, budget=BudgetCfg(iterations=5))
    assert folder.manifest()["resumes"] == []
    assert all(learner.env.num_closes == 1 for learner in COUNTING.made)


def test_ppo_trains_and_resumes_through_the_same_runner(tmp_path):
    outcome, folder = start(tmp_path, algorithm="ppo")
    first = load_checkpoint(outcome.checkpoint)
    assert first.optimizer["param_groups"][0]["lr"] > 0
    outcome = resume(folder, budget=BudgetCfg(iterations=5))
    second = load_checkpoint(outcome.checkpoint)
    assert (second.iteration, second.env_steps) == (5, 120)
    steps = [float(part.optimizer["state"][0]["step"]) for part in (first, second)]
    assert steps == [12.0, 20.0]  # 2 epochs x 2 mini-batches an iteration
    assert lines(folder)[0]["metrics"].keys() >= {"Loss/value", "Policy/action_std", "Episode/count"}


def test_the_watcher_hears_of_the_start_and_of_every_iteration(tmp_path):
    heard = []

    class Recorder(Watcher):
        def on_start(self, folder, config, budget, start):
            heard.append((config.task, str(budget), start))

        def on_iteration(self, progress):
            heard.append((progress.iteration, progress.budget_used))

    train(request(tmp_path, budget=BudgetCfg(iterations=2)), Recorder())
    assert heard == [("scripted", "2 iterations", None), (1, 0.5), (2, 1.0)]


def test_equal_seeds_make_equal_runs_and_other_seeds_other_ones(tmp_path):
    runs = [load_checkpoint(start(tmp_path, algorithm="ppo", seed=seed)[0].checkpoint) for seed in (1, 1, 2)]
    weights = [torch.cat([tensor.flatten() for tensor in run.learner["actor"].values()]) for run in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_run_that_cannot_be_written_is_not_resumed(tmp_path, monkeypatch):
    _, folder = start(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(RunFolderError, match="no permission to write; copy the run to a place of your own"):
        resume(folder, budget=BudgetCfg(iterations=5))
    assert len(COUNTING.made) == 1
