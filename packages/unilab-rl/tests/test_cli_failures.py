"""What the commands say when something fails or is interrupted, and what to type next."""

import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from rl_support import COUNTING, ScriptedEnv

from unilab_core import ConfigError
from unilab_core.cli import main
from unilab_rl import RunConfig, RunFolder, list_checkpoints, load_checkpoint
from unilab_rl.cli.progress import PlainProgress
from unilab_rl.run_config import MAX_SEED
from unilab_rl.runtime import session


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("UNILAB_COMMAND", raising=False)
    COUNTING.made.clear()


def run(capsys, *args):
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def train(capsys, *args):
    return run(capsys, "train", "scripted", "--backend", "scripted", *args)


def runs(tmp_path, root="runs"):
    return sorted((tmp_path / root).glob("scripted/*"))


def next_commands(out):
    return [line.split(":", 1)[1].strip() for line in out.splitlines() if ": " in line and "unilab" in line]


def as_typed(capsys, line):
    """Runs a line through a shell that splits it, and then as the command's arguments here."""
    print_arguments = f"{shlex.quote(sys.executable)} -c 'import sys; print(*sys.argv[1:], sep=chr(10))' "
    split = subprocess.run(print_arguments + line, shell=True, capture_output=True, text=True, check=True)
    words = split.stdout.splitlines()
    position = words.index("unilab")
    assert words[:position] == ["python3", "dev.py", "run", "--locked"]
    return run(capsys, *words[position + 1 :])


def test_the_printed_lines_can_be_typed_where_a_launcher_ran_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNILAB_COMMAND", "python3 dev.py run --locked unilab")
    _, out, _ = train(capsys, "--runs", "my runs")
    (path,) = runs(tmp_path, "my runs")
    measure, go_on = next_commands(out)
    assert measure == f"python3 dev.py run --locked unilab eval 'my runs/scripted/{path.name}'"
    code, out, _ = as_typed(capsys, measure)
    assert code == 0
    assert "return (95 % interval)" in out
    code, out, _ = as_typed(capsys, go_on)
    assert code == 0
    assert "finished after 6 iterations" in out


def test_the_printed_line_to_resume_can_be_typed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNILAB_COMMAND", "python3 dev.py run --locked unilab")
    monkeypatch.setattr(
        COUNTING, "before_iteration", lambda number: number == 2 and os.kill(os.getpid(), signal.SIGINT)
    )
    code, out, _ = train(capsys, "--iterations", "5")
    assert code == 130
    (resume,) = next_commands(out)
    monkeypatch.setattr(COUNTING, "before_iteration", lambda number: None)
    code, out, _ = as_typed(capsys, resume)
    assert code == 0
    assert "finished after 5 iterations" in out


@pytest.mark.parametrize("prefix", [None, "python3 dev.py run --locked unilab"])
def test_an_error_names_the_command_as_it_is_typed(capsys, monkeypatch, prefix):
    if prefix:
        monkeypatch.setenv("UNILAB_COMMAND", prefix)
    for args, following in ((("eval",), "train TASK"), (("train",), "list shows them")):
        assert f"{prefix or 'unilab'} {following}" in run(capsys, *args)[2]


def test_an_interrupt_while_everything_is_built_is_exit_1_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    def interrupt(env, cfg, *, seed, factory):
        raise KeyboardInterrupt

    monkeypatch.setattr(COUNTING, "make_learner", interrupt)
    code, out, err = train(capsys)
    assert (code, out) == (1, "")
    assert err == "Error: interrupted before training began; nothing was saved\n"
    assert list(tmp_path.iterdir()) == []


def test_two_interrupts_while_the_run_folder_is_made_are_exit_1_and_leave_nothing(
    tmp_path, capsys, monkeypatch
):
    def interrupt(self, manifest, write=RunFolder.write_manifest):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        write(self, manifest)

    monkeypatch.setattr(RunFolder, "write_manifest", interrupt)
    code, _, err = train(capsys)
    assert code == 1
    assert "interrupted before training began; nothing was saved" in err
    assert list(tmp_path.iterdir()) == []


