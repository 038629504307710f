"""FastTD3: one update is the written-out arithmetic, and each environment explores with a deviation of its own."""

import copy
import math

import distributional_cases as cases
import distributional_oracle as oracle
import pytest
import torch

from unilab_core import ConfigError
from unilab_rl.algorithms.fast_td3 import FastTd3Agent, FastTd3Cfg

SMALL = {
    "actor_hidden_dims": (8, 6),
    "critic_hidden_dims": (10, 8),
    "num_atoms": 11,
    "v_min": -4.0,
    "v_max": 4.0,
}
NUM_ENVS = 5


def agent(seed: int = 3, **settings: object) -> FastTd3Agent:
    cfg = FastTd3Cfg(**{**SMALL, **settings})  # type: ignore[arg-type]
    return FastTd3Agent(cfg, cases.SPEC, cases.bounds(), seed=seed, num_envs=NUM_ENVS)


def actor_in_doubles(held: oracle.Tensors, obs: torch.Tensor) -> torch.Tensor:
    hidden = torch.relu(oracle.linear(obs, held, "body.0"))
    hidden = torch.relu(oracle.linear(hidden, held, "body.2"))
    return torch.tanh(oracle.linear(hidden, held, "head"))


def critics_in_doubles(
    held: oracle.Tensors, prefix: str, obs: torch.Tensor, actions: torch.Tensor
) -> torch.Tensor:
    logits = []
    for e in (0, 1):
        x = torch.cat((obs, actions), dim=1)
        for layer in ("0", "2", "4"):
            x = x @ held[f"{prefix}layers.{layer}.weight"][e] + held[f"{prefix}layers.{layer}.bias"][e]
            x = x if layer == "4" else torch.relu(x)
        logits.append(x)
    return torch.stack(logits)


class Written:
    """FastTD3 in double precision, from the weights that `learner` begins with."""

    def __init__(self, learner: FastTd3Agent, seen: dict[str, torch.Tensor]) -> None:
        self.cfg, self.seen = learner.cfg, seen
        self.actor, self.critic, self.target = (
            oracle.doubles(learner.modules[name]) for name in ("actor", "critic", "critic_target")
        )
        self.actor_names = oracle.learnable(self.actor, learner.actor)
        self.critic_names = oracle.learnable(self.critic, learner.critic)
        self.draws = cases.same_draws(learner.generator)
        self.actor_step = oracle.AdamW(learner.cfg.learning_rate, weight_decay=learner.cfg.weight_decay)
        self.critic_step = oracle.AdamW(learner.cfg.learning_rate, weight_decay=learner.cfg.weight_decay)
        self.updates = 0

    def normalized(self, obs: torch.Tensor, group: str) -> torch.Tensor:
        return cases.normalized(obs, self.seen[group]) if self.cfg.obs_normalization else obs.double()

    def learn(self, batch: cases.Batch) -> None:
        cfg = self.cfg
        decayed = min(self.updates / cfg.learning_rate_updates, 1.0)
        rate = cfg.learning_rate_end + (cfg.learning_rate - cfg.learning_rate_end) * 0.5 * (
            1.0 + math.cos(math.pi * decayed)
        )
        self.actor_step.learning_rate = self.critic_step.learning_rate = rate
        support = self.target["support"]
        noise = cfg.target_noise * torch.randn(len(batch.rewards), 2, generator=self.draws).double()
        noise = torch.clamp(noise, -cfg.target_noise_clip, cfg.target_noise_clip)
        next_actions = actor_in_doubles(self.actor, self.normalized(batch.next_obs["obs"], "obs")) + noise
        next_actions = torch.clamp(next_actions, -1.0, 1.0).detach()
        after = critics_in_doubles(
            self.target, "", self.normalized(batch.next_obs["critic"], "critic"), next_actions
        )
        each = [
            oracle.projected(
                oracle.softmax(logits), support, batch.rewards, batch.discounts, batch.terminated
            )
            for logits in after
        ]
        lower = oracle.mean_of(each[0], support) <= oracle.mean_of(each[1], support)
        believed = torch.where(lower[:, None], each[0], each[1])
        targets = (believed, believed) if cfg.use_clipped_double_q else each
        obs = self.normalized(batch.obs["critic"], "critic")
        actions = (batch.actions.double() - cases.CENTRE) / cases.HALF_WIDTH
        logits = critics_in_doubles(self.critic, "ensemble.", obs, actions)
        loss = oracle.cross_entropy(targets[0], logits[0]) + oracle.cross_entropy(targets[1], logits[1])
        self.critic_step.step(self.critic, loss, self.critic_names)
        self.updates += 1
        if self.updates % cfg.actor_interval == 0:
            actions = actor_in_doubles(self.actor, self.normalized(batch.obs["obs"], "obs"))
            first, second = oracle.mean_of(
                oracle.softmax(critics_in_doubles(self.critic, "ensemble.", obs, actions)), support
            )
            value = torch.minimum(first, second) if cfg.use_clipped_double_q else (first + second) / 2.0
            self.actor_step.step(self.actor, -value.mean(), self.actor_names)
        for name in self.critic_names:
            own = name.removeprefix("ensemble.")
            self.target[own] = (1.0 - cfg.tau) * self.target[own] + cfg.tau * self.critic[name].detach()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_clipped_double_q": False, "target_noise": 0.4, "target_noise_clip": 0.3, "actor_init_std": 3.0},
        {"learning_rate_end": 1e-5, "learning_rate_updates": 3, "obs_normalization": False},
    ],
    ids=["published", "own targets and large noise", "annealed and raw"],
)
def test_updates_equal_the_written_out_arithmetic_in_double_precision(settings: dict[str, object]) -> None:
    learner = agent(**settings)
    seen = cases.observations(40, torch.Generator().manual_seed(9))
    learner.observe({name: rows[:15] for name, rows in seen.items()})
    learner.observe({name: rows[15:] for name, rows in seen.items()})
    written = Written(learner, seen)
    for update in range(4):
        batch = cases.batch(seed=update)
        learner.learn(batch)
        written.learn(batch)
        oracle.assert_equal(learner.critic, written.critic)
        oracle.assert_equal(learner.critic_target, written.target)
        oracle.assert_equal(learner.actor, written.actor)
    assert learner.updates == 4


