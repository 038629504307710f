"""The adapter to rsl-rl hands out what rsl-rl relies on and nothing that changes afterwards."""

import pytest
import torch
from rl_support import ScriptedEnv, ScriptedEnvCfg
from rsl_rl.env import VecEnv

from unilab_rl.adapters.rsl_rl import RslRlVecEnv

ZERO = torch.zeros(4, 2)


def make(**changes):
    terminate = changes.pop("terminate", None)
    env = ScriptedEnv(ScriptedEnvCfg(**changes), terminate=terminate)
    return env, RslRlVecEnv(env)


def test_check_1_after_construction_it_is_a_vec_env_with_finite_observations_and_needs_no_reset():
    env, vec_env = make()
    assert isinstance(vec_env, VecEnv)
    assert (vec_env.num_envs, vec_env.num_actions, vec_env.max_episode_length) == (4, 2, 5)
    assert type(vec_env.max_episode_length) is int
    assert vec_env.device == torch.device("cpu")
    assert vec_env.cfg["num_envs"] == 4
    assert vec_env.unwrapped.step_dt == 0.5
    assert env.num_resets == 1
    assert vec_env.get_observations().isfinite().all()
    vec_env.step(ZERO)


def test_check_2_reading_observations_twice_gives_the_same_bits_and_changes_nothing():
    env, vec_env = make()
    vec_env.step(ZERO)
    before = (env.step_counter, env.num_resets, env.episode_length.clone())
    generator = torch.get_rng_state()
    first, second = vec_env.get_observations(), vec_env.get_observations()
    assert (first == second).all()
    assert (env.step_counter, env.num_resets) == before[:2]
    assert torch.equal(env.episode_length, before[2])
    assert torch.equal(torch.get_rng_state(), generator)


def test_check_3_nothing_handed_out_by_a_step_is_rewritten_by_the_next():
    _, vec_env = make(terminate=lambda step, age: torch.arange(4) == step)
    obs, reward, done, extras = vec_env.step(ZERO)
    final = extras["final_observation"]
    handed_out = [obs["obs"], obs["critic"], reward, done, extras["time_outs"], extras["log"]["Metrics/step"]]
    handed_out += [final["obs"], final["critic"]]
    copies = [tensor.clone() for tensor in handed_out]
    vec_env.step(torch.ones(4, 2))
    vec_env.step(torch.ones(4, 2))
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(handed_out, copies, strict=True))


@pytest.mark.parametrize(
    "actions",
    [
        torch.full((4, 2), 9.0),
        torch.arange(8.0).reshape(2, 4).T,
        torch.full((4, 2), -7.0, dtype=torch.float64),
    ],
    ids=["out of range", "not contiguous", "float64"],
)
def test_check_4_actions_are_converted_for_the_environment_and_left_as_they_were(actions):
    env, vec_env = make()
    before = actions.clone()
    vec_env.step(actions)  # the scripted environment clamps what it gets in place
    assert torch.equal(actions, before)
    assert actions.dtype == before.dtype
    assert env.received[0].dtype == torch.float32
    assert env.received[0].is_contiguous()
    assert torch.equal(env.received[0], before.float().clamp(-1, 1))


def test_actions_of_a_wrong_shape_are_refused_instead_of_broadcast():
    _, vec_env = make()
    with pytest.raises(ValueError, match=r"actions have shape \(4, 1\), expected \(4, 2\)"):
        vec_env.step(torch.zeros(4, 1))


def test_check_5_shapes_and_types_are_those_of_the_contract():
    _, vec_env = make()
    obs, reward, done, extras = vec_env.step(ZERO)
    assert obs.batch_size == (4,)
    assert (obs["obs"].shape, obs["obs"].dtype) == ((4, 2), torch.float32)
    assert (obs["critic"].shape, obs["critic"].dtype) == ((4, 3), torch.float32)
    assert (reward.shape, reward.dtype) == ((4,), torch.float32)
    assert (done.shape, done.dtype) == ((4,), torch.bool)
    assert (extras["time_outs"].shape, extras["time_outs"].dtype) == ((4,), torch.bool)


