"""The worked numbers of bootstrapping, in every learner with distributional critics."""

import distributional_cases as cases
import distributional_oracle as oracle
import pytest
import torch

from unilab_rl.algorithms.fast_sac import FastSacAgent, FastSacCfg
from unilab_rl.algorithms.fast_td3 import FastTd3Agent, FastTd3Cfg
from unilab_rl.algorithms.flash_sac import FlashSacAgent, FlashSacCfg
from unilab_rl.contracts.off_policy import Batch

RANGE = {"num_atoms": 101, "v_min": -20.0, "v_max": 20.0}
SMALL = {"actor_hidden_dims": (4,), "critic_hidden_dims": (4,)}
NEGLIGIBLE = 1e-12  # a temperature at which entropy is worth nothing
SPEC = {"obs": 3}


def fast_td3() -> FastTd3Agent:
    return FastTd3Agent(FastTd3Cfg(**RANGE, **SMALL), SPEC, cases.bounds(), seed=0, num_envs=1)


def fast_sac() -> FastSacAgent:
    return FastSacAgent(
        FastSacCfg(**RANGE, **SMALL, init_temperature=NEGLIGIBLE), SPEC, cases.bounds(), seed=0
    )


def flash_sac() -> FlashSacAgent:
    cfg = FlashSacCfg(actor_width=4, critic_width=4, v_max=20.0, init_temperature=NEGLIGIBLE)
    return FlashSacAgent(cfg, SPEC, cases.bounds(), seed=0, num_envs=1)


LEARNERS = pytest.mark.parametrize("make", [fast_td3, fast_sac, flash_sac])


def expect_everywhere(agent: FastTd3Agent | FastSacAgent | FlashSacAgent, *values: float) -> None:
    """Makes the target critics expect these values, one a critic, of every state and action."""
    target = agent.critic_target
    head, bias = (
        (target.head, target.head_bias)
        if isinstance(agent, FlashSacAgent)
        else (target.layers[-1], target.layers[-1].bias)
    )
    with torch.no_grad():
        head.weight.zero_()
        bias.zero_()
        for critic, value in enumerate(values):
            bias[critic, 0, round((value + 20.0) / 0.4)] = 200.0


def learned(
    agent: FastTd3Agent | FastSacAgent | FlashSacAgent,
    *,
    reward: float,
    discount: float,
    terminated: bool,
    next_obs: float = 0.0,
) -> float:
    """The mean of the target distribution of a batch of equal transitions."""
    rows = 4
    batch = Batch(
        obs={"obs": torch.zeros(rows, 3)},
        actions=torch.zeros(rows, 2),
        rewards=torch.full((rows,), reward),
        next_obs={"obs": torch.full((rows, 3), next_obs)},
        discounts=torch.full((rows,), discount),
        terminated=torch.full((rows,), terminated),
    )
    return float(agent.learn(batch)["target_value"])


@LEARNERS
def test_a_time_out_bootstraps_and_a_true_end_does_not(make) -> None:
    agent = make()
    expect_everywhere(agent, 10.0, 10.0)
    assert learned(agent, reward=1.0, discount=0.99, terminated=False) == pytest.approx(10.9, abs=1e-4)
    agent = make()
    expect_everywhere(agent, 10.0, 10.0)
    # Where both fire the replay's flag is that of a true end: 1.0 again.
    assert learned(agent, reward=1.0, discount=0.99, terminated=True) == pytest.approx(1.0, abs=1e-4)


@LEARNERS
def test_a_window_is_discounted_by_its_own_length(make) -> None:
    agent = make()
    expect_everywhere(agent, 10.0, 10.0)
    # Two steps before a time-out: 1 + 0.99 and 0.9801 * 10, not 0.99 * 10 and not 0.970299 * 10.
    assert learned(agent, reward=1.99, discount=0.9801, terminated=False) == pytest.approx(11.791, abs=1e-4)


@LEARNERS
def test_nothing_behind_a_true_end_reaches_the_target_not_even_its_entropy(make) -> None:
    agent = make()
    if not isinstance(agent, FastTd3Agent):
        with torch.no_grad():
            agent.temperature.log_alpha.fill_(3.0)
    expect_everywhere(agent, 10.0, -8.0)
    assert learned(agent, reward=1.0, discount=0.99, terminated=True) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("make", [fast_td3, flash_sac])
def test_clipped_double_q_believes_the_critic_that_expects_less(make) -> None:
    agent = make()
    expect_everywhere(agent, 10.0, -8.0)
    assert learned(agent, reward=1.0, discount=0.99, terminated=False) == pytest.approx(
        1.0 - 0.99 * 8.0, abs=1e-4
    )


def test_each_critic_of_fast_sac_believes_itself() -> None:
    agent = fast_sac()
    expect_everywhere(agent, 10.0, -8.0)
    mean_of_both = 1.0 + 0.99 * (10.0 - 8.0) / 2.0
    assert learned(agent, reward=1.0, discount=0.99, terminated=False) == pytest.approx(
        mean_of_both, abs=1e-4
    )


def test_entropy_ahead_is_worth_the_temperature_and_discounted() -> None:
    agent = fast_sac()
    with torch.no_grad():
        agent.temperature.log_alpha.fill_(0.0)
    expect_everywhere(agent, 2.0, 2.0)
    noise = torch.randn(4, 2, generator=cases.same_draws(agent.generator)).double()
    # A new policy has mean 0 and deviation exp(-2.5) before the squashing, in actions of half width 2.
    mean, log_std = torch.zeros(4, 2, dtype=torch.float64), torch.full((4, 2), -2.5, dtype=torch.float64)
    density = oracle.log_density(noise, mean, log_std, cases.HALF_WIDTH)
    expected = 0.5 * (2.0 - float(density.mean()))
    assert learned(agent, reward=0.0, discount=0.5, terminated=False) == pytest.approx(expected, abs=1e-4)
