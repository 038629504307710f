"""What SAC and TD3 promise alike: bootstraps, determinism, explorers, observation groups."""

import copy
from collections import Counter

import pytest
import torch
from off_policy_oracle import SPEC, bounds, constant_value, make_batch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import ConfigError
from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.algorithms.sac import SacAgent, SacCfg
from unilab_rl.algorithms.td3 import Td3Agent, Td3Cfg
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import Replay

BOTH = pytest.mark.parametrize(("agent_type", "cfg_type"), [(SacAgent, SacCfg), (Td3Agent, Td3Cfg)])


def make(agent_type, cfg_type, *, spec=SPEC, seed=0, **settings):
    return agent_type(cfg_type(**{"hidden_dims": (16, 16), **settings}), spec, bounds(), seed=seed)


def target_of(agent, batch):
    """Returns the targets (B,) that `agent` learns from: each from the loss of its row, with critics that say 0."""
    targets = []
    for row in range(batch.rewards.shape[0]):
        learner = copy.deepcopy(agent)
        one = Batch(
            obs={name: group[row : row + 1] for name, group in batch.obs.items()},
            actions=batch.actions[row : row + 1],
            rewards=batch.rewards[row : row + 1],
            next_obs={name: group[row : row + 1] for name, group in batch.next_obs.items()},
            discounts=batch.discounts[row : row + 1],
            terminated=batch.terminated[row : row + 1],
        )
        loss = learner.learn(one)["critic"].item()
        # SAC halves the squared errors of its two critics, TD3 doesn't.
        targets.append((loss if isinstance(agent, SacAgent) else loss / 2) ** 0.5)
    return targets


def without_entropy(agent):
    """Makes the entropy worth nothing, where there is one."""
    if isinstance(agent, SacAgent):
        with torch.no_grad():
            agent.temperature.log_alpha.fill_(-80.0)
    return agent


def rows(values, width):
    return torch.tensor(values).unsqueeze(1).expand(-1, width).clone()


@BOTH
def test_the_worked_targets(agent_type, cfg_type):
    """A window that a time-out cuts after two steps, the same with a true end, and a full one of three; Q is 10."""
    agent = without_entropy(make(agent_type, cfg_type))
    constant_value(agent, 10.0)
    batch = Batch(
        obs={name: torch.zeros(3, width) for name, width in SPEC.items()},
        actions=torch.zeros(3, 2),
        rewards=torch.tensor([1.99, 1.99, 2.9701]),
        next_obs={name: torch.zeros(3, width) for name, width in SPEC.items()},
        discounts=torch.tensor([0.9801, 0.9801, 0.970299]),
        terminated=torch.tensor([False, True, False]),
    )
    assert target_of(agent, batch) == pytest.approx([11.791, 1.99, 2.9701 + 9.70299], abs=1e-4)


@BOTH
def test_a_time_out_is_bootstrapped_from_the_final_observation_and_a_true_end_never(agent_type, cfg_type):
    """One-step episodes through the replay: a time-out, a true end, both at once, and a step without an end.

    Q is the first number of the observation: 10 in the final one, 3 in those that were acted on.
    """
    agent = without_entropy(make(agent_type, cfg_type))
    constant_value(agent, 0.0, obs_weight=1.0)
    replay = Replay(4, 4, SPEC, 2, n_step=1, gamma=0.99, device="cpu", seed=0)
    replay.add(
        obs={name: rows([3.0] * 4, width) for name, width in SPEC.items()},
        actions=torch.zeros(4, 2),
        rewards=torch.tensor([1.0, 1.001, 1.002, 1.003]),
        next_obs={name: rows([10.0] * 4, width) for name, width in SPEC.items()},
        terminated=torch.tensor([False, True, True, False]),
        truncated=torch.tensor([True, False, True, False]),
    )
    batch = replay.sample(64)
    found = dict(
        zip([round(each, 3) for each in batch.rewards.tolist()], target_of(agent, batch), strict=True)
    )
    assert found == pytest.approx({1.0: 10.9, 1.001: 1.001, 1.002: 1.002, 1.003: 10.903}, abs=1e-4)