def test_one_interrupt_while_the_run_folder_is_made_is_not_lost(tmp_path, capsys, monkeypatch):
    def interrupt(self, manifest, write=RunFolder.write_manifest):
        os.kill(os.getpid(), signal.SIGINT)
        write(self, manifest)

    monkeypatch.setattr(RunFolder, "write_manifest", interrupt)
    assert train(capsys)[0] == 130
    assert [path.name for path in list_checkpoints(runs(tmp_path)[0] / "checkpoints")] == ["model_0.pt"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_before_the_first_iteration_is_exit_130_with_a_loadable_checkpoint(
    tmp_path, capsys, monkeypatch, times
):
    def interrupt(self, *args, start=PlainProgress.on_start):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        start(self, *args)

    monkeypatch.setattr(PlainProgress, "on_start", interrupt)
    code, out, _ = train(capsys)
    assert code == 130
    (path,) = runs(tmp_path)
    assert f"resume it:  unilab train --resume {path.relative_to(tmp_path)}" in out
    assert load_checkpoint(path / "checkpoints" / "model_0.pt").iteration == 0


def test_interrupts_while_the_environment_is_closed_do_not_hide_what_was_saved(capsys, monkeypatch):
    def interrupt(env, close=ScriptedEnv.close):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        close(env)

    monkeypatch.setattr(ScriptedEnv, "close", interrupt)
    code, out, err = train(capsys)
    assert (code, err) == (0, "")
    assert "finished after 3 iterations" in out
    code, out, err = run(capsys, "train", "--resume", "latest", "--iterations", "4")
    assert (code, err) == (0, "")


def test_a_runner_that_cannot_begin_leaves_no_run_folder(tmp_path, capsys, monkeypatch):
    def broken(*_, **__):
        raise OSError("no state")

    monkeypatch.setattr(session, "Runner", broken)
    code, _, err = train(capsys)
    assert (code, err) == (1, "Error: no state\nnothing was learned yet, so the run folder was removed\n")
    assert runs(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("NonFiniteError", 1), ("EnvFaultedError", 1), ("OSError", 1), ("ConfigError", 2)],
)
def test_an_expected_failure_is_one_message_with_what_was_saved(tmp_path, capsys, kind, expected):
    fails = ("--set", "fail_at=5", "--set", f"fails_with={kind}")
    code, _, err = train(capsys, *fails)
    (path,) = runs(tmp_path)
    saved = path.relative_to(tmp_path) / "checkpoints" / "model_2.pt"
    assert (code, err) == (expected, f"Error: boom at step 5\niteration 2 is saved in {saved}\n")
    code, _, err = train(capsys, *fails, "--debug")
    assert code == expected
    assert f"{kind}: boom at step 5" in err
    assert "Traceback" in err


def test_a_note_that_repeats_the_message_is_not_said_again(tmp_path, capsys, monkeypatch):
    def refuse(*_, **__):
        error = ConfigError("term 'x': scale has 1 numbers")
        error.add_note("term 'x'")
        error.add_note("nothing was built")
        raise error

    monkeypatch.setattr(session, "make_env", refuse)
    code, _, err = train(capsys)
    assert (code, err) == (2, "Error: term 'x': scale has 1 numbers\nnothing was built\n")


