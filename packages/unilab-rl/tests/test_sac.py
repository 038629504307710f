"""Soft actor-critic against an independent computation, and what its config means."""

import math

import pytest
import torch
from off_policy_oracle import (
    SPEC,
    SacOracle,
    assert_close,
    bounds,
    linear_quadratic,
    make_batch,
    optimal_gain,
)

from unilab_core import ConfigError
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.sac import SacAgent, SacCfg


@pytest.mark.parametrize("actor_interval", [1, 2])
def test_updates_equal_an_independent_double_precision_computation(actor_interval):
    agent = SacAgent(SacCfg(actor_interval=actor_interval), SPEC, bounds(), seed=3)
    oracle = SacOracle(agent)
    for seed in range(4):
        batch = make_batch(seed)
        metrics, expected = agent.learn(batch), oracle.learn(batch)
        assert set(metrics) == set(expected)
        for name, value in metrics.items():
            assert value.shape == ()
            assert value.item() == pytest.approx(expected[name].item(), abs=1e-5), name
        assert_close(agent.actor, oracle.actor)
        assert_close(agent.critic, oracle.critic)
        assert_close(agent.critic_target, oracle.critic_target)
        assert_close(agent.temperature, [oracle.log_alpha])
    assert agent.updates == 4


def test_actor_and_temperature_move_every_second_time_and_the_targets_always():
    agent = SacAgent(SacCfg(actor_interval=2, learning_rate=0.01), SPEC, bounds(), seed=0)
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
        delayed = {"actor", "temperature"} if update % 2 == 0 else set()
        assert moved == {"critic", "critic_target"} | delayed
        assert ("actor" in metrics) == (update % 2 == 0)


def test_the_target_entropy_is_the_same_spread_for_every_width_of_bounds():
    agent = SacAgent(SacCfg(), SPEC, bounds(), seed=0)
    assert agent.target_entropy.item() == pytest.approx(-2.0 + math.log(2.0) + math.log(0.375))
    unit = ActionBounds(-torch.ones(2), torch.ones(2))
    assert SacAgent(SacCfg(), SPEC, unit, seed=0).target_entropy.item() == -2.0


@pytest.mark.parametrize(("wanted", "direction"), [(-10.0, -1), (10.0, 1)])
def test_the_temperature_falls_where_there_is_more_entropy_than_wanted(wanted, direction):
    agent = SacAgent(SacCfg(target_entropy_per_action=wanted), SPEC, bounds(), seed=0)
    before = agent.temperature().item()
    agent.learn(make_batch(0))
    assert (agent.temperature().item() - before) * direction > 0


def test_the_deviation_stays_between_its_bounds():
    agent = SacAgent(SacCfg(log_std_min=-3.0, log_std_max=0.5), SPEC, bounds(), seed=0)
    for scale in (1e-3, 1.0, 1e6):
        _, log_std = agent.actor.distribution(
            scale * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        )
        assert -3.0 <= log_std.min().item() <= log_std.max().item() <= 0.5
    _, middle = SacAgent(
        SacCfg(log_std_min=-3.0, log_std_max=0.5), SPEC, bounds(), seed=0
    ).actor.distribution(torch.zeros(1, 3))
    assert middle.flatten().tolist() == pytest.approx([-1.25, -1.25], abs=0.2)


def test_deviations_without_a_range_are_refused():
    with pytest.raises(ConfigError, match="log_std_min is 2 and log_std_max 2, expected the lower one first"):
        SacCfg(log_std_min=2.0)


def test_the_defaults_are_the_papers():
    cfg = SacCfg()
    assert (cfg.hidden_dims, cfg.learning_rate, cfg.batch_size, cfg.gamma) == ((256, 256), 3e-4, 256, 0.99)
    assert (cfg.tau, cfg.buffer_size, cfg.actor_interval, cfg.init_temperature) == (0.005, 1_000_000, 1, 1.0)


def test_it_learns_to_regulate_a_linear_system():
    cfg = SacCfg(hidden_dims=(32, 32), learning_rate=3e-3, tau=0.05, gamma=0.8, init_temperature=0.1)
    agent = SacAgent(cfg, {"obs": 1}, ActionBounds(-torch.ones(1), torch.ones(1)), seed=0)
    gain = linear_quadratic(agent, updates=300)
    assert gain == pytest.approx(optimal_gain(0.8), abs=0.1)
