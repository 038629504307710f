"""The policies of off-policy algorithms, trained and saved, are exported as any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from export_support import SOURCE, DescribedEnv
from off_policy_support import ALGORITHMS, small
from rl_support import ScriptedEnvCfg

from unilab_rl.contracts.algorithm import ExportablePolicy
from unilab_rl.export.exporter import export_policy
from unilab_rl.export.policy_runner import PolicyRunner
from unilab_rl.export.torchscript import load_torchscript
from unilab_rl.runtime.off_policy_algorithm import OffPolicyAlgorithm


def _env() -> DescribedEnv:
    return DescribedEnv(ScriptedEnvCfg(critic=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_every_file_does_what_the_trained_policy_does(algorithm: OffPolicyAlgorithm, tmp_path: Path) -> None:
    cfg = small(algorithm, **({} if algorithm.name == "flash_sac" else {"obs_normalization": True}))
    learner = algorithm.make_learner(_env(), cfg, seed=3)
    for _ in range(3):
        learner.iterate()
    policy = algorithm.make_policy(_env(), cfg, learner.state())
    assert isinstance(policy, ExportablePolicy)
    made = export_policy(_env(), policy, SOURCE, tmp_path / "made")
    session = onnxruntime.InferenceSession(made.folder / "policy.onnx", providers=["CPUExecutionProvider"])
    for batch in (1, 7):
        # Ages and row numbers of this environment spread by a few units: 100 is far more than 50 deviations of some.
        obs = 100.0 * torch.randn(batch, 2, generator=torch.Generator().manual_seed(batch))
        expected = policy({"obs": obs, "critic": torch.zeros(batch, 3)}).numpy()
        rows = obs.numpy()
        for actions, _ in (
            PolicyRunner(made.folder)(rows),
            session.run(["actions", "targets"], {"obs": rows}),
            load_torchscript(made.folder / "policy.pt")(obs),
        ):
            np.testing.assert_allclose(np.asarray(actions), expected, rtol=0.0, atol=1e-5)
    assert np.ptp(PolicyRunner(made.folder)(np.eye(2, dtype=np.float32) * 5.0)[0], axis=0).max() > 1e-4


def test_a_module_that_was_taken_does_not_follow_later_updates() -> None:
    algorithm = ALGORITHMS[0]
    learner = algorithm.make_learner(_env(), small(algorithm), seed=3)
    policy, obs = learner.policy(), torch.ones(1, 2)
    before = policy.module(obs)
    taken = policy.module
    for _ in range(3):
        learner.iterate()
    assert torch.equal(taken(obs), before)
    assert not torch.equal(policy.module(obs), before)
