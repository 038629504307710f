"""Explicit resets: which rows, in which order, with which randomness."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, assert_same, copied, steps, zeros


@pytest.fixture
def env():
    with ScriptedEnv(4, spread=1.0, seed=5, critic=True) as made:
        made.reset()
        steps(made, 3)
        yield made


def sliders(env) -> list[float]:
    return env.observations()["obs"][:, 1].tolist()


def test_before_the_first_reset_every_row_is_pending():
    with (
        ScriptedEnv(3) as env,
        pytest.raises(RuntimeError, match=r"ScriptedEnv.step: rows \[0, 1, 2\] wait for a reset"),
    ):
        env.step(zeros(env))


def test_rows_stay_pending_until_each_was_reset_once():
    with ScriptedEnv(3) as env:
        env.reset(torch.tensor([2, 0]))
        with pytest.raises(
            RuntimeError, match=r"rows \[1\] wait for a reset; call reset\(env_ids\) for them, or"
        ):
            env.step(zeros(env))
        env.reset(torch.tensor([1]))
        env.step(zeros(env))


def test_a_long_list_of_pending_rows_is_cut():
    with (
        ScriptedEnv(20) as env,
        pytest.raises(RuntimeError, match=r"rows \[0, 1, 2, 3, 4, 5, 6, 7\] \.\.\. wait"),
    ):
        env.step(zeros(env))


def test_a_reset_of_all_rows_returns_copies_of_every_observation(env):
    obs, info = env.reset()
    assert {name: tuple(rows.shape) for name, rows in obs.items()} == {"obs": (4, 3), "critic": (4, 4)}
    assert set(info) == {"log", "timing", "episode"}
    kept = obs["obs"].clone()
    steps(env, 2)
    assert torch.equal(obs["obs"], kept)


def test_a_reset_returns_the_rows_in_the_order_given(env):
    obs, _ = env.reset(torch.tensor([3, 1]))
    assert obs["critic"][:, 3].tolist() == [3.0, 1.0]
    assert torch.equal(obs["obs"], env.observations()["obs"][[3, 1]])
    obs["obs"].fill_(9.0)
    assert not torch.equal(obs["obs"], env.observations()["obs"][[3, 1]])


def test_a_reset_touches_only_its_rows(env):
    before = copied(env.state)
    lengths, views = env.episode_length.clone(), env.backend.get_state_views()
    env.reset(torch.tensor([2]))
    after = copied(env.state)
    for name, values in before.items():
        assert torch.equal(after[name][[0, 1, 3]], values[[0, 1, 3]]), name
    assert env.episode_length.tolist() == [3, 3, 0, 3] != lengths.tolist()
    for name, values in env.backend.get_state_views().items():
        assert torch.equal(values[[0, 1, 3]], views[name][[0, 1, 3]]), name


def test_qa_072_a_reset_of_no_rows_changes_nothing_and_calls_nothing(env):
    before, generator = copied(env.state), env.rng.get_state()
    env.calls.clear()
    obs, info = env.reset(torch.zeros(0, dtype=torch.int64))
    assert {name: tuple(rows.shape) for name, rows in obs.items()} == {"obs": (0, 3), "critic": (0, 4)}
    assert "episode" not in info
    assert env.calls == []
    assert_same(copied(env.state), before)
    assert torch.equal(env.rng.get_state(), generator)
    assert env.episode_length.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("wrong", [4, -1, 100])
def test_qa_074_an_id_out_of_range_is_named_and_the_environment_stays_usable(env, wrong):
    with ScriptedEnv(4, spread=1.0, seed=5, critic=True) as twin:
        twin.reset()
        steps(twin, 3)
        with pytest.raises(
            ValueError, match=f"ScriptedEnv.reset: env_ids holds {wrong}; expected 0 <= id < num_envs = 4"
        ):
            env.reset(torch.tensor([0, wrong]))
        assert not env.faulted
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


@pytest.mark.parametrize(
    ("env_ids", "error", "message"),
    [
        (torch.tensor([True, False, False, True]), TypeError, r"bool mask; pass row ids: mask.nonzero\(\)"),
        (slice(0, 2), TypeError, "env_ids is a slice; pass a 1-D integer tensor or None"),
        ([0, 1], TypeError, "env_ids is a list"),
        (0, TypeError, "env_ids is a int"),
        (torch.tensor([0.0]), TypeError, "env_ids is torch.float32"),
        (torch.tensor([1, 1]), ValueError, "env_ids holds 1 more than once"),
        (torch.tensor([[1]]), ValueError, "expected one dimension"),
    ],
)
def test_what_selects_no_rows_is_refused_before_anything_changes(env, env_ids, error, message):
    before, generator = copied(env.state), env.rng.get_state()
    env.calls.clear()
    with pytest.raises(error, match=f"^ScriptedEnv.reset: .*{message}"):
        env.reset(env_ids)
    assert env.calls == []
    assert_same(copied(env.state), before)
    assert torch.equal(env.rng.get_state(), generator)


def test_the_retired_mask_keyword_is_an_unknown_keyword(env):
    with pytest.raises(TypeError, match="unexpected keyword argument 'reset_mask'"):
        env.reset(reset_mask=torch.ones(4, dtype=torch.bool))


def test_a_seed_is_a_keyword(env):
    with pytest.raises(TypeError, match="positional argument"):
        env.reset(None, 3)


@pytest.mark.parametrize("env_ids", [torch.tensor([0]), torch.arange(4), torch.zeros(0, dtype=torch.int64)])
def test_a_seed_with_a_subset_is_refused(env, env_ids):
    with pytest.raises(ValueError, match="seed=3 with env_ids; a seed restarts all rows, drop env_ids"):
        env.reset(env_ids, seed=3)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_seed_of_another_kind_is_refused_and_nothing_is_reset(env, seed, error):
    with pytest.raises(error, match="seed is"):
        env.reset(seed=seed)
    assert env.episode_length.tolist() == [3, 3, 3, 3]


def test_the_same_seed_gives_the_same_start(env):
    first, _ = env.reset(seed=11)
    steps(env, 2)
    second, _ = env.reset(seed=11)
    other, _ = env.reset(seed=12)
    assert torch.equal(first["obs"][:, 1], second["obs"][:, 1])
    assert not torch.equal(first["obs"][:, 1], other["obs"][:, 1])


def test_qa_077_two_environments_of_one_seed_start_alike_whatever_the_global_generators_did():
    torch.manual_seed(1)
    with ScriptedEnv(4, spread=1.0, seed=42) as first:
        torch.rand(17)
        with ScriptedEnv(4, spread=1.0, seed=42) as second, ScriptedEnv(4, spread=1.0, seed=43) as third:
            before = torch.get_rng_state()
            starts = [each.reset()[0]["obs"] for each in (first, second, third)]
            assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("ids", [None, [0, 1, 2, 3], [3, 1, 0, 2]])
def test_qa_076_no_ids_all_ids_and_a_permutation_give_the_same_rows(ids):
    with ScriptedEnv(4, spread=1.0, seed=5) as env, ScriptedEnv(4, spread=1.0, seed=5) as twin:
        env.reset(None if ids is None else torch.tensor(ids))
        twin.reset()
        assert sliders(env) == sliders(twin)
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


@pytest.mark.parametrize("row", range(4))
def test_qa_076_each_single_id_touches_one_row_only(env, row):
    before = sliders(env)
    env.reset(torch.tensor([row]))
    assert [i for i in range(4) if sliders(env)[i] != before[i]] == [row]


def test_a_reset_draws_in_ascending_row_order_whatever_the_order_of_the_ids():
    with ScriptedEnv(4, spread=1.0, seed=5) as env, ScriptedEnv(4, spread=1.0, seed=5) as twin:
        env.reset()
        twin.reset()
        env.reset(torch.tensor([3, 0]))
        twin.reset(torch.tensor([0, 3]))
        assert sliders(env) == sliders(twin)


def test_qa_079_every_episode_of_a_row_and_every_row_starts_differently():
    starts = []
    with ScriptedEnv(3, spread=1.0, episode_steps=1) as env:
        env.reset()
        for _ in range(10):
            starts += env.step(zeros(env)).obs["obs"][:, 1].tolist()
    assert len(set(starts)) == 30


def test_a_step_that_finishes_no_episode_consumes_no_randomness(env):
    generator = env.rng.get_state()
    env.calls.clear()
    steps(env, 3)
    assert torch.equal(env.rng.get_state(), generator)
    assert "_stage_reset" not in [name for name, _ in env.calls]


def test_a_reset_counts_the_episode_that_it_cut(env):
    _, info = env.reset(torch.tensor([1, 2]))
    assert info["episode"]["length/sum"].item() == 6
    assert info["episode"]["length/count"].item() == 2
    assert env.last_episode_length.tolist() == [0, 3, 3, 0]


def test_a_first_reset_counts_no_episode():
    with ScriptedEnv(3) as env:
        _, info = env.reset()
    assert info["episode"]["length/count"].item() == 0
    assert info["episode"]["return/sum"].item() == 0.0


def test_an_explicit_and_an_automatic_reset_leave_equal_rows():
    # Row 1 ends in step 3; the twin resets it by hand after the same step.
    with (
        ScriptedEnv(3, spread=1.0, seed=9, terminate={3: [1]}) as env,
        ScriptedEnv(3, spread=1.0, seed=9) as twin,
    ):
        env.reset()
        twin.reset()
        steps(env, 3)
        steps(twin, 3)
        twin.reset(torch.tensor([1]))
        assert torch.equal(env.observations()["obs"], twin.observations()["obs"])
        assert torch.equal(env.episode_length, twin.episode_length)
        assert torch.equal(env.rng.get_state(), twin.rng.get_state())
        for name, values in env.backend.get_state_views().items():
            assert torch.equal(values, twin.backend.get_state_views()[name]), name
        for _ in range(3):
            assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))
