"""The state of an optimiser and of a generator is checked whole before any of it is taken."""

from dataclasses import replace

import pytest
import torch
from rl_support import ScriptedEnv, small_ppo

from unilab_core import NonFiniteError
from unilab_rl import PPO_ALGORITHM

GONE = object()


def make(*, env=None, **changes):
    return PPO_ALGORITHM.make_learner(env or ScriptedEnv(), small_ppo(**changes), seed=0)


def trained(**changes):
    learner = make(**changes)
    learner.iterate()
    return learner.state()


def group(state, **changes):
    (own,) = state.optimizer["param_groups"]
    held = {key: value for key, value in (own | changes).items() if value is not GONE}
    return replace(state, optimizer=state.optimizer | {"param_groups": [held]})


def statistics(state, **changes):
    held = state.optimizer["state"]
    first = {key: value for key, value in (held[0] | changes).items() if value is not GONE}
    return replace(state, optimizer=state.optimizer | {"state": held | {0: first}})


def optimizer(held, **changes):
    return replace(held, optimizer=held.optimizer | changes)


def rng(state, value):
    return replace(state, rng={"cpu": value, "cuda": None})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: group(s, params=GONE), r"group 0 lacks \['params'\]"),
        (lambda s: group(s, lr=GONE), r"group 0 lacks \['lr'\]"),
        (lambda s: group(s, lr="fast"), r"group 0 has lr 'fast', expected a positive number"),
        (lambda s: group(s, lr=float("nan")), r"group 0 has lr nan"),
        (lambda s: group(s, params=[0]), r"group 0 has the parameters \[0\], expected \[0, 1, "),
        (
            lambda s: optimizer(s, param_groups=s.optimizer["param_groups"] * 2),
            r"has 2 groups, expected 1",
        ),
        (lambda s: optimizer(s, param_groups={}), r"'param_groups' is no list of dicts"),
        (lambda s: optimizer(s, state={}), r"statistics of 0 parameters, expected \d+"),
        (
            lambda s: optimizer(s, state={0: s.optimizer["state"][0]}),
            r"statistics of 1 parameters, expected \d+",
        ),
        (lambda s: optimizer(s, state=[]), r"state is no dict of dicts"),
        (lambda s: statistics(s, exp_avg=GONE), r"state of parameter 0 lacks \['exp_avg'\]"),
        (
            lambda s: statistics(s, exp_avg=torch.zeros(7)),
            r"statistic 'exp_avg' of parameter 0 is torch.float32 of shape \(7,\), expected",
        ),
        (lambda s: statistics(s, exp_avg=1.0), r"statistic 'exp_avg' of parameter 0 is a float"),
        (lambda s: rng(s, torch.zeros(10, dtype=torch.uint8)), r"random state 'cpu' can't be used: .*size"),
        (lambda s: rng(s, torch.zeros(5056)), r"random state 'cpu' is tensor.* expected a uint8 tensor"),
        (lambda s: rng(s, None), r"random state 'cpu' is None"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_before_anything_changes(spoil, message):
    learner = make()
    before = learner.state()
    with pytest.raises(ValueError, match=message):
        learner.load_state(spoil(trained()), episodes_continue=False)
    for network, tensors in learner.state().learner.items():
        assert all(torch.equal(tensors[name], value) for name, value in before.learner[network].items())
    assert torch.equal(learner.state().rng["cpu"], before.rng["cpu"])


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "rmsprop"])
def test_every_optimiser_takes_its_own_state_back_trained_or_not(kind):
    learner = make(optimizer=kind)
    learner.load_state(make(optimizer=kind).state(), episodes_continue=False, trained=False)
    state = trained(optimizer=kind)
    learner.load_state(state, episodes_continue=False)
    held = learner.state().optimizer
    assert held["param_groups"] == state.optimizer["param_groups"]
    assert held["state"].keys() == state.optimizer["state"].keys()


def test_an_observation_that_is_not_finite_is_an_error_that_names_its_group():
    env = ScriptedEnv()
    learner = make(env=env)
    write = env._write

    def spoiled(groups):
        write(groups)
        groups["critic"][:, 2] = float("inf")

    env._write = spoiled
    with pytest.raises(NonFiniteError, match=r"not finite in the rollout: .*observations 'critic'"):
        learner.iterate()


def test_loading_a_policy_draws_from_nobodys_generator():
    state = trained()
    before = torch.get_rng_state()
    PPO_ALGORITHM.make_policy(ScriptedEnv(), small_ppo(), state)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("fused", [None, False])
def test_a_state_of_an_optimiser_that_computed_its_steps_otherwise_is_taken_and_its_own_way_stays(fused):
    state, learner = trained(), make()
    (before,) = state.optimizer["param_groups"]
    assert before["fused"] is True
    learner.load_state(group(state, fused=fused), episodes_continue=False)
    (own,) = learner.algorithm.optimizer.param_groups
    assert (own["fused"], own["lr"]) == (True, before["lr"])
    learner.iterate()