def test_the_actor_learns_only_every_second_update_and_its_loss_is_only_then_reported() -> None:
    learner = agent()
    before = oracle.doubles(learner.actor)
    first = learner.learn(cases.batch(0))
    oracle.assert_equal(learner.actor, before, tolerance=1e-12)
    second = learner.learn(cases.batch(1))
    assert set(first) == {"critic", "target_value"}
    assert set(second) == {"critic", "target_value", "actor"}
    assert all(value.dim() == 0 and not value.requires_grad for value in second.values())
    assert not torch.equal(learner.actor.head.weight.double(), before["head.weight"])


def test_a_resume_in_the_middle_of_an_interval_learns_the_actor_at_the_same_update() -> None:
    learner, other = agent(), agent(seed=8)
    for update in range(3):
        learner.learn(cases.batch(update))
    for name, module in other.modules.items():
        module.load_state_dict(learner.modules[name].state_dict())
    for name, optimizer in other.optimizers.items():
        optimizer.load_state_dict(copy.deepcopy(learner.optimizers[name].state_dict()))
    other.generator.set_state(learner.generator.get_state())
    other.updates = learner.updates
    for update in range(3, 6):
        ours, theirs = learner.learn(cases.batch(update)), other.learn(cases.batch(update))
        assert {name: float(value) for name, value in ours.items()} == {
            name: float(value) for name, value in theirs.items()
        }
    for name, module in other.modules.items():
        held = learner.modules[name].state_dict()
        assert all(torch.equal(tensor, held[key]) for key, tensor in module.state_dict().items())


def test_the_policy_begins_still_at_the_centre_of_the_bounds() -> None:
    learner = agent(actor_init_std=0.0)
    obs = cases.observations(6, torch.Generator().manual_seed(0))
    assert learner.act(obs).tolist() == [[0.0, 1.0]] * 6


def test_every_row_explores_with_a_deviation_drawn_uniformly_from_the_range() -> None:
    explorer = agent().explorer(20_000)
    std = explorer.state()["noise"]["std"].flatten()
    assert float(std.min()) >= 0.001
    assert float(std.max()) <= 0.4
    shares = torch.histc(std, bins=4, min=0.001, max=0.4) / 20_000
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.02)


def test_noise_has_the_deviation_of_its_row_in_units_of_half_the_range() -> None:
    learner = agent(actor_init_std=0.0, exploration_std_min=0.01, exploration_std_max=0.2)
    explorer = learner.explorer(3)
    obs = cases.observations(3, torch.Generator().manual_seed(0))
    tried = torch.stack([explorer.act(obs) for _ in range(4000)])
    std = explorer.state()["noise"]["std"]
    measured = ((tried - cases.CENTRE) / cases.HALF_WIDTH).std(dim=0)
    assert torch.allclose(measured, std.double().expand(3, 2), rtol=0.05)


