"""PPO learns from mirrored samples where its config names a mirror; the actor stays as it was."""

import pytest
import torch
from rl_support import ScriptedEnv, small_ppo
from rsl_rl.extensions import Symmetry
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from unilab_core import ConfigError
from unilab_rl import PPO_ALGORITHM, Mirror, PpoCfg, Reflection
from unilab_rl.adapters.rsl_rl.symmetry import AugmentedSymmetry, MirrorAugmentation

HERE = "test_rsl_rl_symmetry"


def mirror(description):
    """Swaps the two observation columns and the signs of the actions."""
    del description
    return Mirror(
        {"obs": Reflection((1, 0), (1.0, 1.0)), "critic": Reflection((1, 0, 2), (-1.0, -1.0, 1.0))},
        Reflection((1, 0), (-1.0, -1.0)),
    )


def identity(description):
    """Leaves everything as it is."""
    del description
    return Mirror(
        {"obs": Reflection((0, 1), (1.0, 1.0)), "critic": Reflection((0, 1, 2), (1.0, 1.0, 1.0))},
        Reflection((0, 1), (1.0, 1.0)),
    )


def too_narrow(description):
    """Forgets a column of the critic."""
    del description
    both = Reflection((0, 1), (1.0, 1.0))
    return Mirror({"obs": both, "critic": both}, both)


def of_wrong_labels(description):
    """Fails in the way in which a mirror of another robot fails."""
    return Reflection.of_labels(description.actions, lambda label: (f"{label}_mirrored", 1.0))


