"""The commands, through the dispatcher, as a person types them."""

import json

import pytest
from rl_support import COUNTING, Iteration

from unilab_core.cli import main
from unilab_rl import RunFolder, list_checkpoints, load_checkpoint
from unilab_rl.cli.eval import _finite
from unilab_rl.cli.progress import PlainProgress
from unilab_rl.cli.run_view import format_duration
from unilab_rl.runtime.runner import Progress


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    COUNTING.made.clear()


def run(capsys, *args):
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def train(capsys, *args):
    code, out, err = run(capsys, "train", "scripted", "--backend", "scripted", *args)
    assert (code, err) == (0, "")
    return out


def folder_of(tmp_path):
    (path,) = (tmp_path / "runs" / "scripted").iterdir()
    return RunFolder(path.relative_to(tmp_path))


def test_train_says_what_it_trains_where_and_how_to_go_on(tmp_path, capsys):
    out = train(capsys, "--num-envs", "2", "--seed", "5", "--iterations", "2").splitlines()
    run_path = folder_of(tmp_path).path
    assert out[0] == (
        "training scripted with counting: backend scripted, device cpu, 2 environments, seed 5, 2 iterations"
    )
    assert out[1] == f"run folder: {run_path}"
    assert out[2].startswith("iteration 1  env steps 4  steps/s 8  value loss 1  ETA ")
    assert out[-4:] == [
        "finished after 2 iterations, 8 env steps",
        f"checkpoint: {run_path}/checkpoints/model_2.pt",
        f"measure it: unilab eval {run_path}",
        f"go on:      unilab train --resume {run_path} --iterations 4",
    ]


def test_resume_latest_continues_and_says_that_it_is_warm(tmp_path, capsys):
    train(capsys)
    code, out, err = run(capsys, "train", "--resume", "latest", "--iterations", "5")
    assert (code, err) == (0, "")
    assert "resuming after iteration 3, 24 env steps (warm: environments start new episodes)" in out
    assert list_checkpoints(folder_of(tmp_path).checkpoints)[-1].name == "model_5.pt"


def test_resume_accepts_the_runs_own_options_again(tmp_path, capsys):
    train(capsys)
    own = (
        "SCRIPTED",
        "--algo",
        "counting",
        "--backend",
        "scripted",
        "--device",
        "cpu",
        "--num-envs",
        "4",
        "--seed",
        "0",
        "--eval-interval",
        "0",
    )
    assert run(capsys, "train", *own, "--resume", "latest", "--iterations", "4")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("other-task",), "TASK other-task contradicts --resume"),
        (("--algo", "ppo"), "--algo ppo contradicts --resume"),
        (("--backend", "mujoco"), "--backend mujoco contradicts --resume"),
        (("--num-envs", "5"), "--num-envs 5 contradicts --resume: the run"),
        (("--seed", "1"), "--seed 1 contradicts --resume"),
        (("--set", "gain=2.0"), "--set gain=2.0 contradicts --resume"),
        (("--eval-interval", "2"), "--eval-interval 2 contradicts --resume"),
    ],
)
def test_resume_refuses_options_that_would_make_it_another_run(capsys, args, message):
    train(capsys)
    code, _, err = run(capsys, "train", *args, "--resume", "latest", "--iterations", "9")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("train",), "train needs a TASK"),
        (("train", "scriptd"), "unknown task 'scriptd'; did you mean 'scripted'"),
        (("train", "scripted", "--algo", "pppo"), "unknown algorithm 'pppo'; did you mean 'ppo'"),
        (
            ("train", "scripted", "--iterations", "3", "--steps", "5"),
            "--iterations and --steps contradict each other",
        ),
        (("train", "scripted", "--iterations", "0"), "0 is not in the range"),
        (("train", "scripted", "--set", "gian=1"), "unknown key 'gian'; did you mean 'gain'?"),
        (("train", "scripted", "--set", "learner.raet=1"), "unknown key 'raet'; did you mean 'rate'?"),
        (("train", "scripted", "--set", "gain"), "expected PATH=VALUE"),
        (("train", "scripted", "--runs", "/dev/null/runs"), "choose another place with --runs DIR"),
        (("train", "--resume", "latest"), "no runs below 'runs' yet"),
        (("train", "--resume", "runs/nothing"), "no run 'runs/nothing'"),
        (("eval",), "no runs below 'runs' yet"),
        (("eval", "runs/nothing"), "no run 'runs/nothing'"),
    ],
)
def test_bad_input_is_one_message_on_stderr_exit_code_2_and_no_file(tmp_path, capsys, args, message):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_that_is_named_is_bad_input_for_both_commands(tmp_path, capsys):
    train(capsys)
    path = folder_of(tmp_path).checkpoints / "model_3.pt"
    path.write_bytes(b"")
    for args in (("train", "--resume", str(path), "--iterations", "9"), ("eval", str(path))):
        code, _, err = run(capsys, *args)
        assert code == 2
        assert "model_3.pt: the file is empty; use the older" in err


