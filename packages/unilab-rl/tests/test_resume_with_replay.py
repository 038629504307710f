"""A run that saves its replay goes on exactly wherever it stopped, and from the older pair where one is damaged."""

import itertools
import os
import signal
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from checkpoint_support import equal
from off_policy_support import SAC, small
from rl_support import ScriptedEnv

from unilab_core import TaskSpec, list_tasks, register_task
from unilab_rl import (
    BudgetCfg,
    Checkpoint,
    CheckpointError,
    RunFolder,
    TrainRequest,
    Watcher,
    load_checkpoint,
    register_algorithm,
    resume,
    save_checkpoint,
    train,
)
from unilab_rl.checkpoint import load_checkpoint_with_replay

TASK = "scripted-replay"
SIX = BudgetCfg(iterations=6)


def sac_cfg():
    """7 steps of 4 rows in each iteration, on a replay of 20 steps, so it is full from the third on."""
    return small(SAC, iterations=6)


@pytest.fixture(autouse=True)
def _task():
    if TASK not in {task.name for task in list_tasks()}:
        register_algorithm(SAC)
        register_task(
            TaskSpec(
                name=TASK,
                env_cfg="rl_support:scripted_cfg",
                learners={"sac": f"{__name__}:sac_cfg"},
                default_learner="sac",
            )
        )


def start(tmp_path, budget=SIX, **settings):
    overrides = ("exact=true", *(f"learner.{name}={value}" for name, value in settings.items()))
    request = TrainRequest(
        task=TASK, backend="scripted", seed=7, runs=tmp_path, budget=budget, overrides=overrides
    )
    return RunFolder(train(request).checkpoint.parent.parent)


def stop(monkeypatch, number, how):
    """Lets something happen in the middle of the environment's step of that number, counted from now."""
    calls, step = itertools.count(1), ScriptedEnv.step

    def stopping(env, actions):
        if next(calls) == number:
            how()
        return step(env, actions)

    monkeypatch.setattr(ScriptedEnv, "step", stopping)


def fail():
    raise ValueError("boom")


def interrupt_twice():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


def names(folder):
    return sorted(path.name for path in folder.checkpoints.iterdir())


def check_same_end(one, two):
    """Compares the checkpoints after six iterations, bit for bit; the digest is that of the replay's file."""
    first, second = (load_checkpoint(folder.checkpoints / "model_6.pt") for folder in (one, two))
    assert len(first.learner["replay"]["sha256"]) == 64
    for field in fields(Checkpoint):
        if field.name != "config":  # which holds the budget
            assert equal(getattr(first, field.name), getattr(second, field.name)), field.name