def test_check_6_done_is_either_flag_and_a_time_out_is_a_truncation_without_a_termination():
    # Row 0 terminates at age 5, when every row's time is up as well.
    _, vec_env = make(terminate=lambda step, age: (torch.arange(4) == 0) & (age == 5))
    for _ in range(4):
        _, _, done, extras = vec_env.step(ZERO)
        assert not done.any()
        assert not extras["time_outs"].any()
    _, _, done, extras = vec_env.step(ZERO)
    assert done.tolist() == [True, True, True, True]
    assert extras["time_outs"].tolist() == [False, True, True, True]


def test_check_7_qa_007_a_done_row_shows_its_next_episode_and_its_final_observation_is_the_true_one():
    _, vec_env = make(terminate=lambda step, age: (torch.arange(4) == 1) & (age == 3))
    single = ScriptedEnv(ScriptedEnvCfg(num_envs=1))
    single.reset()
    for _ in range(3):
        obs, _, done, extras = vec_env.step(ZERO)
        alone = single.step(torch.zeros(1, 2)).obs
    assert done.tolist() == [False, True, False, False]
    final = extras["final_observation"]
    assert obs["obs"].tolist() == [[3, 0], [100, 1], [3, 2], [3, 3]]
    assert final["obs"].tolist() == [[3, 0], [3, 1], [3, 2], [3, 3]]
    assert final["critic"].tolist() == [[3, 0, -1], [3, 1, -1], [3, 2, -1], [3, 3, -1]]
    assert final["obs"][1, 0] == alone["obs"][0, 0] == 3
    assert set(final.keys()) == set(obs.keys())


def test_qa_009_the_step_after_an_end_has_no_final_observation():
    _, vec_env = make(terminate=lambda step, age: (torch.arange(4) == 1) & (step == 1))
    _, _, _, extras = vec_env.step(ZERO)
    assert "final_observation" in extras
    assert "episode_totals" in extras
    _, _, done, extras = vec_env.step(ZERO)
    assert not done.any()
    assert set(extras) == {"time_outs", "log"}


def test_check_9_assigning_episode_lengths_moves_each_rows_time_out():
    env, vec_env = make()
    vec_env.episode_length_buf = torch.tensor([0, 1, 2, 4])
    assert vec_env.episode_length_buf is env.episode_length
    ended = {}
    for step in range(1, 6):
        _, _, done, _ = vec_env.step(ZERO)
        for row in done.nonzero().flatten().tolist():
            ended.setdefault(row, step)
    assert ended == {0: 5, 1: 4, 2: 3, 3: 1}


def test_check_10_each_step_logs_into_a_fresh_dict_of_finite_scalars_under_namespaced_keys():
    env, vec_env = make()
    logs = [vec_env.step(ZERO)[3]["log"] for _ in range(3)]
    assert [float(log["Metrics/step"]) for log in logs] == [1.0, 2.0, 3.0]
    assert len({id(log) for log in logs}) == 3
    assert all(
        "/" in key and value.dim() == 0 and value.isfinite() for log in logs for key, value in log.items()
    )
    logs[-1]["Metrics/step"] = 9.0  # rsl-rl's logger writes into the dict
    logs[-1]["more"] = 1.0
    assert float(env.state.info["log"]["Metrics/step"]) == 3.0
    assert set(env.state.info["log"]) == {"Metrics/step"}


def test_an_environment_without_a_critic_group_publishes_one_group():
    _, vec_env = make(critic=False)
    assert set(vec_env.get_observations().keys()) == {"obs"}


def test_closing_it_closes_the_environment():
    env, vec_env = make()
    vec_env.close()
    assert env.num_closes == 1
