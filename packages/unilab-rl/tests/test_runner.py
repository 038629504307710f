"""The runner stops where it should and always leaves the last completed iteration on disk."""

import contextlib
import json
import os
import signal
from datetime import datetime

import pytest
import torch
from rl_support import CountingCfg, CountingLearner, ScriptedEnv, python, run_config

from unilab_rl import BudgetCfg, Runner, create_run_folder, list_checkpoints, load_checkpoint
from unilab_rl.runtime.runner import Watcher

NOW = datetime(2026, 3, 4, 5, 6, 7)


class Clock:
    """Rises by one second each time it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def make(tmp_path, *, env=None, before=lambda number: None, **changes):
    config = run_config(**changes)
    env = env or ScriptedEnv()
    learner = CountingLearner(env, config.learner, 0, before_iteration=before)
    folder = create_run_folder(tmp_path, config, {"schema_version": 1}, now=NOW)
    return Runner(env, learner, config, folder, clock=Clock()), folder, env


def lines(folder):
    return [json.loads(line) for line in folder.metrics_path.read_text().splitlines()]


def saved(folder):
    return [path.name for path in list_checkpoints(folder.checkpoints)]


@pytest.mark.parametrize(
    ("budget", "iterations"),
    [
        (BudgetCfg(iterations=5), 5),
        (BudgetCfg(steps=17), 3),  # 8 steps an iteration
        (BudgetCfg(minutes=0.05), 3),  # the clock rises by a second an iteration
    ],
)
def test_a_run_ends_with_the_iteration_that_uses_up_its_budget(tmp_path, budget, iterations):
    runner, folder, _ = make(tmp_path)
    outcome = runner.run(budget)
    assert (outcome.status, outcome.iteration, outcome.env_steps) == ("finished", iterations, 8 * iterations)
    assert [line["iteration"] for line in lines(folder)] == list(range(1, iterations + 1))
    assert [line["env_steps"] for line in lines(folder)] == [8 * i for i in range(1, iterations + 1)]


def test_checkpoints_are_written_at_the_interval_and_at_the_end(tmp_path):
    runner, folder, _ = make(tmp_path, learner=CountingCfg(save_interval=2))
    outcome = runner.run(BudgetCfg(iterations=5))
    assert saved(folder) == ["model_2.pt", "model_4.pt", "model_5.pt"]
    assert outcome.checkpoint == folder.checkpoints / "model_5.pt"
    last = load_checkpoint(outcome.checkpoint)
    assert (last.task, last.algorithm, last.iteration, last.env_steps) == ("scripted", "counting", 5, 40)
    assert torch.equal(last.learner["weight"], torch.tensor([5.0, 5.0]))
    assert last.env_training_state == {"version": 1, "step_counter": 10}
    assert last.env_state is None
    assert last.config == run_config(learner=CountingCfg(save_interval=2)).to_data()


def test_the_state_of_an_environment_that_can_give_it_is_kept(tmp_path):
    runner, _, env = make(tmp_path, env=ScriptedEnv(exact=True))
    state = load_checkpoint(runner.run(BudgetCfg(iterations=1)).checkpoint).env_state
    assert torch.equal(state["age"], env.episode_length)


def test_a_failing_iteration_surfaces_with_the_last_completed_one_saved(tmp_path):
    env = ScriptedEnv(run_config().env.with_({"fail_at": 7}))  # in the fourth iteration
    runner, folder, _ = make(tmp_path, env=env, learner=CountingCfg(save_interval=100))
    with pytest.raises(ValueError, match="boom at step 7") as caught:
        runner.run(BudgetCfg(iterations=9))
    assert caught.value.__notes__ == [f"iteration 3 is saved in {folder.checkpoints / 'model_3.pt'}"]
    assert saved(folder) == ["model_3.pt"]
    assert load_checkpoint(folder.checkpoints / "model_3.pt").learner["weight"].tolist() == [3.0, 3.0]
    assert len(lines(folder)) == 3


def test_a_failure_in_the_first_iteration_saves_no_checkpoint(tmp_path):
    env = ScriptedEnv(run_config().env.with_({"fail_at": 1}))
    runner, folder, _ = make(tmp_path, env=env)
    with pytest.raises(ValueError, match="boom at step 1"):
        runner.run(BudgetCfg(iterations=9))
    assert saved(folder) == []
    assert folder.discard_unused()
    assert not folder.path.exists()


def test_a_full_disk_does_not_hide_the_failure_that_came_first(tmp_path, monkeypatch):
    env = ScriptedEnv(run_config().env.with_({"fail_at": 3}))
    runner, _, _ = make(tmp_path, env=env)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unilab_rl.runtime.runner.save_checkpoint", full)
    with pytest.raises(ValueError, match="boom at step 3") as caught:
        runner.run(BudgetCfg(iterations=9))
    assert "could not be saved either: [Errno 28] No space left" in caught.value.__notes__[0]


def test_one_interrupt_finishes_the_iteration_and_saves(tmp_path):
    def interrupt(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    heard = []
    watcher = Watcher()
    watcher.on_interrupt = lambda: heard.append("interrupt")
    before = signal.getsignal(signal.SIGINT)
    runner, folder, _ = make(tmp_path, before=interrupt, learner=CountingCfg(save_interval=100))
    outcome = runner.run(BudgetCfg(iterations=9), watcher)
    assert (outcome.status, outcome.iteration) == ("interrupted", 3)
    assert saved(folder) == ["model_3.pt"]
    assert heard == ["interrupt"]
    assert signal.getsignal(signal.SIGINT) is before


def test_two_interrupts_stop_at_once_and_save_the_last_completed_iteration(tmp_path):
    def interrupt(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    runner, folder, env = make(tmp_path, before=interrupt, learner=CountingCfg(save_interval=100))
    outcome = runner.run(BudgetCfg(iterations=9))
    assert (outcome.status, outcome.iteration) == ("interrupted", 2)
    assert env.step_counter == 4
    assert load_checkpoint(folder.checkpoints / "model_2.pt").learner["weight"].tolist() == [2.0, 2.0]
    assert [line["iteration"] for line in lines(folder)] == [1, 2]


def test_two_interrupts_in_the_first_iteration_leave_the_state_before_it(tmp_path):
    def interrupt(number):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    runner, folder, _ = make(tmp_path, before=interrupt)
    assert runner.run(BudgetCfg(iterations=9)).iteration == 0
    assert load_checkpoint(folder.checkpoints / "model_0.pt").learner["weight"].tolist() == [0.0, 0.0]


def test_further_interrupts_do_not_cut_the_final_save_short(tmp_path, monkeypatch):
    from unilab_rl.runtime import runner as module

    def interrupt(number):
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    def save(path, checkpoint, save=module.save_checkpoint):
        os.kill(os.getpid(), signal.SIGINT)
        save(path, checkpoint)

    monkeypatch.setattr(module, "save_checkpoint", save)
    runner, folder, _ = make(tmp_path, before=interrupt)
    assert runner.run(BudgetCfg(iterations=9)).status == "interrupted"
    assert load_checkpoint(folder.checkpoints / "model_1.pt").iteration == 1


def interrupting_save(monkeypatch):
    """Lets two SIGINTs arrive during each save."""
    from unilab_rl.runtime import runner as module

    def save(path, checkpoint, save=module.save_checkpoint):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        save(path, checkpoint)

    monkeypatch.setattr(module, "save_checkpoint", save)


@contextlib.contextmanager
def interrupts_are_ignored():
    """Makes a KeyboardInterrupt a failure of the test; on its own it would end all tests."""
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("an interrupt cut a save short")


def test_interrupts_that_come_first_during_the_last_save_do_not_cut_it_short(tmp_path, monkeypatch):
    interrupting_save(monkeypatch)
    runner, folder, _ = make(tmp_path, learner=CountingCfg(save_interval=100))
    with interrupts_are_ignored():
        assert runner.run(BudgetCfg(iterations=2)).status == "finished"
    assert saved(folder) == ["model_2.pt"]


def test_interrupts_during_the_save_after_a_failure_do_not_cut_it_short(tmp_path, monkeypatch):
    interrupting_save(monkeypatch)
    env = ScriptedEnv(run_config().env.with_({"fail_at": 3}))
    runner, folder, _ = make(tmp_path, env=env)
    with interrupts_are_ignored(), pytest.raises(ValueError, match="boom at step 3"):
        runner.run(BudgetCfg(iterations=9))
    assert saved(folder) == ["model_1.pt"]


def test_a_keyboard_interrupt_that_no_signal_brought_is_not_called_finished(tmp_path):
    def interrupt(number):
        if number == 3:
            raise KeyboardInterrupt

    runner, folder, _ = make(tmp_path, before=interrupt, learner=CountingCfg(save_interval=100))
    outcome = runner.run(BudgetCfg(iterations=9))
    assert (outcome.status, outcome.iteration) == ("interrupted", 2)
    assert outcome.checkpoint == folder.checkpoints / "model_2.pt"
    assert outcome.checkpoint.is_file()


PROGRAM = """
import sys
from datetime import datetime
from pathlib import Path
import rl_support
from unilab_core.cli import main
rl_support.register()