def test_only_rows_whose_episode_ended_draw_a_new_deviation() -> None:
    explorer = agent().explorer(6)
    before = explorer.state()["noise"]["std"]
    ended = torch.tensor([False, True, False, False, True, False])
    explorer.episodes_ended(ended)
    after = explorer.state()["noise"]["std"]
    assert torch.equal(before == after, ~ended.unsqueeze(1))
    explorer.episodes_ended(torch.zeros(6, dtype=torch.bool))
    assert torch.equal(explorer.state()["noise"]["std"], after)


def test_a_row_draws_the_same_whichever_other_rows_end() -> None:
    one, other = agent().explorer(4), agent().explorer(4)
    one.episodes_ended(torch.tensor([True, True, False, True]))
    other.episodes_ended(torch.tensor([False, True, False, False]))
    assert torch.equal(one.state()["noise"]["std"][1], other.state()["noise"]["std"][1])


def test_actions_stay_within_the_bounds_however_wide_the_noise() -> None:
    explorer = agent(exploration_std_min=5.0, exploration_std_max=50.0, actor_init_std=2.0).explorer(256)
    actions = explorer.act(cases.observations(256, torch.Generator().manual_seed(1)))
    assert actions.dtype == torch.float32
    assert actions.shape == (256, 2)
    assert bool(((actions >= cases.LOW) & (actions <= cases.HIGH)).all())
    assert torch.equal(actions.amax(0), cases.HIGH)
    assert torch.equal(actions.amin(0), cases.LOW)


def test_an_explorer_continues_bit_for_bit_from_its_state() -> None:
    explorer, other = agent().explorer(4), agent().explorer(4)
    obs = cases.observations(4, torch.Generator().manual_seed(1))
    explorer.act(obs)
    explorer.episodes_ended(torch.tensor([True, False, True, False]))
    other.load_state(explorer.state())
    for _ in range(3):
        assert torch.equal(explorer.act(obs), other.act(obs))
        explorer.episodes_ended(torch.tensor([False, True, True, False]))
        other.episodes_ended(torch.tensor([False, True, True, False]))


def test_the_published_object_holds_the_normaliser_and_an_explorer_follows_updates() -> None:
    learner = agent(exploration_std_min=0.0, exploration_std_max=0.0)
    explorer = learner.explorer(4)
    assert {"obs_normalizer.mean", "obs_normalizer.var", "obs_normalizer.count"} <= set(
        explorer.module.state_dict()
    )
    obs = cases.observations(4, torch.Generator().manual_seed(1))
    before = explorer.act(obs)
    learner.observe(obs)
    assert not torch.equal(explorer.act(obs), before)
    assert torch.allclose(explorer.act(obs), learner.act(obs))


def test_normalised_rewards_are_learned_in_units_of_the_spread_of_returns() -> None:
    plain, scaled = agent(), agent(reward_normalization=True)
    batch = cases.batch(0)
    scaled.observe_rewards(torch.tensor([0.0, 2.0, 40.0, -4.0, 6.0]), torch.zeros(5, dtype=torch.bool))
    # The returns so far are the rewards. To bring the largest, 40, to 4, the nearer end of the values, 10 would do;
    # their deviation is more: the squares of -8.8, -6.8, 31.2, -12.8 and -2.8 have the mean 253.76.
    assert float(scaled.modules["reward_normalizer"].scale()) == pytest.approx(math.sqrt(253.76))
    smaller = cases.Batch(**{**vars(batch), "rewards": batch.rewards / math.sqrt(253.76)})
    assert float(scaled.learn(batch)["critic"]) == pytest.approx(
        float(plain.learn(smaller)["critic"]), rel=1e-5
    )


def test_without_reward_normalisation_rewards_leave_no_statistics() -> None:
    learner = agent()
    learner.observe_rewards(torch.ones(5), torch.zeros(5, dtype=torch.bool))
    assert learner.modules["reward_normalizer"].state_dict() == {}


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"v_min is 3 and v_max 1, expected v_min < v_max"):
        FastTd3Cfg(v_min=3.0, v_max=1.0)
    with pytest.raises(ConfigError, match=r"exploration_std_min is 0.5 and exploration_std_max 0.4"):
        FastTd3Cfg(exploration_std_min=0.5)
    with pytest.raises(
        ConfigError, match=r"reward_normalization is true, v_min 0 and v_max 10, expected 0 between"
    ):
        FastTd3Cfg(reward_normalization=True, v_min=0.0)
