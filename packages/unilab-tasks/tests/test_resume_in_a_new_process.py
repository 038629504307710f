"""A run that a new process continues is the run that never stopped, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from unilab_core import make_env
from unilab_rl import BudgetCfg, Checkpoint, RunFolder, TrainRequest, load_checkpoint, train
from unilab_rl.checkpoint import load_checkpoint_with_replay

pytestmark = pytest.mark.timeout(300)  # processes import torch and MuJoCo, which takes long where many do

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
_MADE_BY_THE_CLOCK = ("elapsed_s", "collect_s", "learn_s", "resumed")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Lets this process compute with one thread as the others do: sums in other orders have other last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _trained(
    algorithm: str, runs: Path, iterations: int, *, num_envs: int, overrides: tuple[str, ...]
) -> RunFolder:
    """Returns a run of so many iterations, trained in this process."""
    request = TrainRequest(
        task="cartpole-swingup",
        algorithm=algorithm,
        num_envs=num_envs,
        seed=3,
        budget=BudgetCfg(iterations=iterations),
        overrides=overrides,
        runs=runs,
    )
    return RunFolder(train(request).checkpoint.parent.parent)


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


def _next_observations(folder: RunFolder, checkpoint: Checkpoint) -> list[object]:
    """Returns what an environment of the run observes where the checkpoint left it, and in the steps from there."""
    config = folder.config()
    with closing(make_env(config.env, backend="mujoco", num_envs=config.num_envs, seed=99)) as env:
        env.reset()
        assert checkpoint.env_state is not None
        env.load_state_dict(checkpoint.env_state)
        seen = [_bits(env.observations())]
        for step in range(3):
            env.step(torch.full((config.num_envs, env.num_actions), 0.3 * step))
            seen.append(_bits(env.observations()))
        return seen


def _check_equal_ends(whole: RunFolder, parts: RunFolder) -> Checkpoint:
    """Compares two runs after six iterations, bit for bit, and returns the checkpoint of the first."""
    one, two = (load_checkpoint(folder.checkpoints / "model_6.pt") for folder in (whole, parts))
    assert one.env_state is not None
    for field in fields(Checkpoint):
        if field.name != "config":
            assert _bits(getattr(one, field.name)) == _bits(getattr(two, field.name)), field.name
    assert json.dumps(_learnt(whole)) == json.dumps(_learnt(parts))
    assert _next_observations(whole, one) == _next_observations(parts, two)
    return one


def test_check_14_three_and_three_iterations_of_ppo_in_two_processes_equal_six_in_one(
    cli: Cli, tmp_path: Path
):
    overrides = ("learner.obs_normalization=true",)
    whole, parts = (
        _trained("ppo", tmp_path / str(stop), stop, num_envs=16, overrides=overrides) for stop in (6, 3)
    )
    resumed = cli("train", "--resume", str(parts.path), "--iterations", "6")
    assert resumed.returncode == 0, resumed.stderr
    assert (
        "resuming after iteration 3, 1,536 env steps (exact: bit for bit as if it had not stopped)\n"
        in resumed.stdout
    )
    assert "continuing at iteration 4 to iteration 6\n" in resumed.stdout
    assert [line["resumed"] for line in parts.metrics()] == [None, None, None, "exact", None, None]
    one = _check_equal_ends(whole, parts)
    lines = parts.metrics()
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["env_steps"] for line in lines] == [512 * number for number in range(1, 7)]
    # The rate that the adaptive schedule had come to goes on, not that of the config.
    half = load_checkpoint(parts.checkpoints / "model_3.pt")
    rate = half.optimizer["param_groups"][0]["lr"]
    assert rate == lines[2]["metrics"]["Policy/learning_rate"] != parts.config().learner.learning_rate
    counts = [one.normalizer[network]["obs_normalizer.count"].item() for network in ("actor", "critic")]
    assert counts == [6 * 512, 6 * 512]  # the normalisers are on, and count every sample once


_TINY = ("hidden_dims=[16,16]",)
_TINY_DISTRIBUTIONAL = ("actor_hidden_dims=[16,16]", "critic_hidden_dims=[16,16]", "num_atoms=11")
_SETTINGS = {
    "sac": (*_TINY, "obs_normalization=true"),
    "td3": (*_TINY, "obs_normalization=true"),
    "fast_sac": (*_TINY_DISTRIBUTIONAL, "obs_normalization=true"),
    "fast_td3": (
        *_TINY_DISTRIBUTIONAL,
        *("obs_normalization=true", "reward_normalization=true", "v_min=-10.0", "v_max=10.0"),
    ),
    "flash_sac": ("actor_width=16", "critic_width=16", "num_atoms=11"),
}
# 36 steps of 3 environments, on a replay of 24: it is full in the second half, and episodes of 30 steps end in both.
_SHORT = (
    *("num_steps_per_env=6", "batch_size=16", "buffer_size=72", "warmup_steps=3", "updates_per_step=2"),
    *("n_step=2", "save_replay=true", "save_interval=100"),
)
_RESUME_ALL = """
import sys
from pathlib import Path
import torch
from unilab_rl import BudgetCfg, RunFolder, resume
torch.set_num_threads(1)
for path in sys.argv[1:]:
    resume(RunFolder(Path(path)), budget=BudgetCfg(iterations=6))
"""


@pytest.fixture(scope="module")
def off_policy_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RunFolder, RunFolder]]:
    """Returns, by algorithm, a run of six iterations, and one of three that a new process has continued to six."""
    root = tmp_path_factory.mktemp("runs")
    runs = {}
    for algorithm, settings in _SETTINGS.items():
        overrides = ("episode_length_s=0.6", *(f"learner.{setting}" for setting in (*_SHORT, *settings)))
        whole, parts = (
            _trained(algorithm, root / f"{algorithm}-{stop}", stop, num_envs=3, overrides=overrides)
            for stop in (6, 3)
        )
        runs[algorithm] = whole, parts
    paths = [str(parts.path) for _, parts in runs.values()]
    done = subprocess.run(
        [sys.executable, "-c", _RESUME_ALL, *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return runs


@pytest.mark.parametrize("algorithm", _SETTINGS)
def test_check_14_three_and_three_iterations_off_policy_in_two_processes_equal_six_in_one(
    off_policy_runs: dict[str, tuple[RunFolder, RunFolder]], algorithm: str
):
    whole, parts = off_policy_runs[algorithm]
    assert [line["resumed"] for line in parts.metrics()] == [None, None, None, "exact", None, None]
    halves = load_checkpoint(parts.checkpoints / "model_3.pt")
    one = _check_equal_ends(whole, parts)
    # Both halves learned: after each of 36 steps but the first three.
    assert (halves.learner["updates"], one.learner["updates"]) == (2 * (18 - 3), 2 * (36 - 3))
    assert halves.env_steps == 54
    normalizer = {f"{net}.{name}" for net, held in one.normalizer.items() for name in held}
    assert normalizer, "there is no normaliser, so it can't be compared"
    # Equal digests are equal replays; the contents themselves are compared too, for what they must be.
    contents = [
        load_checkpoint_with_replay(folder.checkpoints / "model_6.pt").learner["replay"].restore()
        for folder in (whole, parts)
    ]
    assert _bits(contents[0]) == _bits(contents[1])
    assert contents[0]["num_adds"] == 36
    assert tuple(contents[0]["rows"].shape[:2]) == (3, 25)
    assert contents[0]["pushed"].tolist() == [36] * 3
    assert min(contents[0]["first"].tolist()) > 0  # some were dropped, so it is full