def before(number):
    # Says that it is inside an iteration, then waits for the other side to have sent its signals.
    if number == 3:
        print("inside", flush=True)
        sys.stdin.readline()

rl_support.COUNTING.before_iteration = before
sys.exit(main(["train", "scripted", "--backend", "scripted", "--iterations", "50", "--runs", sys.argv[1]]))
"""


@pytest.mark.parametrize(("times", "completed"), [(1, 3), (2, 2)])
def test_ctrl_c_in_a_real_process_exits_130_with_a_loadable_checkpoint(tmp_path, times, completed):
    process = python("-c", PROGRAM, str(tmp_path), stdin=-1)
    output = []
    while not output or output[-1] != "inside\n":
        line = process.stdout.readline()
        assert line, process.stderr.read()
        output.append(line)
    process.send_signal(signal.SIGINT)
    # What the handler writes says that the first signal has arrived: two at once would count as one.
    heard = process.stderr.readline() + process.stderr.readline()
    assert "finishing this iteration" in heard
    if times == 2:
        process.send_signal(signal.SIGINT)
    else:
        process.stdin.write("\n")
    rest, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors == ""
    assert f"interrupted after {completed} iterations" in rest
    (run,) = (tmp_path / "scripted").iterdir()
    assert f"unilab train --resume {run}" in rest
    assert load_checkpoint(run / "checkpoints" / f"model_{completed}.pt").iteration == completed


def test_a_file_of_somebody_else_under_the_name_of_an_iteration_is_not_taken_for_its_checkpoint(tmp_path):
    def before(number):
        if number == 2:
            folder.checkpoints.mkdir(exist_ok=True)
            (folder.checkpoints / "model_2.pt").write_bytes(b"not of this run")

    runner, folder, _ = make(tmp_path, before=before)
    outcome = runner.run(BudgetCfg(iterations=2))
    assert outcome.checkpoint == folder.checkpoints / "model_2.pt"
    assert load_checkpoint(outcome.checkpoint).iteration == 2
