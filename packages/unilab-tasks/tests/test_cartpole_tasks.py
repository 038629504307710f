"""The cart-pole tasks: what they show, reward and how their episodes begin and end."""

from __future__ import annotations

import math

import pytest
import torch

from unilab_core import make_env
from unilab_managers import ManagerBasedRlEnvCfg
from unilab_tasks.cartpole import env_cfg as tasks

_RANGES = ("position", "velocity")


def test_a_resting_upright_pole_in_the_middle_earns_one():
    still = {
        f"events.place_{part}.params.{what}_range": [0.0, 0.0]
        for part in ("cart", "pole")
        for what in _RANGES
    }
    with make_env("cartpole-balance", num_envs=2, overrides=still) as env:
        env.reset()
        state = env.step(torch.zeros(2, 1))
    assert state.reward.tolist() == pytest.approx([1.0, 1.0])


def test_a_hanging_pole_earns_nothing_and_shows_minus_one():
    with make_env("cartpole-swingup", num_envs=4) as env:
        obs, _ = env.reset()
        state = env.step(torch.zeros(4, 1))
    assert torch.allclose(obs["obs"][:, 1], torch.full((4,), -1.0), atol=1e-3)
    assert state.reward.max() < 1e-3


def test_the_reward_is_the_product_of_its_four_factors():
    place = {
        "events.place_cart.params.position_range": [1.0, 1.0],
        "events.place_cart.params.velocity_range": [0.0, 0.0],
        "events.place_pole.params.position_range": [math.pi / 2, math.pi / 2],
        "events.place_pole.params.velocity_range": [3.0, 3.0],
    }
    with make_env("cartpole-balance", num_envs=1, overrides=place) as env:
        env.reset()
        state = env.step(torch.full((1, 1), 0.5))
        x, cos, _, _, speed = state.obs["obs"][0].tolist()
    decay = math.log(10.0)
    upright = (cos + 1.0) / 2.0
    centred = (1.0 + math.exp(-decay * (x / 2.0) ** 2)) / 2.0
    control = (4.0 + 1.0 - 0.25) / 5.0
    slow = (1.0 + math.exp(-decay * (speed / 5.0) ** 2)) / 2.0
    assert state.reward.item() == pytest.approx(upright * centred * control * slow, rel=1e-5)


@pytest.mark.parametrize(
    ("task", "angle", "spread"), [("cartpole-balance", 0.0, 0.034), ("cartpole-swingup", math.pi, 0.02)]
)
def test_episodes_begin_within_the_spread_of_their_pole_angle(task: str, angle: float, spread: float):
    with make_env(task, num_envs=256) as env:
        env.reset()
        offset = env.scene["robot"].data.joint_pos[:, 1] - angle
    assert offset.abs().max() <= spread + 1e-6
    assert offset.min() < -0.8 * spread
    assert offset.max() > 0.8 * spread


def test_an_episode_is_500_steps_and_ends_as_a_truncation():
    with make_env("cartpole-balance", num_envs=2) as env:
        env.reset()
        for _ in range(499):
            state = env.step(torch.zeros(2, 1))
            assert not state.truncated.any()
        state = env.step(torch.zeros(2, 1))
    assert state.truncated.tolist() == [True, True]
    assert state.terminated.tolist() == [False, False]
    assert state.info["episode"]["length/sum"].item() == 1000


@pytest.mark.parametrize("name", ["cartpole_balance", "cartpole_swingup"])
def test_the_yaml_round_trip_of_a_task_is_identity(name: str):
    cfg = getattr(tasks, name)()
    assert ManagerBasedRlEnvCfg.from_yaml(cfg.to_yaml()) == cfg