def test_a_full_disk_is_one_message_and_exit_1(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unilab_rl.runtime.runner.save_checkpoint", full)
    code, _, err = train(capsys)
    assert code == 1
    assert "[Errno 28] No space left on device" in err
    assert "Traceback" not in err


def test_a_mistake_in_the_code_of_a_task_keeps_its_traceback(capsys):
    with pytest.raises(ValueError, match="boom"):
        train(capsys, "--set", "fail_at=1")


def test_latest_passes_over_a_run_without_checkpoints_and_says_so(tmp_path, capsys):
    train(capsys)
    (good,) = runs(tmp_path)
    empty = good.with_name("20990101-000000-counting-s0")
    shutil.copytree(good, empty)
    for path in list_checkpoints(empty / "checkpoints"):
        path.unlink()
    said = f"the newest run runs/scripted/{empty.name} has no checkpoint; taking runs/scripted/{good.name}\n"
    code, out, err = run(capsys, "eval", "--episodes", "2")
    assert (code, err) == (0, said)
    assert good.name in out
    code, out, err = run(capsys, "train", "--resume", "latest", "--iterations", "4")
    assert (code, err) == (0, said)
    assert f"run folder: runs/scripted/{good.name}" in out
    shutil.rmtree(good)
    code, _, err = run(capsys, "eval")
    assert code == 2
    assert f"{empty.name}/checkpoints: no checkpoint" in err


def test_a_resume_from_an_older_checkpoint_that_does_nothing_says_how_to_try_it_again(
    tmp_path, capsys, monkeypatch
):
    train(capsys)
    older = runs(tmp_path)[0].relative_to(tmp_path) / "checkpoints" / "model_2.pt"
    monkeypatch.setattr(PlainProgress, "on_start", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    code, out, _ = run(capsys, "train", "--resume", str(older), "--iterations", "9")
    assert code == 130
    assert next_commands(out)[-1] == f"unilab train --resume {older}"


def test_the_line_of_a_resume_says_how_exact_it_is(capsys, monkeypatch):
    train(capsys, "--set", "exact=true")
    out = run(capsys, "train", "--resume", "latest", "--iterations", "4")[1]
    assert "resuming after iteration 3, 24 env steps (exact: bit for bit as if it had not stopped)\n" in out
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    out = run(capsys, "train", "--resume", "latest", "--iterations", "5")[1]
    assert f"32 env steps (not bit for bit; torch threads {threads} -> {threads + 1})\n" in out


@pytest.mark.parametrize("command", ["train", "eval"])
@pytest.mark.parametrize("seed", ["-1", str(2**63), str(2**70)])
def test_a_seed_that_generators_cannot_take_is_bad_input(tmp_path, capsys, command, seed):
    code, _, err = run(capsys, command, "scripted", "--seed", seed)
    assert code == 2
    assert "is not in the range 0<=x<=9223372036854775807" in err
    assert list(tmp_path.iterdir()) == []


def test_the_largest_seed_trains_and_is_measured(tmp_path, capsys):
    assert train(capsys, "--seed", str(2**63 - 1))[0] == 0
    config = RunFolder(runs(tmp_path)[0]).config()
    assert isinstance(config, RunConfig)
    assert config.seed == MAX_SEED == 2**63 - 1
    assert "seed 999999" in run(capsys, "eval")[1]


@pytest.mark.parametrize("args", [("train", "scripted"), ("eval",)])
def test_an_empty_name_for_the_folder_of_runs_is_bad_input(tmp_path, capsys, args):
    code, _, err = run(capsys, *args, "--runs", "")
    assert code == 2
    assert "is empty, expected a folder" in err
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_nothing_for_the_folder_of_runs_is_refused_before_anything_is_built(tmp_path, capsys):
    (tmp_path / "runs").symlink_to(tmp_path / "gone")
    code, _, err = train(capsys)
    assert code == 2
    assert "runs is a link to a place that isn't there; choose another place with --runs DIR" in err
    assert COUNTING.made == []


def test_eval_continues_the_training_state_before_the_first_reset(tmp_path, capsys, monkeypatch):
    train(capsys)
    seen = []

    def reset(env, *args, reset=ScriptedEnv.reset, **changes):
        seen.append(env.step_counter)
        return reset(env, *args, **changes)

    monkeypatch.setattr(ScriptedEnv, "reset", reset)
    assert run(capsys, "eval", "--episodes", "2")[0] == 0
    assert seen[0] == 6