@BOTH
def test_nothing_behind_a_true_end_is_read(agent_type, cfg_type):
    agent, other = (make(agent_type, cfg_type) for _ in range(2))
    batch = make_batch(0)
    poisoned = {
        name: torch.where(batch.terminated[:, None], torch.nan, group)
        for name, group in batch.next_obs.items()
    }
    loss = other.learn(
        Batch(batch.obs, batch.actions, batch.rewards, poisoned, batch.discounts, batch.terminated)
    )
    assert torch.equal(agent.learn(batch)["critic"], loss["critic"])


@BOTH
def test_a_loss_that_is_not_finite_is_returned_and_raises_nothing(agent_type, cfg_type):
    agent = make(agent_type, cfg_type)
    batch = make_batch(0)
    batch.rewards[3] = torch.nan
    assert agent.learn(batch)["critic"].isnan()
    assert agent.learn(make_batch(1))["critic"].isnan()


@BOTH
def test_equal_seeds_learn_equally_whatever_the_global_generator_says(agent_type, cfg_type):
    states = []
    for number, seed in enumerate((5, 5, 6)):
        torch.manual_seed(number)
        before = torch.get_rng_state()
        agent = make(agent_type, cfg_type, seed=seed)
        for update in range(3):
            agent.learn(make_batch(update))
        explored = agent.explorer(32).act(make_batch(0).obs)
        assert torch.equal(torch.get_rng_state(), before)
        states.append(
            [explored, *(each for module in agent.modules.values() for each in module.parameters())]
        )
    assert all(torch.equal(one, other) for one, other in zip(states[0], states[1], strict=True))
    assert not torch.equal(states[0][0], states[2][0])
    assert not torch.equal(states[0][1], states[2][1])


@BOTH
def test_another_agent_continues_bit_for_bit(agent_type, cfg_type):
    agent = make(agent_type, cfg_type, obs_normalization=True, actor_interval=2)
    for update in range(3):
        agent.observe(make_batch(update).obs)
        agent.learn(make_batch(update))
    other = make(agent_type, cfg_type, obs_normalization=True, actor_interval=2, seed=9)
    for name, module in other.modules.items():
        module.load_state_dict(copy.deepcopy(agent.modules[name].state_dict()))
    for name, optimizer in other.optimizers.items():
        optimizer.load_state_dict(copy.deepcopy(agent.optimizers[name].state_dict()))
    other.generator.set_state(agent.generator.get_state())
    other.updates = agent.updates
    for update in range(3, 6):
        for each in (agent, other):
            each.observe(make_batch(update).obs)
        first, second = agent.learn(make_batch(update)), other.learn(make_batch(update))
        assert {name: value.item() for name, value in first.items()} == {
            name: value.item() for name, value in second.items()
        }
    for name, module in agent.modules.items():
        for key, tensor in module.state_dict().items():
            assert torch.equal(tensor, other.modules[name].state_dict()[key]), f"{name}.{key}"


@BOTH
def test_critics_read_their_own_group_where_there_is_one(agent_type, cfg_type):
    batch, changed = make_batch(0), make_batch(0)
    changed.obs["critic"].add_(1.0)
    losses = [make(agent_type, cfg_type).learn(each)["critic"].item() for each in (batch, changed)]
    assert losses[0] != pytest.approx(losses[1], abs=1e-4)
    losses = [
        make(agent_type, cfg_type, spec={"obs": 3}).learn(each)["critic"].item() for each in (batch, changed)
    ]
    assert losses[0] == losses[1]
    # The actor never reads it.
    agent = make(agent_type, cfg_type)
    assert torch.equal(agent.act(batch.obs), agent.act({"obs": batch.obs["obs"]}))


@BOTH
def test_without_observations_there_is_no_agent(agent_type, cfg_type):
    with pytest.raises(ConfigError, match=rf"{agent_type.__name__}: .*\['state'\], expected a group 'obs'"):
        make(agent_type, cfg_type, spec={"state": 3})


