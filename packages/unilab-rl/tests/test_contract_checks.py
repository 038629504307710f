"""The checks 12, 13 and 15 that a learner and its environment must pass, for PPO and every off-policy algorithm."""

import os
import signal

import numpy as np
import onnxruntime
import pytest
import torch
from checkpoint_support import equal
from export_support import SOURCE, DescribedEnv
from off_policy_support import ALGORITHMS, SAC, differences, leaves, small
from rl_support import COUNTING, ScriptedEnv, small_ppo

from unilab_core import ConfigError
from unilab_rl import PPO_ALGORITHM, TrainRequest, load_checkpoint, train
from unilab_rl.export.exporter import export_policy
from unilab_rl.export.policy_runner import PolicyRunner
from unilab_rl.export.torchscript import load_torchscript
from unilab_rl.replay import TransitionLayout

LEARNERS = [PPO_ALGORITHM, *ALGORITHMS]
named = pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda algorithm: algorithm.name)


def config(algorithm, **changes):
    return small_ppo(**changes) if algorithm is PPO_ALGORITHM else small(algorithm, **changes)


def normalised(algorithm):
    """A config with every normaliser on; FlashSAC's networks normalise by the batch and by nothing else."""
    return config(algorithm, **({} if algorithm.name == "flash_sac" else {"obs_normalization": True}))


def trained(algorithm, env=None, *, iterations=3, cfg=None):
    learner = algorithm.make_learner(env or DescribedEnv(), cfg or normalised(algorithm), seed=3)
    for _ in range(iterations):
        learner.iterate()
    return learner


def learned(state):
    """What a state holds of networks, optimisers and normalisers."""
    return [state.learner.get("networks", state.learner), state.optimizer, state.normalizer]


def counts(learner):
    """What each normaliser of observations has counted, by the dotted name of its counter."""
    found = leaves(learner.state().normalizer)
    return {path: int(value) for path, value in found.items() if path.endswith("obs_normalizer.count")}


@pytest.mark.parametrize(
    "algorithm",
    [algorithm for algorithm in LEARNERS if algorithm.name != "flash_sac"],
    ids=lambda algorithm: algorithm.name,
)
def test_check_12_each_normaliser_counts_every_sample_of_the_training_once(algorithm):
    learner = trained(algorithm)
    samples = 4 * learner.cfg.num_steps_per_env * 3
    found = counts(learner)
    assert any("actor" in path for path in found)
    assert any("critic" in path for path in found)
    assert set(found.values()) == {samples}


@named
def test_check_12_evaluating_changes_no_statistic(algorithm):
    learner = trained(algorithm)
    before = learner.state()
    policy = learner.policy()
    for _ in range(3):
        policy({"obs": torch.full((4, 2), 1e6), "critic": torch.full((4, 3), 1e6)})
    after = learner.state()
    assert equal(learned(before), learned(after))


@named
def test_check_12_an_export_is_the_policy_to_1e_6_for_raw_observations_however_large(algorithm, tmp_path):
    learner = trained(algorithm)
    made = export_policy(DescribedEnv(), learner.policy(), SOURCE, tmp_path / "made")
    session = onnxruntime.InferenceSession(made.folder / "policy.onnx", providers=["CPUExecutionProvider"])
    script, runner = load_torchscript(made.folder / "policy.pt"), PolicyRunner(made.folder)
    drawn = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    extremes = torch.tensor([[1e6, -1e6], [-1e6, 1e6], [1e6, 1e6], [1e-30, -1e-30], [0.0, 0.0], [1e4, 0.0]])
    for obs in (drawn, 300.0 * drawn, extremes):
        expected = learner.policy()({"obs": obs, "critic": torch.zeros(len(obs), 3)}).numpy()
        # PPO's actions have no bounds and grow with the observation: their last bits are those of the largest.
        largest = max(1.0, float(np.abs(expected).max()))
        for actions in (
            script(obs)[0].numpy(),
            session.run(["actions"], {"obs": obs.numpy()})[0],
            runner(obs.numpy())[0],
        ):
            assert np.abs(actions - expected).max() < 1e-6 * largest
    assert np.ptp(runner(np.eye(2, dtype=np.float32) * 5.0)[0], axis=0).max() > 1e-4