def test_a_damaged_checkpoint_of_a_run_that_is_named_is_passed_over_with_a_warning(tmp_path, capsys, caplog):
    train(capsys)
    folder = folder_of(tmp_path)
    (folder.checkpoints / "model_3.pt").write_bytes(b"")
    for args in (("eval", str(folder.path), "--json"), ("train", "--resume", "latest", "--iterations", "4")):
        caplog.clear()
        code, out, _ = run(capsys, *args)
        assert code == 0
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
        assert "model_3.pt: the file is empty" in caplog.text
        assert "model_2.pt instead" in caplog.text
        assert '"iteration": 2' in out if args[0] == "eval" else "resuming after iteration 2" in out


def test_resume_prints_from_and_to_which_iteration(tmp_path, capsys):
    train(capsys)
    assert (
        "continuing at iteration 4 to iteration 5\n"
        in run(capsys, "train", "--resume", "latest", "--iterations", "5")[1]
    )
    assert (
        "continuing at iteration 6 until 60 steps\n"
        in run(capsys, "train", "--resume", "latest", "--steps", "60")[1]
    )


def test_eval_measures_the_deterministic_policy_and_prints_json(tmp_path, capsys):
    train(capsys)
    code, out, err = run(capsys, "eval", "latest", "--episodes", "6", "--baseline", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert (result["task"], result["iteration"], result["backend"], result["seed"]) == (
        "scripted",
        3,
        "scripted",
        1_000_000,
    )
    # The saved weight 3 acts as 0.3: reward 1 - 0.09 in each of 5 steps. Doing nothing earns 1.
    assert result["policy"]["episodes"] == 6
    assert result["policy"]["return_mean"] == pytest.approx(4.55)
    assert result["policy"]["return_ci95"] == pytest.approx(0.0, abs=1e-6)
    assert result["policy"]["length_mean"] == 5.0
    assert result["policy"]["truncated_share"] == 1.0
    assert result["zero_policy"]["return_mean"] == pytest.approx(5.0)


def test_eval_takes_a_checkpoint_and_prints_a_table(tmp_path, capsys):
    train(capsys)
    path = folder_of(tmp_path).checkpoints / "model_2.pt"
    code, out, _ = run(capsys, "eval", str(path), "--episodes", "2", "--seed", "3", "--baseline")
    assert code == 0
    assert out.splitlines() == [
        f"scripted, {path}: backend scripted, device cpu, seed 3, config as trained",
        "┏━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━┓",
        "┃ measure                 ┃  policy ┃ zero policy ┃",
        "┡━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━┩",
        "│ episodes                │       2 │           2 │",
        "│ return (95 % interval)  │ 4.8 ± 0 │       5 ± 0 │",
        "│ length, steps           │       5 │           5 │",
        "│ reward per step         │    0.96 │           1 │",
        "│ reward per second       │    1.92 │           2 │",
        "│ terminated              │      0% │          0% │",
        "│ timed out               │    100% │        100% │",
        "│ falls, restarts counted │       0 │           0 │",
        "└─────────────────────────┴─────────┴─────────────┘",
    ]


def train_graded(capsys):
    code, _, err = run(capsys, "train", "scripted-graded", "--backend", "scripted")
    assert (code, err) == (0, "")


def test_eval_measures_on_the_tasks_evaluation_config_with_the_zero_policy_beside_it(capsys):
    train_graded(capsys)
    code, out, err = run(capsys, "eval", "latest", "--episodes", "4", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["evaluation"] == "rl_support:graded_cfg"
    assert (result["iteration"], result["env_steps"]) == (3, 24)
    # The evaluation config doubles the gain, and row 0 falls at 2 and 4 of 5 steps.
    assert result["policy"]["return_mean"] == pytest.approx(1.91 * 17 / 4)
    assert result["policy"]["falls"] == 2
    assert result["policy"]["metrics"] == {"Metrics/age": 3.8}
    assert result["zero_policy"]["return_mean"] == pytest.approx(2.0 * 17 / 4)


def test_eval_shows_metrics_in_the_table(capsys):
    train_graded(capsys)
    _, out, _ = run(capsys, "eval", "latest", "--episodes", "4", "--no-baseline")
    assert out.splitlines()[0].endswith("evaluation config rl_support:graded_cfg")
    assert "zero policy" not in out
    assert "│ Metrics/age             │" in out


def test_eval_as_trained_takes_the_config_of_the_training_and_no_baseline(capsys):
    train_graded(capsys)
    result = json.loads(run(capsys, "eval", "latest", "--episodes", "4", "--as-trained", "--json")[1])
    assert result["evaluation"] is None
    assert result["policy"]["return_mean"] == pytest.approx(0.91 * 5)
    assert "zero_policy" not in result


def test_a_metric_that_is_not_finite_is_null_in_json():
    result = {"episodes": 1, "metrics": {"Metrics/a": float("nan"), "Metrics/b": 1.0}}
    assert _finite(result) == {"episodes": 1, "metrics": {"Metrics/a": None, "Metrics/b": 1.0}}


def test_eval_on_a_backend_that_cannot_is_bad_input(capsys):
    train(capsys)
    code, _, err = run(capsys, "eval", "latest", "--backend", "nothing")
    assert code == 2
    assert "unknown backend 'nothing'" in err


def test_ppo_trains_and_is_measured_from_the_command_line(tmp_path, capsys):
    train(capsys, "--algo", "ppo", "--set", "learner.learning_rate=5e-4", "--iterations", "2")
    folder = folder_of(tmp_path)
    assert folder.config().learner.learning_rate == 5e-4
    assert load_checkpoint(folder.checkpoints / "model_2.pt").algorithm == "ppo"
    code, out, _ = run(capsys, "eval", "--episodes", "3", "--json")
    assert code == 0
    assert json.loads(out)["policy"]["episodes"] == 3


def progress(iteration, *, elapsed_s, used, **metrics):
    return Progress(iteration, 8 * iteration, elapsed_s, used, Iteration(8, 0.5, 0.5, metrics))


def test_progress_lines_are_spaced_in_time_and_the_last_is_always_shown(capsys):
    times = iter([0.0, 0.4, 1.2, 1.3])
    shown = PlainProgress(interval_s=1.0, clock=lambda: next(times))
    for iteration in range(1, 5):
        shown.on_iteration(progress(iteration, elapsed_s=float(iteration), used=iteration / 4))
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        *("iteration 1", "iteration 3", "iteration 4"),
    ]


def test_the_shown_return_is_the_mean_over_the_last_hundred_episodes_or_more(capsys):
    shown = PlainProgress(interval_s=0.0, clock=lambda: 0.0)
    for iteration, (mean, count) in enumerate([(1.0, 90), (2.0, 60), (4.0, 60)], start=1):
        metrics = {"Episode/return": mean, "Episode/length": 10 * mean, "Episode/count": count}
        shown.on_iteration(progress(iteration, elapsed_s=1.0, used=0.5, **metrics))
    lines = capsys.readouterr().out.splitlines()
    assert "return 1  length 10" in lines[0]
    assert "return 1.4  length 14" in lines[1]  # (90 + 120) / 150
    assert "return 3  length 30" in lines[2]  # the first is no longer needed for a hundred: (120 + 240) / 120


def test_the_remaining_time_is_extrapolated_from_this_process_alone(capsys):
    shown = PlainProgress(interval_s=0.0, clock=lambda: 0.0)
    shown.view.used_before = 0.5
    shown.on_iteration(progress(6, elapsed_s=60.0, used=0.6))
    assert capsys.readouterr().out.endswith("ETA 4:00\n")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (605, "10:05"), (3661, "1:01:01")]
)
def test_durations_are_minutes_and_seconds(seconds, text):
    assert format_duration(seconds) == text