@pytest.mark.parametrize("how", [fail, interrupt_twice])
def test_a_run_that_stops_inside_an_iteration_goes_on_exactly_from_the_one_before(tmp_path, monkeypatch, how):
    whole = start(tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop(patched, 4 * 7 + 5, how)  # in the fifth iteration, after four of its steps are stored
        if how is fail:
            with pytest.raises(ValueError, match="boom") as caught:
                start(tmp_path / "parts", save_interval=100)
            assert caught.value.__notes__[0].startswith("iteration 4 is saved in ")
            (path,) = (tmp_path / "parts" / TASK).iterdir()
            folder = RunFolder(path)
        else:
            folder = start(tmp_path / "parts", save_interval=100)
    assert names(folder) == ["model_4.pt", "model_4.replay"]
    assert resume(folder).iteration == 6
    assert [line["resumed"] for line in folder.metrics()] == [*[None] * 4, "exact", None]
    check_same_end(whole, folder)


def test_a_failure_of_the_log_after_an_iteration_saves_the_one_before_with_its_replay(tmp_path, monkeypatch):
    from unilab_rl.metrics_log import MetricsLog

    whole = start(tmp_path / "whole")
    append = MetricsLog.append

    def full(log, done, **settings):
        if settings["iteration"] == 4:
            raise OSError(28, "No space left on device")
        append(log, done, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "append", full)
        with pytest.raises(OSError, match="No space"):
            start(tmp_path / "parts", save_interval=100)
    (path,) = (tmp_path / "parts" / TASK).iterdir()
    folder = RunFolder(path)
    assert names(folder) == ["model_3.pt", "model_3.replay"]
    assert resume(folder).iteration == 6
    check_same_end(whole, folder)


def test_a_damaged_replay_of_the_newest_checkpoint_is_passed_over_and_the_older_pair_goes_on(
    tmp_path, caplog
):
    whole = start(tmp_path / "whole")
    folder = start(tmp_path / "parts", BudgetCfg(iterations=5))
    assert names(folder) == [f"model_{number}.{kind}" for number in (2, 4, 5) for kind in ("pt", "replay")]
    newest = folder.checkpoints / "model_5.pt"
    (folder.checkpoints / "model_5.replay").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"model_5.replay: cut off after 0 bytes; use the older .*_4.pt"
    ):
        resume(folder, newest, budget=SIX)
    assert caplog.records == []
    assert resume(folder, budget=SIX).iteration == 6
    shown = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert shown[1] == f"taking {folder.checkpoints / 'model_4.pt'} instead, of iteration 4"
    assert names(folder)[4:] == [
        "model_5.pt.superseded",
        "model_5.replay.superseded",
        "model_6.pt",
        "model_6.replay",
    ]
    check_same_end(whole, folder)


def test_a_checkpoint_that_was_set_aside_can_be_continued_from_under_its_old_names(tmp_path):
    folder = start(tmp_path, BudgetCfg(iterations=5))
    for _ in range(2):
        resume(folder, folder.checkpoints / "model_4.pt", budget=BudgetCfg(iterations=5))
    aside = [name for name in names(folder) if "superseded" in name]
    assert aside == [
        f"model_5.{kind}.superseded{number}" for kind in ("pt", "replay") for number in ("", "-2")
    ]
    for kind in ("pt", "replay"):
        (folder.checkpoints / f"model_5.{kind}.superseded-2").replace(folder.checkpoints / f"best.{kind}")
    assert load_checkpoint_with_replay(folder.checkpoints / "best.pt").iteration == 5
    assert resume(folder, folder.checkpoints / "best.pt", budget=SIX).iteration == 6


def test_what_is_set_aside_takes_the_name_of_nothing_that_is_there(tmp_path):
    folder = start(tmp_path, BudgetCfg(iterations=5))
    older = folder.checkpoints / "model_5.replay.superseded"
    older.write_text("another pair's, whose checkpoint was moved away")
    resume(folder, folder.checkpoints / "model_4.pt", budget=SIX)
    assert older.read_text() == "another pair's, whose checkpoint was moved away"
    for kind in ("pt", "replay"):
        (folder.checkpoints / f"model_5.{kind}.superseded-2").rename(folder.checkpoints / f"best.{kind}")
    assert load_checkpoint_with_replay(folder.checkpoints / "best.pt").iteration == 5


def test_a_stop_between_the_renames_of_setting_aside_loses_no_replay(tmp_path, monkeypatch):
    folder = start(tmp_path, BudgetCfg(iterations=5))
    renamed, rename = [], Path.rename

    def stopping(path, target):
        renamed.append(path.name)
        if len(renamed) == 2:
            raise OSError("stopped")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", stopping)
        with pytest.raises(OSError, match="stopped"):
            resume(folder, folder.checkpoints / "model_4.pt", budget=SIX)
    assert sorted(renamed) == ["model_5.pt", "model_5.replay"]
    # The next save removes remnants, and the next resume sets aside what is left.
    save_checkpoint(folder.checkpoints / "best.pt", load_checkpoint(folder.checkpoints / "model_2.pt"))
    assert resume(folder, folder.checkpoints / "model_4.pt", budget=SIX).iteration == 6
    for kind in ("pt", "replay"):
        aside = folder.checkpoints / f"model_5.{kind}.superseded"
        aside.rename(folder.checkpoints / f"again.{kind}")
    assert load_checkpoint_with_replay(folder.checkpoints / "again.pt").iteration == 5


