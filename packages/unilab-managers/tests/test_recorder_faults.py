"""EpisodeRecorder: whatever fails, a file is whole or not there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from action_support import same
from manager_support import (
    Feed,
    MakeEnv,
    base_cfg,
    calls,
    ids,
    layout_of,
    zeros,
)
from recorder_support import ENDS, files, go, load, made, recorder

from unilab_core import EnvFaultedError, ResetRejectedError
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    RewardTermCfg,
)
from unisim.testing import FakeBackend, Fault


def explodes(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if "explode" in calls:
        raise ArithmeticError("no")


def reward_explodes(env: ManagerBasedRlEnv) -> torch.Tensor:
    if "explode" in calls:
        raise ArithmeticError("no")
    return torch.zeros(env.num_envs)


def test_an_environment_in_no_defined_state_writes_nothing_more(make_env: MakeEnv, tmp_path: Path) -> None:
    rewards = {"bad": RewardTermCfg(func=reward_explodes, weight=1.0)}
    env, feed = made(make_env, tmp_path, rewards=rewards)
    go(env, feed, 1.0)
    calls.append("explode")
    with pytest.raises(ArithmeticError):
        go(env, feed, 2.0)
    env.close()
    assert files(tmp_path) == []


def test_a_rejected_reset_leaves_no_file_and_goes_on_recording(make_env: MakeEnv, tmp_path: Path) -> None:
    event = {"explodes": EventTermCfg(func=explodes, mode="reset")}
    env, feed = made(make_env, tmp_path, events=event)
    go(env, feed, 1.0)
    before = env.state_dict()
    calls.append("explode")
    with pytest.raises(ResetRejectedError):
        env.reset()
    assert files(tmp_path) == []
    assert same(env.state_dict(), before)
    with pytest.raises(ResetRejectedError):
        go(env, feed, 2.0, fall=0)
    assert files(tmp_path) == []
    calls.clear()
    env.reset(ids(0))
    assert load(tmp_path, 0)["actions"][:, 0].tolist() == [1, 2]
    assert bool(load(tmp_path, 0)["complete"])


@pytest.mark.parametrize("kind", ["before_commit", "after_first_write"])
def test_a_commit_that_fails_leaves_no_file(tmp_path: Path, kind: Any) -> None:
    cfg = base_cfg(terminations=ENDS, recorders=recorder(tmp_path))
    feed = Feed()
    backend = FakeBackend(layout_of(), 2, script=feed, faults=[Fault(kind, at=1)])
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        env.reset()
        feed.probe([[0.0, 0.0, 1.0]] * 2)
        with pytest.raises(ResetRejectedError if kind == "before_commit" else RuntimeError):
            env.step(zeros(env))
        assert files(tmp_path) == []
    # Closing keeps what the rejected one had finished; nothing is kept of what is in no defined state.
    assert files(tmp_path) == (["episode_000000.npz"] if kind == "before_commit" else [])


def test_a_write_that_fails_leaves_nothing_half_written(
    make_env: MakeEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, feed = made(make_env, tmp_path)

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        go(env, feed, 1.0, fall=0)
    assert files(tmp_path) == []
    with pytest.raises(EnvFaultedError):
        env.step(zeros(env))
    env.close()
    assert files(tmp_path) == []


def test_no_file_is_ever_replaced(make_env: MakeEnv, tmp_path: Path) -> None:
    for taken in (0, 1, 3):
        (tmp_path / f"episode_{taken:06d}.npz").write_bytes(b"kept")
    env, feed = made(make_env, tmp_path)
    go(env, feed, 1.0, fall=0)
    go(env, feed, 2.0, fall=0)
    assert [int(load(tmp_path, n)["episode"]) for n in (2, 4)] == [2, 4]
    assert [(tmp_path / f"episode_{n:06d}.npz").read_bytes() for n in (0, 1, 3)] == [b"kept"] * 3


def test_building_an_environment_touches_no_folder(make_env: MakeEnv, tmp_path: Path) -> None:
    env, _ = made(make_env, tmp_path / "new", reset=False)
    env.close()
    assert not (tmp_path / "new").exists()