def no_mirror(description):
    """Returns what is no mirror."""
    return description


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Lets the functions above be found again by name, which pytest's import mode doesn't."""
    import sys

    module = sys.modules[mirror.__module__]
    monkeypatch.setitem(sys.modules, HERE, module)
    for function in (mirror, identity, too_narrow, of_wrong_labels, no_mirror):
        monkeypatch.setattr(function, "__module__", HERE)


def learner(**changes):
    return PPO_ALGORITHM.make_learner(ScriptedEnv(), small_ppo(**changes), seed=0)


def batch():
    return RolloutStorage.Batch(
        observations=TensorDict(
            {
                "obs": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
                "critic": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            },
            batch_size=[2],
        ),
        actions=torch.tensor([[0.1, 0.2], [0.3, 0.4]]),
        values=torch.tensor([[1.0], [2.0]]),
        advantages=torch.tensor([[3.0], [4.0]]),
        returns=torch.tensor([[5.0], [6.0]]),
        old_actions_log_prob=torch.tensor([[7.0], [8.0]]),
    )


def test_a_batch_is_followed_by_its_mirror_image():
    augmented = batch()
    learner(symmetry=mirror).algorithm.symmetry.augment_batch(augmented, 2)
    assert augmented.observations["obs"].tolist() == [[1.0, 2.0], [3.0, 4.0], [2.0, 1.0], [4.0, 3.0]]
    assert augmented.observations["critic"].tolist() == [
        [1.0, 2.0, 3.0],
        [4.0, 5.0, 6.0],
        [-2.0, -1.0, 3.0],
        [-5.0, -4.0, 6.0],
    ]
    expected = torch.tensor([[0.1, 0.2], [0.3, 0.4], [-0.2, -0.1], [-0.4, -0.3]])
    assert torch.equal(augmented.actions, expected)
    assert augmented.values.flatten().tolist() == [1.0, 2.0, 1.0, 2.0]
    assert augmented.advantages.flatten().tolist() == [3.0, 4.0, 3.0, 4.0]
    assert augmented.returns.flatten().tolist() == [5.0, 6.0, 5.0, 6.0]
    assert augmented.old_actions_log_prob.flatten().tolist() == [7.0, 8.0, 7.0, 8.0]


def test_what_is_not_given_stays_none():
    augmentation = MirrorAugmentation(mirror(None), torch.device("cpu"))
    assert augmentation(env=None, obs=None, actions=None) == (None, None)


def test_an_update_with_symmetry_learns_and_reports_how_asymmetric_the_actor_is():
    symmetric = learner(symmetry=mirror)
    before = {name: value.clone() for name, value in symmetric.algorithm.actor.state_dict().items()}
    metrics = symmetric.iterate().metrics
    assert metrics["Loss/symmetry"] > 0.0
    after = symmetric.algorithm.actor.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_mirror_that_changes_nothing_learns_what_no_mirror_learns():
    # Each sample stands twice in a batch: the same mean, and so, but for rounding, the same step.
    plain, doubled = learner(), learner(symmetry=identity)
    plain.iterate(), doubled.iterate()
    for name, value in plain.algorithm.actor.state_dict().items():
        assert torch.allclose(value, doubled.algorithm.actor.state_dict()[name], atol=1e-5), name


def test_the_mirror_loss_pulls_the_actor_towards_symmetry():
    def asymmetry(coefficient):
        trained = learner(symmetry=mirror, mirror_loss_coef=coefficient, learning_rate=1e-2, schedule="fixed")
        return [trained.iterate().metrics["Loss/symmetry"] for _ in range(6)][-1]

    assert asymmetry(100.0) < 0.5 * asymmetry(0.0)


def test_symmetry_is_off_by_default():
    plain = learner()
    assert plain.algorithm.symmetry is None
    assert "Loss/symmetry" not in plain.iterate().metrics


def test_a_symmetric_run_has_the_same_networks_and_its_policy_loads():
    symmetric = learner(symmetry=mirror)
    symmetric.iterate()
    state = symmetric.state()
    assert state.learner["actor"].keys() == learner().state().learner["actor"].keys()
    env = ScriptedEnv()
    policy = PPO_ALGORITHM.make_policy(env, small_ppo(), state)  # a config without the mirror
    assert torch.equal(policy(env.observations()), symmetric.policy()(env.observations()))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (too_narrow, "group 'critic' has 2 columns in the mirror, expected 3"),
        (of_wrong_labels, "image of 'action' is 'action_mirrored', which is no label"),
        (no_mirror, "returned a EnvDescription, expected a Mirror"),
    ],
)
def test_a_mirror_that_does_not_fit_is_refused_with_the_name_of_its_function(function, message):
    with pytest.raises(ConfigError, match=f"PpoCfg.symmetry {HERE}:{function.__name__}: .*{message}"):
        learner(symmetry=function)


def test_a_mirror_loss_needs_a_mirror():
    with pytest.raises(ConfigError, match="mirror_loss_coef is 0.5 without a mirror; set symmetry"):
        PpoCfg(mirror_loss_coef=0.5)


def test_the_mirror_is_named_in_yaml():
    cfg = small_ppo(symmetry=mirror)
    assert f"symmetry: {HERE}:mirror" in cfg.to_yaml()
    assert PpoCfg.from_yaml(cfg.to_yaml()) == cfg


@pytest.mark.parametrize("coefficient", [0.0, 2.0])
def test_an_update_is_that_of_rsl_rl_with_one_pass_through_the_actor(coefficient):
    def trained(symmetry):
        own = learner(symmetry=mirror, mirror_loss_coef=coefficient)
        own.algorithm.symmetry.__class__ = symmetry
        passes = []
        own.algorithm.actor.mlp.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
        metrics = own.iterate().metrics
        updates = own.cfg.num_learning_epochs * own.cfg.num_mini_batches
        return own.algorithm.actor.state_dict(), metrics["Loss/symmetry"], sum(passes) / updates

    (ours, loss, passes), (theirs, expected, two) = trained(AugmentedSymmetry), trained(Symmetry)
    assert (passes, two) == (1, 2)
    assert loss == pytest.approx(expected, rel=1e-5)
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], atol=1e-6), name
