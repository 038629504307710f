"""One step: the order of its phases, what it returns, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedCfg, ScriptedEnv, copied, steps, zeros

from unisim.testing import Fault

STEP = [
    "_control",
    "_begin_step",
    "_terminations",
    "_rewards",
    "_advance",
    "_measure",
    "_observe",
    "_after_step",
]
RESET = [
    "_on_episodes_end",
    "_stage_reset",
    "_before_commit",
    "_clear_rows",
    "_after_commit",
    "_observe",
    "_after_reset",
]


@pytest.fixture
def env():
    with ScriptedEnv() as made:
        made.reset()
        made.calls.clear()
        yield made


def test_a_step_calls_its_hooks_in_the_order_of_the_contract(env):
    env.step(zeros(env))
    assert env.calls == [(name, None) for name in STEP]


def test_a_reset_calls_its_hooks_in_the_order_of_the_contract_with_ascending_rows(env):
    env.reset(torch.tensor([2, 0]))
    assert env.calls == [(name, [0, 2]) for name in RESET]


def test_an_automatic_reset_follows_the_complete_transition(env):
    env.terminate[1] = [1]
    env.step(zeros(env))
    assert env.calls == [(name, None) for name in STEP] + [(name, [1]) for name in RESET]


def test_qa_115_rewards_see_the_state_that_ended_the_episode(env):
    # Row 1 "falls" to 0.2 in step 1 and respawns at the default 0.0.
    env.backend.set_state_tensor(torch.tensor([1]), torch.tensor([[0.2, 0.0]]), torch.zeros(1, 2))
    env.inject["_rewards"] = lambda: env.scene["robot"].data.joint_pos[:, 0] * 0.02
    env.terminate[1] = [1]
    state = env.step(zeros(env))
    assert state.reward.tolist() == pytest.approx([0.0, 0.004, 0.0])
    assert state.obs["obs"][1, 1].item() == 0.0
    assert state.info["episode"]["return/sum"].item() == pytest.approx(0.004)


def test_terminations_and_rewards_see_the_new_episode_length(env):
    seen = []
    env.inject["_terminations"] = lambda: seen.append(env.episode_length.tolist())
    state = env.step(zeros(env))
    assert seen == [[1, 1, 1]]
    assert state.reward.tolist() == [1.0, 1.0, 1.0]


def test_the_last_action_is_accepted_before_terms_see_it(env):
    state = env.step(torch.tensor([[0.1], [0.2], [0.3]]))
    assert state.obs["obs"][:, 2].tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_metrics_are_measured_before_observations_and_go_to_the_log(env):
    assert env.step(zeros(env)).info["log"]["age"].item() == 1.0


def test_physics_makes_one_control_step_of_several_substeps(env):
    # Action 1 is the acceleration; two substeps of 0.01 s: v = 0.01, 0.02 and q = 0.0001, 0.0003.
    state = env.step(torch.ones(3, 1))
    assert state.obs["obs"][:, 1].tolist() == pytest.approx([0.0003] * 3)


def test_step_returns_the_same_object_and_its_tensors_keep_their_addresses(env):
    first = env.step(zeros(env))
    addresses = [first.reward.data_ptr(), first.obs["obs"].data_ptr(), first.terminated.data_ptr()]
    second = env.step(zeros(env))
    assert second is first is env.state
    assert [second.reward.data_ptr(), second.obs["obs"].data_ptr(), second.terminated.data_ptr()] == addresses


def test_outcomes_have_the_documented_shapes_and_dtypes():
    with ScriptedEnv(critic=True) as env:
        env.reset()
        state = env.step(zeros(env))
    assert {name: tuple(rows.shape) for name, rows in state.obs.items()} == {"obs": (3, 3), "critic": (3, 4)}
    assert all(rows.dtype == torch.float32 for rows in state.obs.values())
    assert (state.reward.dtype, tuple(state.reward.shape)) == (torch.float32, (3,))
    assert (state.terminated.dtype, state.truncated.dtype) == (torch.bool, torch.bool)


def test_info_holds_log_and_timing_and_is_a_fresh_dict_each_step(env):
    first = env.step(zeros(env)).info
    second = env.step(zeros(env)).info
    assert set(first) == set(second) == {"log", "timing"}
    assert first is not second
    assert all(isinstance(value, float) and value >= 0.0 for value in second["timing"].values())
    assert all(value.ndim == 0 for value in second["log"].values())


def test_qa_110_episode_entries_appear_on_steps_that_end_episodes_and_only_there(env):
    env.terminate[2] = [0, 2]
    infos = [env.step(zeros(env)).info for _ in range(4)]
    assert [("episode" in info) for info in infos] == [False, True, False, False]
    episode = infos[1]["episode"]
    assert episode["length/sum"].item() == 4
    assert episode["length/count"].item() == 2
    assert episode["return/sum"].item() == pytest.approx(2 * (1.0 + 2.0))
    assert episode["rows/sum"].item() == 2.0
    assert all(value.ndim == 0 for value in episode.values())


def test_observations_returns_copies_of_what_step_returned(env):
    state = env.step(zeros(env))
    observed = env.observations()
    assert torch.equal(observed["obs"], state.obs["obs"])
    observed["obs"].fill_(9.0)
    assert not torch.equal(observed["obs"], state.obs["obs"])


def test_reading_observations_twice_calls_nothing_and_changes_nothing(env):
    before = copied(env.step(zeros(env)))
    env.calls.clear()
    env.observations()
    env.observations()
    assert env.calls == []
    assert torch.equal(copied(env.state)["obs.obs"], before["obs.obs"])


def test_both_flags_may_be_true(env):
    env.terminate[1] = [0, 1]
    env.truncate[1] = [1, 2]
    state = env.step(zeros(env))
    assert state.terminated.tolist() == [True, True, False]
    assert state.truncated.tolist() == [False, True, True]


def test_flags_describe_the_transition_and_stay_set_after_the_automatic_reset(env):
    env.terminate[1] = [1]
    assert env.step(zeros(env)).terminated.tolist() == [False, True, False]
    assert env.step(zeros(env)).terminated.tolist() == [False, False, False]


def test_rows_that_the_engine_calls_bad_join_terminated():
    with ScriptedEnv(faults=(Fault("nan", at=2, row=1),)) as env:
        env.reset()
        env.inject["_observe"] = lambda ids: {"obs": torch.zeros(3 if ids is None else ids.numel(), 3)}
        assert steps(env, 1).terminated.tolist() == [False, False, False]
        state = env.step(zeros(env))
        assert state.terminated.tolist() == [False, True, False]
        assert env.episode_length.tolist() == [2, 0, 2]
        assert env.step(zeros(env)).terminated.tolist() == [False, False, False]


def test_the_time_limit_fires_when_the_length_reaches_it_exactly():
    with ScriptedEnv(episode_steps=3) as env:
        env.reset()
        assert env.max_episode_length == 3
        fired = [env.step(zeros(env)).truncated.tolist() for _ in range(7)]
    assert [all(flags) for flags in fired] == [False, False, True, False, False, True, False]


def test_a_finite_horizon_turns_time_outs_into_terminations():
    cfg = ScriptedCfg(episode_length_s=0.04, is_finite_horizon=True)
    with ScriptedEnv(cfg=cfg) as env:
        env.reset()
        steps(env, 1)
        state = env.step(zeros(env))
    assert state.terminated.tolist() == [True, True, True]
    assert state.truncated.tolist() == [False, False, False]


def test_an_episode_length_that_is_set_moves_the_time_limit():
    with ScriptedEnv(episode_steps=5) as env:
        env.reset()
        env.episode_length = torch.tensor([0, 3, 4])
        flags = [env.step(zeros(env)).truncated.tolist() for _ in range(3)]
    assert flags == [[False, False, True], [False, True, False], [False, False, False]]


def test_an_episode_length_is_copied_in(env):
    values = torch.tensor([1, 2, 3])
    env.episode_length = values
    values.fill_(9)
    assert env.episode_length.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (torch.tensor([1, 2]), ValueError, r"got torch.int64 \(2,\), expected torch.int64 \(3,\)"),
        (torch.zeros(3, 1).long(), ValueError, r"got torch.int64 \(3, 1\), expected torch.int64 \(3,\)"),
        (torch.tensor([1.0, 2.0, 3.0]), TypeError, r"got torch.float32 \(3,\), expected torch.int64 \(3,\)"),
        ([1, 2, 3], TypeError, r"got list, expected torch.int64 \(3,\)"),
        (torch.tensor([1, -2, 3]), ValueError, "got -2, expected no negative length"),
    ],
)
def test_an_episode_length_of_another_kind_is_refused(env, values, kind, message):
    with pytest.raises(kind, match="ScriptedEnv.episode_length: " + message):
        env.episode_length = values


def test_the_step_counter_counts_control_steps_of_all_rows_together(env):
    steps(env, 4)
    env.reset()
    steps(env, 2)
    assert env.step_counter == 6


def test_sizes_and_times_are_told(env):
    assert (env.num_envs, env.num_actions, env.step_dt) == (3, 1, pytest.approx(0.02))
    assert env.device == torch.device("cpu")
    assert env.describe().observations == {"obs": ("obs[0]", "obs[1]", "obs[2]")}
    assert [joint.name for joint in env.describe().joints] == ["robot/slider", "robot/hinge"]
    assert env.describe().reads == ("qpos", "qvel", "ctrl")


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_every_row_steps_as_it_would_alone(num_envs):
    generator = torch.Generator().manual_seed(0)
    actions = [torch.rand(num_envs, 1, generator=generator) for _ in range(6)]
    with ScriptedEnv(num_envs) as together:
        together.reset()
        for action in actions:
            state = together.step(action)
    for row in range(num_envs):
        with ScriptedEnv(1) as alone:
            alone.reset()
            for action in actions:
                single = alone.step(action[row : row + 1].clone())
        assert torch.equal(single.obs["obs"][0], state.obs["obs"][row])
