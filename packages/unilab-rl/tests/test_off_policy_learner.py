"""The off-policy learner: when it updates, what it reports, and that it goes on bit for bit."""

from pathlib import Path

import pytest
import torch
from off_policy_support import ALGORITHMS, ECHO, checkpoint, differences, echo, leaves, small
from rl_support import CountingCfg, ScriptedEnv, ScriptedEnvCfg, python

from unilab_core import ConfigError, NonFiniteError
from unilab_rl import get_algorithm, list_algorithms, load_checkpoint, save_checkpoint
from unilab_rl.checkpoint import load_checkpoint_with_replay
from unilab_rl.runtime.evaluator import learner_state

SUPPORT = Path(__file__).parent / "support"


def test_updates_follow_each_step_once_the_warm_up_is_over():
    learner = echo(num_steps_per_env=4, updates_per_step=3, warmup_steps=6)
    done = [learner.iterate() for _ in range(3)]
    assert [iteration.env_steps for iteration in done] == [16, 16, 16]
    # Steps 7 to 12 are followed by three updates each.
    assert [iteration.metrics["Replay/updates"] for iteration in done] == [0.0, 6.0, 18.0]
    assert "Loss/echo" not in done[0].metrics
    assert [iteration.metrics["Loss/echo"] for iteration in done[1:]] == [3.5, 12.5]
    assert done[2].metrics["Loss/even"] == 4.0
    assert [iteration.metrics["Replay/transitions"] for iteration in done] == [16.0, 32.0, 48.0]
    assert done[2].metrics["Episode/length"] == 5.0


def test_statistics_are_shown_every_step_that_was_acted_on():
    learner = echo(ScriptedEnv(ScriptedEnvCfg(steps=2), exact=True), num_steps_per_env=3)
    learner.iterate()
    assert [obs[:, 0].tolist() for obs in learner.agent.observed] == [[0.0] * 4, [1.0] * 4, [100.0] * 4]
    rewards, done, refused = learner.agent.rewarded[1]
    assert len(rewards) == 4
    assert max(rewards) < 1.0
    assert (done, refused) == ([True] * 4, [False] * 4)


class Guarded(ScriptedEnv):
    """Its guard ends every row in every step."""

    def step(self, actions):
        state = super().step(actions)
        state.info["nonfinite_rows"] = torch.ones(4, dtype=torch.bool)
        return state


