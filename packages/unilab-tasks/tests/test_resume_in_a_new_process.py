"""A run that a new process continues is the run that never stopped, bit for bit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import torch

from unilab_rl import Checkpoint, RunFolder, load_checkpoint

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
_OPTIONS = ("cartpole-swingup", "--num-envs", "16", "--seed", "3", "--set", "learner.obs_normalization=true")
_MADE_BY_THE_CLOCK = ("elapsed_s", "collect_s", "learn_s", "resumed")


def _train(cli: Cli, *args: str) -> str:
    done = cli("train", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _folder(runs: Path) -> RunFolder:
    (path,) = (runs / "cartpole-swingup").iterdir()
    return RunFolder(path)


def _bits(value: object) -> object:
    """Returns plain data that is equal only where every bit of every tensor is."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _bits(entry) for key, entry in value.items()}
    return [_bits(entry) for entry in value] if isinstance(value, list | tuple) else value


def _learnt(folder: RunFolder) -> list[dict[str, object]]:
    """Returns the lines of metrics without what a clock says."""
    return [
        {
            **{key: value for key, value in line.items() if key not in _MADE_BY_THE_CLOCK},
            "metrics": {key: value for key, value in line["metrics"].items() if not key.startswith("Perf/")},
        }
        for line in folder.metrics()
    ]


def test_three_and_three_iterations_of_ppo_in_two_processes_equal_six_in_one(cli: Cli, tmp_path: Path):
    _train(cli, *_OPTIONS, "--iterations", "6", "--runs", "whole")
    _train(cli, *_OPTIONS, "--iterations", "3", "--runs", "parts")
    whole, parts = _folder(tmp_path / "whole"), _folder(tmp_path / "parts")
    shown = _train(cli, "--resume", str(parts.path), "--iterations", "6")
    assert (
        "resuming after iteration 3, 1,536 env steps (exact: bit for bit as if it had not stopped)\n" in shown
    )
    assert "continuing at iteration 4 to iteration 6\n" in shown
    assert [line["resumed"] for line in parts.metrics()] == [None, None, None, "exact", None, None]
    one, two = (load_checkpoint(folder.checkpoints / "model_6.pt") for folder in (whole, parts))
    assert one.normalizer  # the normaliser is on and has counted
    assert one.env_state is not None
    for field in fields(Checkpoint):
        if field.name != "config":
            assert _bits(getattr(one, field.name)) == _bits(getattr(two, field.name)), field.name
    assert json.dumps(_learnt(whole)) == json.dumps(_learnt(parts))
