"""A state of a learner is loaded whole or not at all, and a warm resume drops what belonged to old episodes."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from off_policy_support import ALGORITHMS, differences, echo, small, with_copied_replay
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_core import EnvFactory
from unilab_rl.replay_file import ReplayFile

SUPPORT = Path(__file__).parent / "support"


def spoil(part, **changes):
    return lambda state: replace(state, **{part: {**getattr(state, part), **changes}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil("learner", updates=-3), "updates is -3, expected a count"),
        (spoil("learner", stored_steps=2.0), "stored_steps is 2.0, expected a count"),
        (spoil("learner", replays=1), "'learner' has the unknown entry 'replays'.*'replay'"),
        (spoil("learner", networks={}), "'learner' lacks .'actor'."),
        (spoil("learner", replay=ReplayFile({"rows": 1})), "replay state: lacks"),
        (
            spoil("learner", replay={"format": "unilab-rl-replay/1", "sha256": "0"}),
            "the replay is a dict, expected its contents; read the checkpoint together with its replay",
        ),
        (spoil("optimizer", critic={}), "'optimizer' has the unknown entry 'critic'"),
        (spoil("rng", agent=torch.zeros(2)), "the agent's generator is tensor.*expected a uint8 tensor"),
        (spoil("rng", source=None), "the source's state is a NoneType, expected a dict"),
        (spoil("rng", source={"steps": 1}), "the collector's state lacks"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    trained = echo()
    trained.iterate()
    learner = echo()
    before = learner.state()
    with pytest.raises(ValueError, match=message):
        learner.load_state(change(trained.state()), episodes_continue=True)
    assert differences(learner.state(), before) == []


def test_a_state_whose_replay_is_gone_changes_nothing():
    learner = echo()
    learner.iterate()
    old = learner.state()
    learner.iterate()
    learner.load_state(old, episodes_continue=True)
    learner.iterate()
    before = learner.state()
    for each, message in (
        (learner, "the replay of this state is gone: Replay: loaded anew, or taken back farther"),
        (echo(), "the replay of this state is gone"),
    ):
        kept = before if each is learner else each.state()
        with pytest.raises(ValueError, match=message):
            each.load_state(old, episodes_continue=True)
        assert differences(each.state(), kept) == []


def test_a_replay_that_an_unreleased_version_wrote_into_the_checkpoint_says_so():
    learner = echo()
    learner.iterate()
    state = learner.state()
    contents = dict(state.learner["replay"].restore())
    with pytest.raises(
        ValueError, match="inside the checkpoint itself, as unreleased versions wrote it; .* new run"
    ):
        learner.load_state(spoil("learner", replay=contents)(state), episodes_continue=True)


FAST_TD3, FLASH_SAC = (each for each in ALGORITHMS if each.name in ("fast_td3", "flash_sac"))


def scaled(algorithm, **changes):
    """A learner that has learned, with returns of episodes that didn't end and noise that belongs to them."""
    env = ScriptedEnv(ScriptedEnvCfg(steps=50), exact=True)
    kept = {"reward_normalization": True} if algorithm.name == "fast_td3" else {}
    learner = algorithm.make_learner(env, small(algorithm, **kept, **changes), seed=0)
    learner.iterate()
    return learner


def at(path, value):
    """Writes `value` at a path within a copy of a state: the name of its part first, then keys."""

    def change(state):
        part, *inner = path
        if not inner:
            return replace(state, **{part: value})
        state = copy.deepcopy(replace(state, learner=with_copied_replay(state.learner)))
        held = getattr(state, part)
        for key in inner[:-1]:
            held = held[key]
            held = held.contents if isinstance(held, ReplayFile) else held
        held[inner[-1]] = value
        return state

    return change