class Reordered(ScriptedEnv):
    """Publishes its groups in the other order."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        for groups in (self._obs, self._final):
            for name in sorted(groups):
                groups[name] = groups.pop(name)
        self.obs_groups_spec = dict(sorted(self.obs_groups_spec.items()))


@named
def test_check_13_networks_find_their_groups_by_name_in_whatever_order_they_are_published(algorithm):
    assert list(Reordered().obs_groups_spec) == ["critic", "obs"] == list(Reordered().observations())
    one, two = (trained(algorithm, env(exact=True)) for env in (ScriptedEnv, Reordered))
    assert equal(learned(one.state()), learned(two.state()))


def test_check_13_the_order_of_groups_is_the_order_of_columns_in_a_packed_row():
    obs = {"obs": torch.tensor([[1.0, 2.0]]), "critic": torch.tensor([[3.0, 4.0, 5.0]])}
    flags = torch.zeros(1, dtype=torch.bool)
    packed = {}
    for order in (("obs", "critic"), ("critic", "obs")):
        layout = TransitionLayout({name: obs[name].shape[1] for name in order}, 1)
        packed[order] = layout.pack(obs, torch.tensor([[9.0]]), torch.zeros(1), obs, flags, flags)
        assert all(torch.equal(layout.split_obs(packed[order])[name], obs[name]) for name in obs)
    assert packed["obs", "critic"][0, :5].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert packed["critic", "obs"][0, :5].tolist() == [3.0, 4.0, 5.0, 1.0, 2.0]


@named
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"policy": 2, "extra": 1}, r"publishes \['extra', 'policy'\], expected a group 'obs'"),
        ({}, r"publishes \[\], expected a group 'obs'"),
        (
            {"obs": 0, "critic": 3},
            "publishes 'critic' with 3 columns, 'obs' with 0 columns; the group 'obs' needs at least 1",
        ),
        ({"obs": 2, "critic": 0}, "the group 'critic' needs at least 1: add a term to it, or leave it out"),
    ],
    ids=["unknown", "none", "empty obs", "empty critic"],
)
def test_check_13_an_unknown_or_empty_group_is_one_error_that_names_those_there_are(
    algorithm, groups, message
):
    env = ScriptedEnv()
    for held in (env._obs, env._final):
        held.clear()
        held.update({name: torch.zeros(4, width) for name, width in groups.items()})
    env._write = lambda groups: None
    env.obs_groups_spec = groups
    with pytest.raises(ConfigError, match=message):
        algorithm.make_learner(env, config(algorithm), seed=0)


@pytest.mark.parametrize("algorithm", ["ppo", "counting"])
def test_check_15_equal_seeds_leave_equal_bytes_after_three_iterations(tmp_path, algorithm):
    files = []
    for place, seed in (("one", 5), ("two", 5), ("other", 6)):
        request = TrainRequest("scripted", algorithm, backend="scripted", seed=seed, runs=tmp_path / place)
        outcome = train(request)
        assert outcome.iteration == 3
        files.append(outcome.checkpoint.read_bytes())
    assert files[0] == files[1] != files[2]


def test_check_15_equal_seeds_learn_equally_off_policy():
    first, second = (trained(SAC, ScriptedEnv(exact=True)) for _ in range(2))
    assert differences(first.state(), second.state()) == []


def test_check_15_ctrl_c_inside_an_iteration_leaves_a_checkpoint_and_closes_the_environment_once(tmp_path):
    COUNTING.made.clear()

    def interrupt(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    before, COUNTING.before_iteration = COUNTING.before_iteration, interrupt
    try:
        outcome = train(TrainRequest("scripted", "counting", backend="scripted", runs=tmp_path))
    finally:
        COUNTING.before_iteration = before
    assert (outcome.status, outcome.iteration) == ("interrupted", 2)
    assert load_checkpoint(outcome.checkpoint).iteration == 2
    (learner,) = COUNTING.made
    assert (learner.env.num_closes, learner.num_closes) == (1, 1)
