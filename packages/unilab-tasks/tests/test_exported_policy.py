"""An exported policy drives a simulated robot as the training's own policy would, from its files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unilab_core import make_env
from unilab_core.cli import main
from unilab_managers import ManagerBasedRlEnv
from unilab_rl.export.parity import runners
from unilab_rl.export.policy_runner import PolicyRunner

STEPS = 200


@pytest.fixture(scope="module", params=["velocity-flat-quadruped", "cartpole-swingup"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A task and the folder of a policy that learned on it for one iteration."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        budget = ("--num-envs", "16", "--iterations", "1", "--set", "learner.obs_normalization=true")
        assert main(["train", request.param, *budget]) == 0
        assert main(["export", "latest", "--output", "policy"]) == 0
    return request.param, folder / "policy"


def _controls(env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The controls, each (N, nu), that the environment will send in its steps."""
    sent: list[np.ndarray] = []
    process = env.action_manager.process

    def noted(actions: torch.Tensor) -> torch.Tensor:
        control = process(actions)
        sent.append(control.cpu().numpy().copy())
        return control

    monkeypatch.setattr(env.action_manager, "process", noted)
    return sent


def test_the_runner_reproduces_the_controls_of_an_episode_from_the_metadata_alone(
    exported: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
):
    task, folder = exported
    runner = PolicyRunner(folder)
    columns = [action["control_column"] for action in runner.metadata["actions"]]
    with make_env(task, num_envs=3, seed=11) as env:
        assert isinstance(env, ManagerBasedRlEnv)
        assert runner.observation_labels == env.describe().observations["obs"]
        assert runner.step_dt == env.step_dt
        sent = _controls(env, monkeypatch)
        obs = env.reset()[0]["obs"]
        targets = []
        for _ in range(STEPS):
            action, target = runner(obs.numpy())
            obs = env.step(torch.from_numpy(action)).obs["obs"].clone()
            np.testing.assert_allclose(target, sent[-1][:, columns], rtol=1e-6, atol=1e-6)
            targets.append(target)
    assert len(sent) == STEPS
    # No joint was held still, which any law would reproduce.
    assert (np.ptp(np.stack(targets), axis=(0, 1)) > 0.01).all()


def test_the_runner_clips_targets_as_the_environment_does(
    exported: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
):
    task, folder = exported
    runner = PolicyRunner(folder)
    columns = [action["control_column"] for action in runner.metadata["actions"]]
    low, high = (
        np.array(ends) for ends in zip(*(a["clip"] for a in runner.metadata["actions"]), strict=True)
    )
    generator = np.random.default_rng(0)
    with make_env(task, num_envs=64, seed=11) as env:
        assert isinstance(env, ManagerBasedRlEnv)
        sent = _controls(env, monkeypatch)
        env.reset()
        actions = generator.normal(0.0, 9.0, (64, len(columns))).astype(np.float32)
        env.step(torch.from_numpy(actions))
        target = runner.target(actions)
        np.testing.assert_allclose(target, sent[-1][:, columns], rtol=1e-6, atol=1e-6)
    for end in (low, high):
        reached = np.isclose(target, end, atol=1e-6)
        assert reached.any(axis=0).all()
        assert not reached.all(axis=0).any()


def test_the_runner_acts_as_the_policy_on_observations_of_the_simulator(exported: tuple[str, Path]):
    """In a process that has nothing of this workspace: the file beside the weights, and NumPy."""
    task, folder = exported
    alone = folder.parent / "alone"
    shutil.copytree(folder, alone, dirs_exist_ok=True)
    (alone / "policy.onnx").unlink(missing_ok=True)
    (alone / "policy.pt").unlink(missing_ok=True)
    with make_env(task, num_envs=7, seed=3) as env:
        obs = env.reset()[0]["obs"].numpy()
    np.save(alone / "obs.npy", obs)
    program = (
        "import sys; sys.path.insert(0, '.'); import numpy; from policy_runner import PolicyRunner; "
        "numpy.save('action.npy', PolicyRunner('.').action(numpy.load('obs.npy'))); "
        "assert not {'torch', 'unilab_rl', 'mujoco'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-B", "-c", program], cwd=alone, check=True)
    for name, run in runners(folder).items():
        expected, _ = run(torch.from_numpy(obs))
        np.testing.assert_allclose(np.load(alone / "action.npy"), expected, atol=1e-5, err_msg=name)
