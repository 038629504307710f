"""What every learner with distributional critics does alike: it waits for nobody, and presets fit their returns."""

from collections import Counter

import distributional_cases as cases
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_rl.algorithms.fast_sac import FastSacAgent, FastSacCfg
from unilab_rl.algorithms.fast_td3 import FastTd3Agent, FastTd3Cfg
from unilab_rl.algorithms.flash_sac import FlashSacAgent, FlashSacCfg

WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "index"}


def fast_td3(seed: int = 0) -> FastTd3Agent:
    cfg = FastTd3Cfg(actor_hidden_dims=(4,), critic_hidden_dims=(4,), reward_normalization=True)
    return FastTd3Agent(cfg, cases.SPEC, cases.bounds(), seed=seed, num_envs=5)


def fast_sac(seed: int = 0) -> FastSacAgent:
    cfg = FastSacCfg(actor_hidden_dims=(4,), critic_hidden_dims=(4,))
    return FastSacAgent(cfg, cases.SPEC, cases.bounds(), seed=seed)


def flash_sac(seed: int = 0) -> FlashSacAgent:
    return FlashSacAgent(
        FlashSacCfg(actor_width=4, critic_width=4), cases.SPEC, cases.bounds(), seed=seed, num_envs=5
    )


LEARNERS = pytest.mark.parametrize("make", [fast_td3, fast_sac, flash_sac])


class Waits(TorchDispatchMode):
    """Counts the operators that make the host wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if name in WAITING:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@LEARNERS
def test_neither_acting_nor_learning_waits_for_the_device(make) -> None:
    agent = make()
    explorer = agent.explorer(5)
    obs = cases.observations(5, torch.Generator().manual_seed(0))
    batch = cases.batch(0)
    with Waits() as waits:
        for _ in range(4):
            explorer.act(obs)
            explorer.episodes_ended(torch.tensor([True, False, False, True, False]))
            agent.observe(obs)
            agent.observe_rewards(torch.ones(5), torch.zeros(5, dtype=torch.bool))
            agent.learn(batch)
        agent.act(obs)
    assert waits.counts == Counter()


@LEARNERS
def test_equal_seeds_learn_equally_whatever_else_draws_and_others_differ(make) -> None:
    def learned(seed: int) -> list[torch.Tensor]:
        agent = make(seed)
        for update in range(4):
            torch.rand(update)  # the global generator is nobody's business
            agent.learn(cases.batch(update))
        return [parameter.detach() for parameter in agent.modules["actor"].parameters()]

    first, again, other = learned(1), learned(1), learned(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@LEARNERS
def test_a_batch_is_left_as_it_was(make) -> None:
    batch, same = cases.batch(0), cases.batch(0)
    make().learn(batch)
    assert torch.equal(batch.actions, same.actions)
    assert torch.equal(batch.rewards, same.rewards)
    for name in cases.SPEC:
        assert torch.equal(batch.obs[name], same.obs[name])
        assert torch.equal(batch.next_obs[name], same.next_obs[name])


@LEARNERS
def test_a_batch_that_is_not_finite_shows_in_the_loss(make) -> None:
    batch = cases.batch(0)
    batch.rewards[1] = torch.nan
    assert make().learn(batch)["critic"].isnan()


@pytest.mark.parametrize("config", [FastTd3Cfg, FastSacCfg])
def test_a_preset_for_rewards_of_at_most_1_can_tell_every_return(config) -> None:
    preset = config.cpu_preset()
    assert preset.v_min <= 0.0
    assert preset.v_max == pytest.approx(1.0 / (1.0 - preset.gamma))


@pytest.mark.parametrize("config", [FastTd3Cfg, FastSacCfg, FlashSacCfg])
def test_a_preset_takes_200_000_steps_of_16_environments_and_forgets_none(config) -> None:
    preset = config.cpu_preset()
    steps = preset.iterations * preset.num_steps_per_env * 16
    assert steps == 200_000
    assert preset.buffer_size >= steps


def test_the_steps_of_flash_sacs_preset_get_smaller_until_its_end() -> None:
    preset = FlashSacCfg.cpu_preset()
    updates = preset.iterations * preset.num_steps_per_env * preset.updates_per_step
    assert preset.learning_rate_updates == updates