@BOTH
def test_normalised_observations_are_learned_from_and_acted_on(agent_type, cfg_type):
    """An agent with normalisers on raw observations is one without them on normalised ones."""
    agent, plain = make(agent_type, cfg_type, obs_normalization=True), make(agent_type, cfg_type)
    source = torch.Generator().manual_seed(0)
    seen = {name: 4 + 3 * torch.randn(500, width, generator=source) for name, width in SPEC.items()}
    agent.observe(seen)
    plain.observe(seen)
    batch = make_batch(0)

    def normalised(groups):
        return {
            name: (group - seen[name].mean(0)) / (seen[name].std(0, correction=0) + 1e-2)
            for name, group in groups.items()
        }

    other = Batch(
        normalised(batch.obs),
        batch.actions,
        batch.rewards,
        normalised(batch.next_obs),
        batch.discounts,
        batch.terminated,
    )
    for _ in range(2):
        first, second = agent.learn(batch), plain.learn(other)
        assert {name: value.item() for name, value in first.items()} == pytest.approx(
            {name: value.item() for name, value in second.items()}, abs=1e-4
        )
    assert torch.allclose(agent.act(batch.obs), plain.act(other.obs), atol=1e-4)
    explored = [each.explorer(32).act(groups) for each, groups in ((agent, batch.obs), (plain, other.obs))]
    assert torch.allclose(*explored, atol=1e-4)


@BOTH
def test_actions_stay_within_bounds_that_they_reach(agent_type, cfg_type):
    agent = make(agent_type, cfg_type)
    with torch.no_grad():
        for parameter in agent.actor.parameters():
            parameter.mul_(50.0)
    explorer = agent.explorer(32)
    for seed in range(10):
        obs = make_batch(seed).obs
        for actions in (explorer.act(obs), agent.act(obs)):
            assert (actions.shape, actions.dtype) == ((32, 2), torch.float32)
            assert bool((actions >= agent.bounds.low).all())
            assert bool((actions <= agent.bounds.high).all())
    assert bool((actions == agent.bounds.low).any())
    assert bool((actions == agent.bounds.high).any())


@BOTH
def test_learning_does_not_depend_on_the_unit_of_actions(agent_type, cfg_type):
    """Bounds of 2 and actions twice as large are the same problem, but for the unit of the entropy."""
    agents = [
        agent_type(
            cfg_type(hidden_dims=(16, 16)),
            SPEC,
            ActionBounds(torch.full((2,), -size), torch.full((2,), size)),
            seed=0,
        )
        for size in (1.0, 2.0)
    ]
    batch = make_batch(0)
    batch.actions.clamp_(-1.0, 1.0)
    for size, agent in zip((1.0, 2.0), agents, strict=True):
        without_entropy(agent).learn(
            Batch(
                batch.obs,
                size * batch.actions,
                batch.rewards,
                batch.next_obs,
                batch.discounts,
                batch.terminated,
            )
        )
    assert torch.allclose(2 * agents[0].act(batch.obs), agents[1].act(batch.obs), atol=1e-5)


@BOTH
def test_an_explorer_draws_for_itself_and_follows_updates(agent_type, cfg_type):
    agent = make(agent_type, cfg_type, actor_interval=1)
    explorer = agent.explorer(32)
    obs = make_batch(0).obs
    before = agent.generator.get_state()
    state = explorer.state()
    first, second = explorer.act(obs), explorer.act(obs)
    assert torch.equal(agent.generator.get_state(), before)
    assert not torch.equal(first, second)
    explorer.load_state(state)
    assert torch.equal(explorer.act(obs), first)
    agent.learn(make_batch(0))
    explorer.load_state(state)
    assert not torch.equal(explorer.act(obs), first)
    assert explorer.module is agent.modules["actor"]
    assert agent.updates == 1


class Operators(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.__name__.split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


@BOTH
def test_neither_learning_nor_exploring_waits_for_the_device(agent_type, cfg_type):
    agent = make(agent_type, cfg_type, obs_normalization=True, actor_interval=1)
    explorer = agent.explorer(32)
    batch = make_batch(0)
    agent.learn(batch)
    with Operators() as operators:
        agent.observe(batch.obs)
        agent.learn(batch)
        explorer.act(batch.obs)
        explorer.episodes_ended(batch.terminated)
    assert operators.counts["addmm"] > 0
    waiting = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "index"}
    assert not waiting & set(operators.counts)


@BOTH
def test_the_preset_is_a_small_config_of_its_own(agent_type, cfg_type):
    preset = cfg_type.cpu_preset()
    assert type(preset) is cfg_type
    assert (preset.hidden_dims, preset.updates_per_step, preset.batch_size) == ((128, 128), 4, 256)
    assert 16 * preset.num_steps_per_env * preset.iterations == 200_000
