"""What an episode ended on, with and without automatic reset."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, assert_same, copied, steps, zeros


def test_qa_007_the_final_observation_is_the_one_before_the_reset():
    with ScriptedEnv(3, terminate={5: [1]}) as env:
        env.reset()
        state = steps(env, 5)
    assert state.obs["obs"][:, 0].tolist() == [5.0, 100.0, 5.0]
    assert state.final_observation["obs"][:, 0].tolist() == [5.0, 5.0, 5.0]
    assert (state.terminated | state.truncated).tolist() == [False, True, False]


def test_qa_007_every_group_is_there_at_full_width():
    with ScriptedEnv(3, terminate={2: [0]}, critic=True) as env:
        env.reset()
        state = steps(env, 2)
    for name, rows in state.obs.items():
        final = state.final_observation[name]
        assert (final.shape, final.dtype, final.device) == (rows.shape, rows.dtype, rows.device)
    assert set(state.final_observation) == set(state.obs) == {"obs", "critic"}


def test_rows_that_go_on_show_the_current_observation_in_the_final_one():
    with ScriptedEnv(3, terminate={2: [0]}, critic=True) as env:
        env.reset()
        state = steps(env, 2)
    for name, rows in state.obs.items():
        assert torch.equal(state.final_observation[name][1:], rows[1:])
        assert not torch.equal(state.final_observation[name][0], rows[0])


def test_the_final_observation_holds_the_action_that_led_there():
    with ScriptedEnv(3, terminate={1: [0]}) as env:
        env.reset()
        state = env.step(torch.ones(3, 1))
    assert state.final_observation["obs"][:, 2].tolist() == [1.0, 1.0, 1.0]
    assert state.obs["obs"][:, 2].tolist() == [0.0, 1.0, 1.0]


def test_qa_009_a_later_ordinary_step_has_no_final_observation():
    with ScriptedEnv(2, terminate={3: [0]}) as env:
        env.reset()
        third = steps(env, 3)
        assert third.final_observation is not None
        assert (third.terminated | third.truncated).tolist() == [True, False]
        fourth = env.step(zeros(env))
        assert fourth.final_observation is None
        assert (fourth.terminated | fourth.truncated).tolist() == [False, False]


def test_qa_009_right_after_a_reset_no_row_is_flagged():
    with ScriptedEnv(2, terminate={3: [0, 1]}) as env:
        env.reset()
        steps(env, 3)
        env.reset()
        assert (env.state.terminated | env.state.truncated).tolist() == [False, False]


def test_qa_013_a_done_row_restarts_within_the_same_step():
    with ScriptedEnv(1, episode_steps=5) as env:
        env.reset()
        done, rewards, lengths = [], [], []
        for _ in range(11):
            state = env.step(zeros(env))
            done.append(bool(state.truncated[0]))
            rewards.append(float(state.reward[0]))
            lengths.append(int(env.episode_length[0]))
    assert [i + 1 for i, flag in enumerate(done) if flag] == [5, 10]
    assert rewards == [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0]
    assert lengths[5] == 1


def test_qa_011_without_automatic_reset_a_finished_row_must_be_reset_before_the_next_step():
    with ScriptedEnv(2, terminate={3: [1]}, autoreset=False) as env:
        env.reset()
        state = steps(env, 3)
        assert state.obs["obs"][:, 0].tolist() == [3.0, 3.0]
        assert env.episode_length.tolist() == [3, 3]
        with pytest.raises(RuntimeError, match=r"ScriptedEnv.step: rows \[1\] wait for a reset"):
            env.step(zeros(env))
        env.reset(torch.tensor([1]))
        env.step(zeros(env))
        assert env.episode_length.tolist() == [4, 1]


def test_a_refused_step_of_a_finished_row_changes_nothing():
    with (
        ScriptedEnv(2, terminate={2: [1]}, autoreset=False) as env,
        ScriptedEnv(2, terminate={2: [1]}, autoreset=False) as twin,
    ):
        for each in (env, twin):
            each.reset()
            steps(each, 2)
        with pytest.raises(RuntimeError, match="wait for a reset"):
            env.step(zeros(env))
        for each in (env, twin):
            each.reset(torch.tensor([1]))
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


def test_without_automatic_reset_the_terminal_observation_is_in_both_places():
    with ScriptedEnv(2, truncate={2: [0]}, autoreset=False, critic=True) as env:
        env.reset()
        state = steps(env, 2)
        for name, rows in state.obs.items():
            assert torch.equal(state.final_observation[name], rows)


def test_a_manual_reset_clears_the_flags_of_its_rows_only():
    with ScriptedEnv(3, terminate={1: [0, 1]}, truncate={1: [1]}, autoreset=False) as env:
        env.reset()
        env.step(zeros(env))
        env.reset(torch.tensor([1]))
        assert env.state.terminated.tolist() == [True, False, False]
        assert env.state.truncated.tolist() == [False, False, False]
        with pytest.raises(RuntimeError, match=r"rows \[0\] wait"):
            env.step(zeros(env))


def test_without_automatic_reset_no_reset_hook_runs_in_a_step():
    with ScriptedEnv(2, terminate={1: [0]}, autoreset=False, spread=1.0) as env:
        env.reset()
        generator = env.rng.get_state()
        env.calls.clear()
        env.step(zeros(env))
        assert "_stage_reset" not in [name for name, _ in env.calls]
        assert torch.equal(env.rng.get_state(), generator)


def test_final_observations_of_later_episodes_do_not_mix_with_earlier_ones():
    with ScriptedEnv(2, terminate={2: [0], 5: [1]}) as env:
        env.reset()
        assert steps(env, 2).final_observation["obs"][:, 0].tolist() == [2.0, 2.0]
        assert steps(env, 3).final_observation["obs"][:, 0].tolist() == [103.0, 5.0]


def test_a_row_that_ends_in_every_step_is_new_after_every_step():
    with ScriptedEnv(2, episode_steps=1) as env:
        env.reset()
        for episode in range(1, 4):
            state = env.step(zeros(env))
            assert state.obs["obs"][:, 0].tolist() == [100.0 * episode] * 2
            assert state.final_observation["obs"][:, 0].tolist() == [100.0 * (episode - 1) + 1.0] * 2