def test_without_a_row_to_learn_from_there_is_no_update_and_refused_rows_are_counted():
    learner = echo(Guarded(exact=True), num_steps_per_env=7, warmup_steps=0)
    metrics = learner.iterate().metrics
    assert (metrics["Replay/refused"], metrics["Replay/transitions"], metrics["Replay/updates"]) == (
        28.0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize(("flaw", "names"), [("bad_loss", "Loss/even"), ("bad_weight", "actor.gain")])
def test_what_is_not_finite_is_named(flaw, names):
    learner = echo(warmup_steps=0, **{flaw: True})
    with pytest.raises(
        NonFiniteError, match=f"EchoAgent: not finite after the update: {names}; look for a reward"
    ):
        learner.iterate()


@pytest.mark.parametrize(
    ("algorithm", "obs_normalization"),
    [(algorithm, False) for algorithm in ALGORITHMS]
    + [
        (algorithm, True) for algorithm in ALGORITHMS if algorithm.name != "flash_sac"
    ],  # it normalises by the batch
    ids=lambda value: getattr(value, "name", value),
)
def test_three_and_three_iterations_are_six_bit_for_bit(algorithm, obs_normalization):
    cfg = small(algorithm, obs_normalization=obs_normalization)
    whole, env = (
        algorithm.make_learner(first := ScriptedEnv(exact=True), cfg, seed=0),
        ScriptedEnv(exact=True),
    )
    for _ in range(3):
        whole.iterate()
    state, env_state = whole.state(), first.state_dict()
    resumed = algorithm.make_learner(env, cfg, seed=5)
    resumed.load_state(state, episodes_continue=True)
    env.load_state_dict(env_state)
    assert differences(resumed.state(), state) == []
    for _ in range(3):
        expected, got = whole.iterate().metrics, resumed.iterate().metrics
        expected.pop("Metrics/step"), got.pop("Metrics/step")  # the scripted environment's own counter
        assert got == expected
    assert whole.agent.updates == 2 * (42 - 5)
    assert differences(resumed.state(), whole.state()) == []
    assert all(torch.equal(env.observations()[name], group) for name, group in first.observations().items())
    assert state.learner["updates"] == 2 * (21 - 5)  # which later iterations didn't change


def test_a_new_process_goes_on_from_a_file_bit_for_bit(tmp_path):
    """All algorithms, each for three iterations here and three in one other process."""
    expected = {}
    for algorithm in ALGORITHMS:
        env = ScriptedEnv(exact=True)
        learner = algorithm.make_learner(env, small(algorithm), seed=0)
        for _ in range(3):
            learner.iterate()
        save_checkpoint(tmp_path / f"{algorithm.name}.pt", checkpoint(learner, env))
        for _ in range(3):
            learner.iterate()
        expected[algorithm.name] = checkpoint(learner, env)
    with python(str(SUPPORT / "resume_off_policy.py"), str(tmp_path), *expected) as process:
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    for name, whole in expected.items():
        got = load_checkpoint_with_replay(tmp_path / f"{name}-resumed.pt")
        assert differences(learner_state(got), learner_state(whole)) == []
        for path, group in leaves(whole.env_state).items():
            assert torch.equal(leaves(got.env_state)[path], group), path


def test_equal_seeds_learn_equally_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    states = []
    for seed in (3, 3, 4):
        learner = ALGORITHMS[0].make_learner(ScriptedEnv(exact=True), small(ALGORITHMS[0]), seed=seed)
        learner.iterate()
        states.append(learner.state())
    assert differences(states[0], states[1]) == []
    assert any("networks" in path for path in differences(states[0], states[2]))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_the_replay_a_resume_is_not_exact_and_waits_for_the_warm_up_again():
    learner = echo(save_replay=False)
    learner.iterate()
    state = learner.state()
    assert (state.exact, state.learner["replay"], learner.agent.updates) == (False, None, 4)
    assert echo().state().exact
    resumed = echo(save_replay=False)
    resumed.load_state(state, episodes_continue=False)
    assert resumed.iterate().metrics["Replay/updates"] == 8.0  # of 7 steps 5 are waited for
    assert resumed.source.explorer.shown, "the policy acts, for its own warm-up is over"
    assert len(resumed.source.explorer.shown) == 7


def test_no_window_runs_from_the_episodes_before_a_resume_into_new_ones():
    learner = echo(ScriptedEnv(ScriptedEnvCfg(steps=50), exact=True), n_step=3)
    learner.iterate()
    resumed = echo(ScriptedEnv(ScriptedEnvCfg(steps=50), exact=True), n_step=3)
    resumed.load_state(learner.state(), episodes_continue=False)
    resumed.iterate()
    batch = resumed.replay.sample(4000)
    begun, ended = batch.obs["obs"][:, 0], batch.next_obs["obs"][:, 0]
    assert set(begun.tolist()) == {float(age) for age in range(7)}  # both halves are drawn from
    assert ((ended - begun) >= 1).all()
    assert ended.max() == 7.0


def test_another_network_is_refused_by_its_tensor():
    sac = ALGORITHMS[0]
    state = sac.make_learner(ScriptedEnv(), small(sac), seed=0).state()
    learner = sac.make_learner(ScriptedEnv(), small(sac, hidden_dims=(9, 8)), seed=0)
    with pytest.raises(
        ValueError, match=r"actor\.\S+ is torch.float32 of shape .*trained with another network"
    ):
        learner.load_state(state, episodes_continue=False)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_the_saved_policy_acts_as_the_learner_s_and_draws_nothing(algorithm, tmp_path):
    env = ScriptedEnv(exact=True)
    cfg = small(algorithm, obs_normalization=algorithm.name != "flash_sac")
    learner = algorithm.make_learner(env, cfg, seed=0)
    learner.iterate()
    save_checkpoint(tmp_path / "model_1.pt", checkpoint(learner, env))
    state = learner_state(load_checkpoint(tmp_path / "model_1.pt"))
    few = ScriptedEnv(ScriptedEnvCfg(num_envs=2))
    policy = algorithm.make_policy(few, cfg, state)
    obs = {"obs": torch.tensor([[3.0, -1.0], [250.0, 2.0]]), "critic": torch.zeros(2, 3)}
    assert torch.equal(policy(obs), learner.policy()(obs))
    assert torch.equal(policy(obs), policy(obs))
    assert policy(obs).abs().max() <= 1.0


def test_a_policy_of_another_algorithm_is_refused_by_name():
    sac, td3 = ALGORITHMS[:2]
    state = sac.make_learner(ScriptedEnv(), small(sac), seed=0).state()
    with pytest.raises(ValueError, match=r"checkpoint part 'learner.networks' has the unknown entry"):
        td3.make_policy(ScriptedEnv(), small(td3), state)
    with pytest.raises(ConfigError, match="'td3' was given a CountingCfg, expected a Td3Cfg"):
        td3.make_learner(ScriptedEnv(), CountingCfg(), seed=0)


def test_collectors_of_their_own_need_a_factory():
    with pytest.raises(ConfigError, match=r"echo: collectors=1 needs a factory .*set learner.collectors=0"):
        ECHO.make_learner(ScriptedEnv(), small(ECHO, collectors=1), seed=0)


def test_every_algorithm_is_found_by_its_name():
    assert {algorithm.name for algorithm in ALGORITHMS} <= set(list_algorithms())
    for algorithm in ALGORITHMS:
        assert get_algorithm(algorithm.name) == algorithm
        algorithm.require()
