"""An exported policy drives a simulated robot as the training's own policy would, from its files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unilab_core import TorchEnv, load_env_cfg, make_env
from unilab_core.cli import main
from unilab_managers import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from unilab_managers.mdp.actions.joint_actions import AffineJointTerm
from unilab_rl.export.parity import runners
from unilab_rl.export.policy_runner import PolicyRunner
from unilab_rl.export.targets import UnknownTargetError, target_law

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


class SmoothTerm(AffineJointTerm):
    """tanh(action) x scale + offset, of which neither settings nor bounds show anything."""

    def _targets(self, actions: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self._offset, actions.tanh(), self._scale)


class SmoothEffortActionCfg(mdp.JointEffortActionCfg):
    """An effort that has all settings of the library's."""

    def make(self, env: TorchEnv, name: str) -> SmoothTerm:
        return SmoothTerm(self, env, name, self.offset)


class SofterEffortActionCfg(mdp.JointEffortActionCfg):
    """One that isn't changed, which nobody can tell from one that is."""

    scale: float = 0.5


MOTOR = {"saturation_effort": 1e3, "velocity_limit": 1e3, "effort_limit": 4.0}


def _cartpole(action: mdp.JointActionCfg) -> ManagerBasedRlEnv:
    """A cartpole whose cart is driven by this action."""
    cfg = load_env_cfg("cartpole-swingup", num_envs=64)
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    env = make_env(cfg.model_copy(update={"actions": {"force": action}}))
    assert isinstance(env, ManagerBasedRlEnv)
    return env


@pytest.mark.parametrize(
    "action",
    [
        mdp.JointEffortActionCfg(scale=0.4, offset=0.1),
        mdp.JointVelocityActionCfg(scale=-0.4, offset={"slider": 0.1}),
        mdp.JointPositionActionCfg(scale={"sl.*": 0.4}, clip=(-0.3, 0.6)),
        mdp.DcMotorEffortActionCfg(scale=0.4, offset=0.1, **MOTOR),
        mdp.DcMotorPositionActionCfg(scale=0.4, clip=(-0.3, 0.6), stiffness=1.0, damping=0.0, **MOTOR),
    ],
    ids=lambda action: type(action).__name__,
)
def test_the_law_of_every_term_that_has_one_is_what_the_environment_does(action: mdp.JointActionCfg):
    with _cartpole(action) as env:
        env.reset(seed=4)
        law = target_law(env.describe())
        actions = torch.linspace(-4.0, 4.0, 64).unsqueeze(1)
        (gear,) = (actuator.gear for actuator in env.model_layout.actuators)
        control = env.action_manager.process(actions)
        if isinstance(action, mdp.DcMotorActionCfg):  # the control is the effort behind the gear
            control = control * gear
        if isinstance(action, mdp.DcMotorPositionActionCfg):
            # With a stiffness of 1, effort = target - position.
            control = control + env.scene["robot"].data.joint_pos[:, :1]
        torch.testing.assert_close(law(actions), control, rtol=1e-6, atol=1e-6)
        assert control.unique().numel() > 10


@pytest.mark.parametrize(
    "action",
    [SmoothEffortActionCfg(), SofterEffortActionCfg(), mdp.JointRelativePositionActionCfg()],
    ids=lambda action: type(action).__name__,
)
def test_a_term_of_another_class_has_no_law_though_it_may_have_all_settings(action: mdp.JointActionCfg):
    with _cartpole(action) as env, pytest.raises(UnknownTargetError, match=type(action).__name__):
        target_law(env.describe())