GROUP = ("optimizer", "critic", "param_groups", 0)
STATISTICS = ("optimizer", "critic", "state", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("learner",), 5, "checkpoint part 'learner' is a int, expected a dict"),
        (("learner", "networks"), 5, "'learner' is a int, expected a dict"),
        (("learner", "networks", "actor"), 5, "'learner': network 'actor' is a int, expected a dict"),
        (("learner", "networks", "actor", 7), 5, "network 'actor' has the unknown entry 7"),
        (("learner", 7), 5, "checkpoint part 'learner' has the unknown entry 7"),
        (("normalizer",), None, "'normalizer' is a NoneType, expected a dict"),
        (("normalizer", "actor"), 3, "'normalizer': network 'actor' is a int, expected a dict"),
        (("optimizer",), [], "'optimizer' is a list, expected a dict"),
        (("optimizer", "critic"), 5, "'optimizer' is a int, expected a dict"),
        ((*GROUP, "betas"), "x", r"group 0 has betas 'x', expected \(0.9, 0.999\)"),
        ((*GROUP, "betas"), [torch.zeros(2), 0.999], "group 0 has betas"),
        ((*GROUP, "weight_decay"), "x", "group 0 has weight_decay 'x', expected"),
        ((*GROUP, "eps"), 1e-3, "group 0 has eps 0.001, expected 1e-08"),
        ((*GROUP, "amsgrad"), 0, "group 0 has amsgrad 0, expected False"),
        ((*GROUP, "lr"), 0.0, "group 0 has lr 0.0, expected a positive number"),
        ((*GROUP, "params"), torch.zeros(3), "group 0 has the parameters tensor"),
        (
            (*STATISTICS, "step"),
            "x",
            "statistic 'step' of parameter 0 is a str, expected a 0-d tensor of floats",
        ),
        ((*STATISTICS, "step"), torch.zeros(2), r"'step' of parameter 0 is torch.float32 of shape \(2,\)"),
        ((*STATISTICS, "step"), torch.tensor(3), "'step' of parameter 0 is torch.int64 of shape"),
        ((*STATISTICS, "step"), torch.tensor(float("nan")), "'step' of parameter 0 is nan, expected a count"),
        ((*STATISTICS, 7), 5, "state of parameter 0 has the unknown entry 7"),
        (("rng",), 5, "'rng' is a int, expected a dict"),
        (("rng", "source", 7), 5, "the collector's state has the unknown entry 7"),
        (("rng", "source", "explorer"), 5, "FastTd3Explorer: a state of int, expected"),
        (("rng", "source", "explorer", 7), 5, r"a state of \['7', 'generator', 'noise'\], expected"),
        (("rng", "source", "explorer", "noise"), 5, "a state with the noise int, expected"),
        (("rng", "source", "explorer", "noise", 7), 5, r"the noise \['7', 'std'\], expected"),
        (("learner", "replay", 7), 5, "replay state: unknown entry 7"),
        (("learner", "replay", "reached"), 10**6, "replay state: reached is 1000000"),
    ],
)
def test_a_malformed_state_is_refused_before_anything_changes(path, value, message):
    state = scaled(FAST_TD3).state()
    learner = scaled(FAST_TD3, num_steps_per_env=9)
    before = learner.state()
    with pytest.raises(ValueError, match=message):
        learner.load_state(at(path, value)(state), episodes_continue=False)
    assert differences(learner.state(), before) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("learner",), 5, "'learner' is a int, expected a dict"),
        (("learner", "networks"), 5, "'learner.networks' is a int, expected a dict"),
        (("learner", "networks", "actor"), 5, "'learner': network 'actor' is a int, expected a dict"),
        (("normalizer",), 5, "'normalizer' is a int, expected a dict"),
        (("normalizer", "actor"), 3, "'normalizer': network 'actor' is a int, expected a dict"),
    ],
)
def test_a_policy_is_not_made_of_a_malformed_state(path, value, message):
    state = scaled(FAST_TD3).state()
    with pytest.raises(ValueError, match=message):
        FAST_TD3.make_policy(
            ScriptedEnv(), small(FAST_TD3, reward_normalization=True), at(path, value)(state)
        )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_a_learning_rate_that_was_annealed_comes_back(algorithm):
    annealed = hasattr(small(algorithm), "learning_rate_updates")
    changes = {"learning_rate_updates": 40, "learning_rate_end": 1e-5} if annealed else {}
    learner, other = scaled(algorithm, **changes), scaled(algorithm, num_steps_per_env=1, **changes)
    other.load_state(learner.state(), episodes_continue=True)
    assert differences(other.state(), learner.state()) == []


def noise_of(learner):
    return learner.source.state()["explorer"]["noise"]


@pytest.mark.parametrize("algorithm", [FAST_TD3, FLASH_SAC], ids=lambda algorithm: algorithm.name)
def test_a_warm_resume_drops_what_belonged_to_the_old_episodes(algorithm):
    learner = scaled(algorithm)
    if algorithm.name == "flash_sac":
        learner.source.explorer.held_noise()["remaining"].fill_(4)
    state, noise = learner.state(), noise_of(learner)
    returns = state.normalizer["reward_normalizer"]["running_returns"]
    assert returns.abs().min() > 0
    going, warm = scaled(algorithm, num_steps_per_env=1), scaled(algorithm, num_steps_per_env=1)
    going.load_state(state, episodes_continue=True)
    warm.load_state(state, episodes_continue=False)
    assert torch.equal(going.agent.reward_normalizer.running_returns, returns)
    assert warm.agent.reward_normalizer.running_returns.tolist() == [0.0] * 4
    assert torch.equal(warm.agent.reward_normalizer.var, going.agent.reward_normalizer.var)
    assert differences_of(noise_of(going), noise) == []
    if algorithm.name == "flash_sac":
        assert noise_of(warm)["remaining"].tolist() == [0] * 4
    else:
        assert (noise_of(warm)["std"] != noise["std"]).all()


def differences_of(first, second):
    return [name for name, value in first.items() if not torch.equal(value, second[name])]


def test_a_collector_of_its_own_begins_a_warm_resume_with_noise_of_new_episodes():
    cfg = ScriptedEnvCfg(steps=50)
    state = scaled(FAST_TD3).state()
    learner = FAST_TD3.make_learner(
        ScriptedEnv(cfg),
        small(FAST_TD3, collectors=1, reward_normalization=True),
        seed=0,
        factory=EnvFactory(cfg, backend="scripted", num_envs=cfg.num_envs),
    )
    try:
        learner.load_state(state, episodes_continue=False)
        saved = state.rng["source"]["explorer"]["noise"]["std"]
        assert (noise_of(learner)["std"] != saved).all()
        assert learner.source.state()["steps"] == state.rng["source"]["steps"]
    finally:
        learner.close()
