"""TD3 against an independent computation, and what its config means."""

import pytest
import torch
from off_policy_oracle import (
    SPEC,
    Td3Oracle,
    assert_close,
    bounds,
    linear_quadratic,
    make_batch,
    optimal_gain,
    values,
)

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.td3 import Td3Agent, Td3Cfg


@pytest.mark.parametrize("actor_interval", [1, 2])
def test_updates_equal_an_independent_double_precision_computation(actor_interval):
    agent = Td3Agent(Td3Cfg(actor_interval=actor_interval), SPEC, bounds(), seed=3)
    oracle = Td3Oracle(agent)
    for seed in range(4):
        batch = make_batch(seed)
        metrics, expected = agent.learn(batch), oracle.learn(batch)
        assert set(metrics) == set(expected)
        for name, value in metrics.items():
            assert value.shape == ()
            assert value.item() == pytest.approx(expected[name].item(), abs=1e-5), name
        assert_close(agent.actor, oracle.actor)
        assert_close(agent.critic, oracle.critic)
        assert_close(agent.actor_target, oracle.actor_target)
        assert_close(agent.critic_target, oracle.critic_target)
    assert agent.updates == 4


def test_large_noise_is_clipped_and_so_is_the_smoothed_action():
    """A deviation of 100 leaves only -0.1 and 0.1 of the noise, and a saturated target policy stays at 1."""
    cfg = Td3Cfg(target_noise=100.0, target_noise_clip=0.1)
    agent, smooth = (Td3Agent(each, SPEC, bounds(), seed=3) for each in (cfg, Td3Cfg(target_noise=0.0)))
    with torch.no_grad():
        for made in (agent, smooth):
            made.actor_target[0][-1].weight.zero_()
            made.actor_target[0][-1].bias.copy_(torch.tensor([0.0, 30.0]))
    batch = make_batch(0)
    loss = agent.learn(batch)["critic"].item()
    # What is left of the noise, replayed: the sign of each draw.
    signs = Td3Oracle(Td3Agent(cfg, SPEC, bounds(), seed=3)).draw(32).sign()
    fresh = Td3Oracle(Td3Agent(cfg, SPEC, bounds(), seed=3))
    action = torch.stack((0.1 * signs[:, 0], 1.0 - 0.1 * (signs[:, 1] < 0)), dim=1)
    lower = torch.minimum(*values(fresh.critic_target, batch.next_obs["critic"].double(), action))
    target = fresh.bootstrap(batch, lower.detach())
    q = values(fresh.critic, batch.obs["critic"].double(), fresh.squash(batch.actions))
    assert loss == pytest.approx(sum(((each - target) ** 2).mean().item() for each in q), abs=1e-5)
    assert loss != pytest.approx(smooth.learn(batch)["critic"].item(), abs=1e-4)


def test_actor_and_targets_move_every_second_time():
    agent = Td3Agent(Td3Cfg(), SPEC, bounds(), seed=0)
    for update in range(1, 5):
        before = {
            name: [each.clone() for each in module.parameters()] for name, module in agent.modules.items()
        }
        metrics = agent.learn(make_batch(update))
        moved = {
            name
            for name, module in agent.modules.items()
            if any(
                not torch.equal(old, new) for old, new in zip(before[name], module.parameters(), strict=True)
            )
        }
        assert moved == (
            {"actor", "critic", "actor_target", "critic_target"} if update % 2 == 0 else {"critic"}
        )
        assert ("actor" in metrics) == (update % 2 == 0)


def test_exploration_noise_has_the_set_deviation_in_units_of_half_the_width():
    agent = Td3Agent(Td3Cfg(exploration_noise=0.05), SPEC, bounds(), seed=0)
    obs = {name: torch.zeros(4000, width) for name, width in SPEC.items()}
    noise = agent.explorer(4000).act(obs) - agent.act(obs)
    assert noise.std(0).tolist() == pytest.approx([0.05 * 2.0, 0.05 * 0.375], rel=0.05)
    assert noise.mean(0).tolist() == pytest.approx([0.0, 0.0], abs=0.01)


def test_without_noise_the_explorer_acts_as_the_policy():
    agent = Td3Agent(Td3Cfg(exploration_noise=0.0), SPEC, bounds(), seed=0)
    assert torch.equal(agent.explorer(32).act(make_batch(0).obs), agent.act(make_batch(0).obs))


def test_the_defaults_are_the_authors():
    cfg = Td3Cfg()
    assert (cfg.hidden_dims, cfg.learning_rate, cfg.batch_size, cfg.gamma) == ((256, 256), 3e-4, 256, 0.99)
    assert (cfg.tau, cfg.buffer_size, cfg.actor_interval, cfg.warmup_steps) == (0.005, 1_000_000, 2, 25_000)
    assert (cfg.exploration_noise, cfg.target_noise, cfg.target_noise_clip) == (0.1, 0.2, 0.5)


def test_it_learns_to_regulate_a_linear_system():
    cfg = Td3Cfg(hidden_dims=(32, 32), learning_rate=3e-3, tau=0.05, gamma=0.8)
    agent = Td3Agent(cfg, {"obs": 1}, ActionBounds(-torch.ones(1), torch.ones(1)), seed=0)
    gain = linear_quadratic(agent, updates=300)
    assert gain == pytest.approx(optimal_gain(0.8), abs=0.1)
