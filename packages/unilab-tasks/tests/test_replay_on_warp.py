"""A NaN dump of a device-resident backend steps again exactly, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unilab_core import NonFiniteError, make_env
from unilab_core.cli import main
from unilab_managers import ManagerBasedRlEnv

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes


def explode(env: ManagerBasedRlEnv) -> torch.Tensor:
    """NaN for row 1 from the fifth step of an episode on."""
    late = (env.episode_length == 5) & (torch.arange(env.num_envs, device=env.device) == 1)
    return torch.where(late, float("nan"), 0.0)


def test_it_replays_on_its_own_backend_and_another_one_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    overrides = {
        "rewards": {"explode": {"func": explode, "weight": 1.0}},
        "nan_guard": {"policy": "raise", "dump_dir": str(tmp_path)},
    }
    with make_env("cartpole-balance", backend="mujoco_warp", num_envs=3, overrides=overrides) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        actions = [2.0 * torch.rand(3, env.num_actions, generator=generator) - 1.0 for _ in range(5)]
        for action in actions[:-1]:
            env.step(action)
        with pytest.raises(NonFiniteError, match=r"rows \[1\]"):
            env.step(actions[-1])
    (dump,) = tmp_path.glob("*.pt")
    assert main(["replay", str(dump), "--backend", "mujoco_warp"]) == 0
    assert "replayed exactly" in capsys.readouterr().out
    assert main(["replay", str(dump)]) == 2
    told = capsys.readouterr().err
    assert "backend 'mujoco' cannot take the dump's state" in told
    assert "'mujoco_warp'" in told