def at_sync_of_second_save(monkeypatch, do):
    """Lets something happen once `model_2.pt` has its name, when its folder is on the disk."""
    done, fsync = [], os.fsync

    def syncing(descriptor):
        fsync(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not done and (place / "model_2.pt").is_file():
            done.append(place)
            do()

    monkeypatch.setattr(os, "fsync", syncing)
    return done


def test_a_second_interrupt_while_a_checkpoint_is_made_safe_ends_the_run_orderly(tmp_path, monkeypatch):
    whole = start(tmp_path / "whole")
    with monkeypatch.context() as patched:
        done = at_sync_of_second_save(patched, interrupt_twice)
        folder = start(tmp_path / "parts")
    assert done == [folder.checkpoints]
    assert names(folder) == ["model_2.pt", "model_2.replay"]
    assert resume(folder).iteration == 6
    check_same_end(whole, folder)


def test_a_second_interrupt_right_after_a_save_ends_the_run_orderly(tmp_path, monkeypatch):
    from unilab_rl.runtime import runner

    def save(path, checkpoint, save=runner.save_checkpoint):
        save(path, checkpoint)
        interrupt_twice()

    whole = start(tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(runner, "save_checkpoint", save)
        folder = start(tmp_path / "parts")
    assert names(folder) == ["model_2.pt", "model_2.replay"]
    assert resume(folder).iteration == 6
    check_same_end(whole, folder)


def test_a_disk_that_fails_once_a_checkpoint_has_its_name_leaves_a_run_to_go_on_with(tmp_path, monkeypatch):
    whole = start(tmp_path / "whole")

    def full():
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        at_sync_of_second_save(patched, full)
        with pytest.raises(OSError, match="Input/output") as caught:
            start(tmp_path / "parts")
    assert caught.value.__notes__[0].startswith("iteration 2 is saved in ")
    (path,) = (tmp_path / "parts" / TASK).iterdir()
    folder = RunFolder(path)
    assert names(folder) == ["model_2.pt", "model_2.replay"]
    assert resume(folder).iteration == 6
    check_same_end(whole, folder)


def test_a_resumed_run_keeps_no_mapping_of_the_replay_that_it_came_from(tmp_path):
    folder = start(tmp_path, BudgetCfg(iterations=4))
    mapped = []

    class Looks(Watcher):
        def on_start(self, folder, config, budget, start):
            mapped.append(f"{folder.checkpoints / 'model_4.replay'}" in Path("/proc/self/maps").read_text())

    assert resume(folder, budget=SIX, watcher=Looks()).iteration == 6
    assert mapped == [False]


def test_old_replays_go_with_their_checkpoints_and_other_commands_need_none(tmp_path):
    folder = start(tmp_path, save_interval=1, keep_checkpoints=2)
    assert names(folder) == [f"model_{number}.{kind}" for number in (5, 6) for kind in ("pt", "replay")]
    for path in folder.checkpoints.glob("*.replay"):
        path.unlink()
    from unilab_rl.checkpoint import load_latest_checkpoint

    assert load_latest_checkpoint(folder.checkpoints)[1].iteration == 6


def test_nothing_of_the_replay_s_size_is_copied_in_an_iteration_that_is_not_saved(tmp_path):
    """The state is taken after each iteration; of a replay it says where to find it."""
    learner = SAC.make_learner(ScriptedEnv(exact=True), small(SAC, buffer_size=200_000), seed=0)
    learner.iterate()
    replay = learner.replay
    stored = {replay._rows.data_ptr(), replay._codes.data_ptr(), replay._order.data_ptr()}
    taken = []

    class Copies(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.data_ptr() not in stored:
                taken.append(made.numel() * made.itemsize)
            return made

    with Copies():
        state = learner.state()
    assert max(taken) < 20_000 < 0.01 * replay._rows.numel() * replay._rows.itemsize
    assert state.learner["replay"] is replay._held_mark()
