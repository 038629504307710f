"""The command line from end to end: a policy learns, and every wrong input is one message, exit 2 and no trace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unilab_core.cli import main

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_list_shows_every_task_and_imports_no_engine(cli: Cli):
    program = (
        "import sys; from unilab_core.cli import main; main(['list', '--json']); "
        "print(*sorted({'torch', 'mujoco', 'rsl_rl'} & set(sys.modules)), file=sys.stderr)"
    )
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert listed.stderr.strip() == ""
    found = json.loads(cli("list", "--json").stdout)
    names = ["cartpole-balance", "cartpole-swingup", "velocity-flat-quadruped"]
    assert [task["name"] for task in found["tasks"]] == names
    assert found["backends"] == ["mujoco", "mujoco_warp"]
    assert found["algorithms"] == ["fast_sac", "fast_td3", "flash_sac", "ppo", "sac", "td3"]


def test_training_reaches_95_percent_of_the_maximum_return(cli: Cli, tmp_path: Path):
    trained = cli("train", "cartpole-balance")
    assert trained.returncode == 0, trained.stderr
    run = next((tmp_path / "runs" / "cartpole-balance").iterdir())
    assert f"unilab eval runs/cartpole-balance/{run.name}" in trained.stdout
    measured = cli("eval", "latest", "--json")
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["policy"]["return_mean"] > 0.95 * 500


def _checkpoint(runs: Path, iteration: int) -> dict[str, Any]:
    return torch.load(next(runs.glob(f"*/*/checkpoints/model_{iteration}.pt")), weights_only=True)


def _assert_same(a: object, b: object, path: str = "") -> None:
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor), path
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert isinstance(b, dict), path
        assert a.keys() == b.keys(), path
        for key in a:
            _assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        assert isinstance(b, list | tuple), path
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _assert_same(x, y, f"{path}[{i}]")
    else:
        assert a == b, path


def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    options = ["cartpole-swingup", "--num-envs", "16", "--seed", "3"]
    assert main(["train", *options, "--iterations", "4", "--runs", "whole"]) == 0
    assert main(["train", *options, "--iterations", "2", "--runs", "parts"]) == 0
    run = next((tmp_path / "parts" / "cartpole-swingup").iterdir())
    assert main(["train", "--resume", str(run), "--iterations", "4"]) == 0
    whole, resumed = _checkpoint(tmp_path / "whole", 4), _checkpoint(tmp_path / "parts", 4)
    assert whole["env_state"] is not None
    for part in (
        "iteration",
        "env_steps",
        "learner",
        "optimizer",
        "normalizer",
        "env_training_state",
        "env_state",
        "rng",
    ):
        _assert_same(whole[part], resumed[part], part)
    kinds = [json.loads(line)["resumed"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert kinds == [None, None, "exact", None]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "cartpole-balanse"], "did you mean 'cartpole-balance'"),
        (["trian", "cartpole-balance"], "did you mean 'train'"),
        (["train", "cartpole-balance", "--set", "rewards.smoth.weight=2"], "did you mean 'smooth'"),
        (["train", "cartpole-balance", "--set", "decimation=two"], "decimation"),
        (
            ["train", "cartpole-balance", "--set", "rewards.smooth.params.margin=1"],
            "has no parameter 'margin'",
        ),
        (["train", "cartpole-balance", "--set", "learner.gama=0.9"], "did you mean 'gamma'"),
        (["train", "cartpole-balance", "--algo", "pppo"], "'ppo'"),
        (["train", "cartpole-balance", "--backend", "mujco"], "did you mean 'mujoco'"),
        (["train", "cartpole-balance", "--device", "cuda"], "'cuda'"),
        (["train", "cartpole-balance", "--device", "banana"], "'banana' is no torch device"),
        (["train", "cartpole-balance", "--seed", "99999999999999999999999"], "seed"),
        (["train", "cartpole-balance", "--num-envs", "0"], "num-envs"),
        (["eval", "latest"], "no run"),
    ],
)
def test_bad_input_is_one_message_exit_2_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    message: str,
):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert _files(tmp_path) == []


def test_an_unwritable_run_folder_is_named_before_anything_is_built(cli: Cli, tmp_path: Path):
    blocked = tmp_path / "taken"
    blocked.write_text("a file where the runs should go")
    failed = cli("train", "cartpole-balance", "--runs", str(blocked), "--iterations", "1")
    assert failed.returncode == 2
    assert str(blocked) in failed.stderr
    assert "Traceback" not in failed.stderr
    assert _files(tmp_path) == ["taken"]
