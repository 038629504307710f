"""The PPO learner is reproducible, can continue, and says when it fails."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from rl_support import ScriptedEnv, ScriptedEnvCfg, small_ppo

from unilab_core import CapabilityError, ConfigError, NonFiniteError
from unilab_rl import PPO_ALGORITHM, LearnerCfg, PpoCfg
from unilab_rl.tally import RolloutTally


def make(*, seed=0, env=None, **changes):
    return PPO_ALGORITHM.make_learner(env or ScriptedEnv(), small_ppo(**changes), seed=seed)


def flat(learner):
    state = learner.state()
    tensors = [
        value for part in (state.learner, state.normalizer) for net in part.values() for value in net.values()
    ]
    return torch.cat([tensor.flatten().double() for tensor in tensors])


def iterate(learner, times):
    return [learner.iterate() for _ in range(times)]


def test_equal_seeds_learn_equal_bits_whatever_others_draw_from_the_global_generator():
    one, two = make(seed=3), make(seed=3)
    for _ in range(3):
        one.iterate()
        torch.rand(17)
        two.iterate()
    assert torch.equal(flat(one), flat(two))
    assert not torch.equal(flat(one), flat(make(seed=4)))


def test_learning_leaves_the_global_generator_as_it_found_it():
    before = torch.get_rng_state()
    make().iterate()
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_printed(capfd):
    make().iterate()
    assert capfd.readouterr() == ("", "")


def test_an_iteration_reports_its_steps_and_the_means_of_the_episodes_that_ended():
    learner = make(desynchronize_episodes=False, init_std=1e-6)
    torch.nn.init.zeros_(learner.algorithm.actor.mlp[-1].weight)
    torch.nn.init.zeros_(learner.algorithm.actor.mlp[-1].bias)
    done = learner.iterate()
    # 4 rows x 6 steps; every episode lasts 5 steps with reward 1; the log holds the step's number.
    assert done.env_steps == 24
    assert done.metrics["Episode/count"] == 4.0
    assert done.metrics["Episode/return"] == pytest.approx(5.0)
    assert done.metrics["Episode/length"] == 5.0
    assert done.metrics["Episode_Reward/gain"] == 2.0
    assert done.metrics["Metrics/step"] == pytest.approx(3.5)
    assert {"Loss/value", "Loss/surrogate", "Loss/entropy", "Policy/learning_rate"} <= set(done.metrics)
    assert all(type(value) is float for value in done.metrics.values())


def test_qa_110_means_are_over_the_episodes_that_ended_and_count_each_once():
    tally = RolloutTally()
    log = {"Metrics/speed": torch.tensor(3.0)}
    ended = {"return/sum": torch.tensor(6.0), "return/count": torch.tensor(1)}
    ended |= {
        "Episode_Termination/success/sum": torch.tensor(1),
        "Episode_Termination/success/count": torch.tensor(1),
    }
    ended |= {
        "Episode_Termination/time_out/sum": torch.tensor(0),
        "Episode_Termination/time_out/count": torch.tensor(1),
    }
    tally.add(log, ended)
    log["Metrics/speed"].fill_(6.0)  # as an environment does that rewrites what it handed out
    tally.add(log, {})
    tally.add({}, {})
    assert tally.read() == {
        "Metrics/speed": 4.5,
        "Episode/count": 1.0,
        "Episode/return": 6.0,
        "Episode_Termination/success": 1.0,
        "Episode_Termination/time_out": 0.0,
    }


def test_means_weigh_unequal_batches_by_their_episodes():
    tally = RolloutTally()
    for total, count in ((2.0, 1), (30.0, 3), (0.0, 0)):
        tally.add({}, {"return/sum": torch.tensor(total), "return/count": torch.tensor(count)})
    assert tally.read() == {"Episode/count": 4.0, "Episode/return": 8.0}


def test_means_are_left_out_of_an_iteration_in_which_no_episode_ended():
    done = make(desynchronize_episodes=False, num_steps_per_env=2).iterate()
    assert done.metrics["Episode/count"] == 0.0
    assert "Episode/return" not in done.metrics


def test_episodes_get_random_ages_once_at_the_start():
    env = ScriptedEnv(ScriptedEnvCfg(num_envs=64, steps=1000))
    learner = make(env=env, num_steps_per_env=1)
    learner.iterate()
    ages = env.episode_length.clone()
    assert ages.unique().numel() > 32
    assert int(ages.max()) <= 1000
    learner.iterate()
    assert torch.equal(env.episode_length, torch.where(ages == 1000, 1, ages + 1))


def test_check_11_stepping_and_resetting_outside_inference_mode_between_iterations_works():
    env = ScriptedEnv()
    learner = make(env=env)
    learner.iterate()
    env.reset()
    learner.iterate()
    env.reset(torch.tensor([1, 3]))
    env.step(learner.policy()(env.observations()))
    learner.iterate()


def test_check_12_normalisers_count_every_sample_once_and_not_in_evaluation():
    learner = make(obs_normalization=True)
    iterate(learner, 3)
    counts = [learner.state().normalizer[net]["obs_normalizer.count"].item() for net in ("actor", "critic")]
    assert counts == [4 * 6 * 3] * 2
    learner.policy()({"obs": torch.full((4, 2), 1e6), "critic": torch.zeros(4, 3)})
    assert learner.state().normalizer["actor"]["obs_normalizer.count"].item() == 72


def test_three_iterations_and_three_resumed_equal_six_bit_for_bit():
    # Every iteration of 5 steps begins at a reset, so a fresh environment is where the old one was.
    settings = {"num_steps_per_env": 5, "desynchronize_episodes": False, "obs_normalization": True}
    whole = make(seed=5, **settings)
    iterate(whole, 6)
    first_env = ScriptedEnv()
    first = make(seed=5, env=first_env, **settings)
    iterate(first, 3)
    second_env = ScriptedEnv()
    second_env._episode += 3  # the scripted observation counts episodes
    second = make(seed=99, env=second_env, **settings)
    second.load_state(first.state(), episodes_continue=False)
    iterate(second, 3)
    assert torch.equal(flat(second), flat(whole))


@pytest.mark.parametrize("continues", [False, True])
def test_first_episodes_are_desynchronised_unless_they_continue(
    continues: bool, monkeypatch: pytest.MonkeyPatch
):
    learner = make()
    learner.iterate()
    resumed = make()
    resumed.load_state(learner.state(), episodes_continue=continues)
    assigned = []
    real = ScriptedEnv.episode_length
    watched = property(real.fget, lambda env, ages: (assigned.append(ages), real.fset(env, ages)))
    monkeypatch.setattr(ScriptedEnv, "episode_length", watched)
    resumed.iterate()
    assert bool(assigned) is not continues


def test_qa_082_the_restored_learning_rate_survives_the_next_update():
    # A divergence far above any step keeps the schedule inside its dead band only if lr is not rewritten.
    learner = make(learning_rate=1e-3, desired_kl=1e-9)
    iterate(learner, 2)
    rate = learner.algorithm.optimizer.param_groups[0]["lr"]
    assert rate < 1e-3
    resumed = make(learning_rate=1e-3, desired_kl=1e-9)
    resumed.load_state(learner.state(), episodes_continue=False)
    assert resumed.algorithm.learning_rate == rate
    assert resumed.algorithm.optimizer.param_groups[0]["lr"] == rate
    resumed.iterate()
    assert resumed.algorithm.optimizer.param_groups[0]["lr"] <= rate


def test_a_state_is_a_copy_that_later_iterations_do_not_change():
    learner = make()
    state = learner.state()
    kept = state.learner["actor"]["mlp.0.weight"].clone()
    learner.iterate()
    assert torch.equal(state.learner["actor"]["mlp.0.weight"], kept)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda state: replace(state, learner={"actor": state.learner["actor"]}),
            r"part 'learner' lacks \['critic'\]",
        ),
        (lambda state: replace(state, optimizer={"state": {}}), r"part 'optimizer' lacks \['param_groups'\]"),
        (lambda state: replace(state, rng={}), "random state"),
        (
            lambda state: replace(
                state,
                learner={
                    **state.learner,
                    "critic": {**state.learner["critic"], "mlp.0.weight": torch.zeros(8, 9)},
                },
            ),
            r"critic.mlp.0.weight is torch.float32 of shape \(8, 9\), expected torch.float32 of shape \(8, 3\)",
        ),
        (
            lambda state: replace(
                state,
                learner={
                    **state.learner,
                    "actor": {**state.learner["actor"], "mlp.0.weigth": torch.zeros(1)},
                },
            ),
            "unknown entry 'mlp.0.weigth'; did you mean .*'mlp.0.weight'",
        ),
    ],
    ids=["a network missing", "half an optimiser", "no random state", "a shape", "a name"],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, message):
    other, learner = make(seed=1), make(seed=2)
    iterate(other, 2)
    before = flat(learner)
    with pytest.raises(ValueError, match=message):
        learner.load_state(spoil(other.state()), episodes_continue=False)
    assert torch.equal(flat(learner), before)
    twin = make(seed=2)
    learner.iterate()
    twin.iterate()
    assert torch.equal(flat(learner), flat(twin))


def test_a_reward_that_is_not_finite_is_an_error_that_names_it_and_costs_no_parameter():
    env = ScriptedEnv()
    learner = make(env=env)
    learner.iterate()
    before = flat(learner)
    env.cfg = ScriptedEnvCfg.model_construct(**{**env.cfg.__dict__, "gain": float("nan")})
    with pytest.raises(
        NonFiniteError, match=r"not finite in the rollout: rewards, returns; look for a reward"
    ):
        learner.iterate()
    assert torch.equal(flat(learner), before)


def test_an_update_that_bursts_is_an_error_that_names_the_parameters():
    learner = make(schedule="fixed", learning_rate=1e38, optimizer="sgd", max_grad_norm=1e30)
    with pytest.raises(NonFiniteError, match=r"not finite after the update: (actor|critic)\."):
        iterate(learner, 2)


def test_the_policy_is_deterministic_and_a_saved_one_gives_the_same_actions():
    env = ScriptedEnv()
    learner = make(env=env, obs_normalization=True)
    iterate(learner, 2)
    obs = {
        "obs": torch.tensor([[1.0, 2.0], [1e4, -1e4], [0.0, 0.0], [3.0, 1.0]]),
        "critic": torch.zeros(4, 3),
    }
    actions = learner.policy()(obs)
    assert torch.equal(actions, learner.policy()(obs))
    resets = env.num_resets
    saved = PPO_ALGORITHM.make_policy(env, learner.cfg, learner.state())
    assert torch.equal(saved(obs), actions)
    assert env.num_resets == resets


def test_a_saved_policy_for_other_observations_is_refused():
    learner = make()
    narrow = ScriptedEnv()
    narrow.obs_groups_spec = {"obs": 5}
    with pytest.raises(ValueError, match=r"actor.mlp.0.weight .* of shape \(8, 2\), expected .* \(8, 5\)"):
        PPO_ALGORITHM.make_policy(narrow, learner.cfg, learner.state())


def test_check_13_the_critic_reads_its_own_group_and_the_actor_only_obs():
    groups = PpoCfg().to_rsl_rl({"obs": 2, "critic": 3})["obs_groups"]
    assert groups == {"actor": ["obs"], "critic": ["critic"]}
    assert PpoCfg().to_rsl_rl({"obs": 2})["obs_groups"] == {"actor": ["obs"], "critic": ["obs"]}
    with pytest.raises(ConfigError, match=r"publishes \['policy'\], expected a group 'obs'"):
        PpoCfg().to_rsl_rl({"policy": 2})


def test_every_setting_reaches_rsl_rl():
    learner = make(gamma=0.5, lam=0.25, clip_param=0.3, entropy_coef=0.125, std_type="log", init_std=0.5)
    algorithm = learner.algorithm
    assert (algorithm.gamma, algorithm.lam, algorithm.clip_param, algorithm.entropy_coef) == (
        0.5,
        0.25,
        0.3,
        0.125,
    )
    torch.testing.assert_close(algorithm.actor.distribution.log_std_param.exp(), torch.tensor([0.5, 0.5]))


def test_a_batch_too_small_for_its_mini_batches_is_a_config_error():
    env = ScriptedEnv(ScriptedEnvCfg(num_envs=1))
    with pytest.raises(
        ConfigError, match=r"1 environments x num_steps_per_env=1 give 1 samples, expected at least 2"
    ):
        make(env=env, num_steps_per_env=1)


def test_a_config_of_another_algorithm_is_refused():
    with pytest.raises(ConfigError, match="given a LearnerCfg, expected a PpoCfg"):
        PPO_ALGORITHM.make_learner(ScriptedEnv(), LearnerCfg(), seed=0)


@pytest.mark.parametrize("missing", ["rsl_rl", "tensordict"])
def test_without_rsl_rl_the_error_names_the_extra(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CapabilityError, match=r'pip install "unilab-rl\[rsl-rl\]>=2.0,<3"'):
        PPO_ALGORITHM.require()
    with pytest.raises(CapabilityError, match=missing):
        PPO_ALGORITHM.make_learner(ScriptedEnv(), small_ppo(), seed=0)


def test_importing_the_package_and_its_commands_imports_neither_torch_nor_rsl_rl():
    program = (
        "import sys, unilab_rl, unilab_rl.cli.train, unilab_rl.cli.eval; from unilab_rl import PpoCfg, PPO_ALGORITHM;"
        "print(sorted({'torch', 'rsl_rl', 'tensordict', 'numpy', 'mujoco'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
