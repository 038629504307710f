"""What rsl-rl is handed holds on a real task too: pure reads, no aliasing, true final observations, settable ages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from unilab_core import make_env
from unilab_rl.adapters.rsl_rl import RslRlVecEnv

N, LENGTH = 3, 5


@pytest.fixture
def vec_env() -> Iterator[RslRlVecEnv]:
    adapter = RslRlVecEnv(
        make_env("cartpole-swingup", num_envs=N, overrides={"episode_length_s": LENGTH * 0.02})
    )
    yield adapter
    adapter.close()


def test_reading_observations_twice_gives_the_same_bits_and_draws_nothing(vec_env: RslRlVecEnv):
    before = vec_env.unwrapped.rng.get_state()
    first, second = vec_env.get_observations(), vec_env.get_observations()
    assert torch.equal(first["obs"], second["obs"])
    assert torch.equal(vec_env.unwrapped.rng.get_state(), before)


def test_what_a_step_hands_out_is_not_rewritten_by_the_next(vec_env: RslRlVecEnv):
    obs, reward, done, extras = vec_env.step(torch.ones(N, 1))
    copies = obs["obs"].clone(), reward.clone(), done.clone(), extras["time_outs"].clone()
    vec_env.step(-torch.ones(N, 1))
    for now, then in zip((obs["obs"], reward, done, extras["time_outs"]), copies, strict=True):
        assert torch.equal(now, then)


def test_a_row_that_times_out_shows_its_next_episode_and_keeps_its_true_last_observation(
    vec_env: RslRlVecEnv,
):
    with make_env(
        "cartpole-swingup", num_envs=N, autoreset=False, overrides={"episode_length_s": LENGTH * 0.02}
    ) as twin:
        twin.reset()
        for _ in range(LENGTH):
            obs, _, done, extras = vec_env.step(torch.ones(N, 1))
            expected = twin.step(torch.ones(N, 1)).obs["obs"]
    assert done.all()
    assert extras["time_outs"].all()
    assert torch.equal(extras["final_observation"]["obs"], expected)
    assert not torch.equal(obs["obs"], expected)


def test_assigned_ages_move_each_rows_time_out(vec_env: RslRlVecEnv):
    vec_env.episode_length_buf = torch.tensor([0, 2, 4])
    ends = [vec_env.step(torch.zeros(N, 1))[2].tolist() for _ in range(3)]
    assert ends == [[False, False, True], [False, False, False], [False, True, False]]


def test_steps_inside_and_outside_of_inference_mode_alternate(vec_env: RslRlVecEnv):
    for _ in range(LENGTH + 1):
        with torch.inference_mode():
            vec_env.step(torch.zeros(N, 1))
        vec_env.step(torch.zeros(N, 1))
        vec_env.unwrapped.reset(torch.tensor([1]))
    assert torch.isfinite(vec_env.get_observations()["obs"]).all()
