"""A run is measured on the task's evaluation config, always alike, and training doesn't notice."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from rl_support import COUNTING, ScriptedEnvCfg, run_config

from unilab_core import CapabilityError, ConfigError, TaskSpec, UnknownNameError, register_task
from unilab_rl import (
    BudgetCfg,
    CheckpointError,
    Evaluator,
    RunFolder,
    TrainRequest,
    list_checkpoints,
    load_checkpoint,
    resume,
    train,
)
from unilab_rl.run_config import MAX_SEED
from unilab_rl.runtime.evaluator import evaluation_cfg, evaluation_seed


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    COUNTING.made.clear()
    monkeypatch.setattr(COUNTING, "before_iteration", lambda number: None)


def trained(tmp_path, *overrides, **changes):
    values = {"task": "scripted-graded", "backend": "scripted", "seed": 7, "runs": tmp_path}
    outcome = train(TrainRequest(**(values | {"overrides": overrides} | changes)))
    return RunFolder(outcome.checkpoint.parent.parent)


def lines(folder):
    return [json.loads(line) for line in folder.metrics_path.read_text().splitlines()]


def evaluated(folder):
    return [line["iteration"] for line in lines(folder) if "Eval/return" in line["metrics"]]


def newest(folder):
    return load_checkpoint(list_checkpoints(folder.checkpoints)[-1])


def test_the_tasks_function_makes_the_config_to_measure_on():
    cfg, function = evaluation_cfg("scripted-graded", ScriptedEnvCfg(steps=9))
    assert (cfg.steps, cfg.gain, cfg.metrics, function) == (9, 2.0, True, "rl_support:graded_cfg")


def test_a_task_without_such_a_function_is_measured_as_it_was_trained():
    cfg = ScriptedEnvCfg(gain=3.0)
    assert evaluation_cfg("scripted", cfg) == (cfg, "")


def test_a_task_that_is_not_installed_says_how_to_measure_without_it():
    with pytest.raises(UnknownNameError, match="unknown task 'scripted-old'.*only --as-trained"):
        evaluation_cfg("scripted-old", ScriptedEnvCfg())


def test_a_function_that_returns_no_config_is_named():
    register_task(
        TaskSpec(name="scripted-bad", env_cfg="rl_support:scripted_cfg", evaluation="builtins:repr")
    )
    with pytest.raises(ConfigError, match="'scripted-bad': builtins:repr returned a str, expected a Torch"):
        evaluation_cfg("scripted-bad", ScriptedEnvCfg())


def test_the_seed_of_an_evaluation_is_none_of_the_training_and_stays_in_range():
    assert evaluation_seed(7) == 1_000_007
    assert 0 <= evaluation_seed(MAX_SEED) <= MAX_SEED


def test_a_checkpoint_is_measured_on_a_new_environment_each_time(tmp_path, made):
    folder = trained(tmp_path)
    evaluator = Evaluator(folder.config(), episodes=4)
    first, second = (evaluator.measure(newest(folder)) for _ in range(2))
    # The saved weight 3 acts as 0.3: reward 2 - 0.09. Row 0 falls at 2 and 4, the others live for 5 steps.
    assert first.return_mean == pytest.approx(1.91 * 17 / 4)
    assert (first.falls, first.metrics) == (2, {"Metrics/age": 19 / 5})
    assert first == second
    assert [env.num_closes for env in made] == [1, 1]
    assert [env.seeds for env in made] == [[1_000_007, 1_000_007]] * 2


def test_an_evaluation_follows_the_curricula_of_the_training(tmp_path, made):
    folder = trained(tmp_path)
    Evaluator(folder.config(), episodes=4).measure(newest(folder))
    assert made[0].step_counter == 6 + 5  # of 3 iterations of 2 steps, and of the time limit


def test_the_config_of_the_training_can_be_measured_on(tmp_path):
    folder = trained(tmp_path)
    evaluator = Evaluator(folder.config(), episodes=4, as_trained=True, seed=3)
    assert (evaluator.function, evaluator.seed, evaluator.env_cfg) == ("", 3, folder.config().env)
    assert evaluator.measure(newest(folder)).return_mean == pytest.approx(0.91 * 5)
    assert evaluator.measure_zero(newest(folder)).return_mean == pytest.approx(5.0)


def test_a_policy_that_does_not_fit_is_a_checkpoint_error_and_the_environment_is_closed(
    tmp_path, made, monkeypatch
):
    folder = trained(tmp_path)

    def refuse(*_):
        raise ValueError("another width")

    monkeypatch.setattr(COUNTING, "make_policy", refuse)
    with pytest.raises(CheckpointError, match="file.pt: doesn't fit the environment: another width"):
        Evaluator(folder.config(), episodes=4).measure(newest(folder), Path("file.pt"))
    assert made[0].num_closes == 1


@pytest.mark.parametrize("device", ["cuda:99", "cuuda"])
def test_a_device_that_is_not_there_is_refused_by_the_environment(tmp_path, monkeypatch, device):
    folder = trained(tmp_path)

    def refuse(self, *, device, **_):
        raise CapabilityError(f"there is no {device}")

    monkeypatch.setattr(ScriptedEnvCfg, "build", refuse)
    with pytest.raises(CapabilityError, match=f"there is no {device}"):
        Evaluator(folder.config(), episodes=4, device=device).measure(newest(folder))


def test_the_global_random_generator_is_given_back(tmp_path, monkeypatch):
    folder = trained(tmp_path)
    monkeypatch.setattr(COUNTING, "make_policy", lambda *_: lambda obs: torch.rand(4, 2))
    before = torch.get_rng_state()
    Evaluator(folder.config(), episodes=4).measure(newest(folder))
    assert torch.equal(before, torch.get_rng_state())


def test_training_evaluates_at_the_interval_and_at_the_end(tmp_path):
    folder = trained(
        tmp_path, "learner.eval_interval=2", "learner.eval_episodes=4", budget=BudgetCfg(iterations=5)
    )
    assert evaluated(folder) == [2, 4, 5]
    # The weight is the iteration: 2 acts as 0.2, reward 2 - 0.04.
    metrics = lines(folder)[1]["metrics"]
    assert metrics["Eval/return"] == pytest.approx(1.96 * 17 / 4)
    assert (metrics["Eval/falls"], metrics["Eval/Metrics/age"]) == (2.0, 19 / 5)
    assert metrics["Eval/seconds"] >= 0.0
    assert metrics["Loss/value"] == 2.0


def test_training_evaluates_nothing_by_default(tmp_path, made):
    assert evaluated(trained(tmp_path)) == []
    assert made == []


def test_a_training_evaluation_gives_what_the_evaluator_gives_for_its_checkpoint(tmp_path):
    folder = trained(tmp_path, "learner.eval_interval=2", "learner.eval_episodes=4")
    measured = Evaluator(folder.config(), episodes=4).measure(
        load_checkpoint(folder.checkpoints / "model_2.pt")
    )
    metrics = lines(folder)[1]["metrics"]
    assert measured.to_metrics() == {key: metrics[key] for key in measured.to_metrics()}


def test_an_evaluation_config_that_cannot_be_built_costs_no_run_folder(tmp_path, monkeypatch):
    def refuse(self, **_):
        raise CapabilityError("no such thing")

    graded = "rl_support:graded_cfg"
    assert evaluation_cfg("scripted-graded", ScriptedEnvCfg())[1] == graded

    class Unbuildable(ScriptedEnvCfg):
        build = refuse

    monkeypatch.setattr("rl_support.graded_cfg", lambda cfg: Unbuildable())
    with pytest.raises(CapabilityError, match="no such thing"):
        trained(tmp_path, "learner.eval_interval=1")
    assert list(tmp_path.iterdir()) == []
    assert [learner.env.num_closes for learner in COUNTING.made] == [1]


def test_a_resumed_run_goes_on_evaluating(tmp_path):
    folder = trained(tmp_path, "learner.eval_interval=2", "learner.eval_episodes=4")
    resume(folder, budget=BudgetCfg(iterations=6))
    assert evaluated(folder) == [2, 3, 4, 6]


def test_an_interrupted_run_ends_without_another_evaluation(tmp_path, monkeypatch):
    def interrupt(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(COUNTING, "before_iteration", interrupt)
    folder = trained(tmp_path, "learner.eval_interval=1", "learner.eval_episodes=4")
    assert evaluated(folder) == [1]
    assert newest(folder).iteration == 2


def test_a_second_interrupt_in_an_evaluation_costs_the_evaluation_and_not_the_iteration(
    tmp_path, monkeypatch
):
    def interrupt(env, cfg, state, make_policy=COUNTING.make_policy):
        if state.learner["weight"][0] == 2.0:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return make_policy(env, cfg, state)

    monkeypatch.setattr(COUNTING, "make_policy", interrupt)
    folder = trained(tmp_path, "learner.eval_interval=1", "learner.eval_episodes=4")
    assert [line["iteration"] for line in lines(folder)] == [1, 2]
    assert evaluated(folder) == [1]
    assert newest(folder).iteration == 2


def assert_same(one, other, path=""):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{path}.{index}")
    else:
        assert one == other, path


@pytest.mark.parametrize("algorithm", ["ppo", "counting"])
def test_a_run_with_evaluations_equals_one_without_bit_for_bit(tmp_path, algorithm, monkeypatch):
    # The counting learner draws from the global generator, as no learner should; the PPO has its own stream.
    drawn = []
    monkeypatch.setattr(COUNTING, "before_iteration", lambda number: drawn.append(float(torch.rand(()))))
    monkeypatch.setattr(COUNTING, "make_policy", lambda *_: lambda obs: torch.rand(obs["obs"].shape[0], 2))
    folders = []
    for number, interval in enumerate((0, 1)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            folders.append(
                trained(
                    tmp_path / str(number),
                    f"learner.eval_interval={interval}",
                    "exact=true",
                    algorithm=algorithm,
                )
            )
    without, with_ = (newest(folder) for folder in folders)
    for part in ("iteration", "env_steps", "learner", "optimizer", "normalizer", "env_training_state"):
        assert_same(getattr(without, part), getattr(with_, part), part)
    assert_same(without.env_state, with_.env_state, "env_state")
    assert_same(without.rng, with_.rng, "rng")
    assert evaluated(folders[1]) == [1, 2, 3]
    for one, other in zip(*(lines(folder) for folder in folders), strict=True):
        assert one["metrics"] == {
            key: value for key, value in other["metrics"].items() if not key.startswith("Eval/")
        }
    if algorithm == "counting":
        assert drawn[:3] == drawn[3:]


def test_the_config_of_a_run_says_how_often_it_is_evaluated():
    learner = run_config().learner
    assert (learner.eval_interval, learner.eval_episodes) == (0, 64)
