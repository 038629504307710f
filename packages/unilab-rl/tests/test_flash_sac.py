"""FlashSAC: one update is the written-out arithmetic, and weights, statistics and noise keep their rules."""

import copy
import itertools
import math

import distributional_cases as cases
import distributional_oracle as oracle
import pytest
import torch

from unilab_core import ConfigError
from unilab_rl.algorithms.flash_sac import FlashSacAgent, FlashSacCfg

SMALL = {"actor_width": 6, "actor_num_blocks": 1, "critic_width": 5, "critic_num_blocks": 2, "num_atoms": 11}
NUM_ENVS = 5


def agent(seed: int = 3, **settings: object) -> FlashSacAgent:
    cfg = FlashSacCfg(**{**SMALL, **settings})  # type: ignore[arg-type]
    return FlashSacAgent(cfg, cases.SPEC, cases.bounds(), seed=seed, num_envs=NUM_ENVS)


def on_the_sphere(weight: torch.Tensor, length: float) -> torch.Tensor:
    return weight * (length / torch.sqrt((weight**2).sum(-1, keepdim=True)))


def projected_weights(held: oracle.Tensors) -> None:
    """Rows of matrices to norm 1, scale and bias of a batch normalisation together to sqrt(width), other scales too."""
    for name, tensor in list(held.items()):
        stem = name.removesuffix(".weight")
        if stem == name:
            continue
        if f"{stem}.running_mean" in held:
            both = on_the_sphere(
                torch.cat((tensor, held[f"{stem}.bias"]), dim=-1), math.sqrt(tensor.shape[-1])
            )
            first, second = both.detach().chunk(2, dim=-1)
            held[name], held[f"{stem}.bias"] = first.clone().requires_grad_(), second.clone().requires_grad_()
        else:
            length = math.sqrt(tensor.shape[-1]) if stem.endswith("output_norm") else 1.0
            held[name] = on_the_sphere(tensor, length).detach().requires_grad_()


class Network:
    """The blocks of one network, or of one member of an ensemble, in double precision."""

    def __init__(self, held: oracle.Tensors, prefix: str, member: int | None) -> None:
        self.held, self.prefix, self.member = held, prefix, member

    def get(self, name: str) -> torch.Tensor:
        tensor = self.held[self.prefix + name]
        return tensor if self.member is None else tensor[self.member]

    def batch_norm(self, x: torch.Tensor, name: str, *, batch_statistics: bool) -> torch.Tensor:
        mean, var = self.get(f"{name}.running_mean"), self.get(f"{name}.running_var")
        if batch_statistics:
            own = x.mean(0)
            own_var = ((x - own) ** 2).mean(0)
            unbiased = own_var.detach() * len(x) / (len(x) - 1)
            mean.copy_(0.99 * mean + 0.01 * own.detach())
            var.copy_(0.99 * var + 0.01 * unbiased)
            mean, var = own, own_var
        return (x - mean) / torch.sqrt(var + 1e-5) * self.get(f"{name}.weight") + self.get(f"{name}.bias")

    def features(self, x: torch.Tensor, blocks: int, *, batch_statistics: bool) -> torch.Tensor:
        x = (
            self.batch_norm(x, "input_norm", batch_statistics=batch_statistics)
            @ self.get("embedding.weight").T
        )
        for i in range(blocks):
            inside = x @ self.get(f"blocks.{i}.widen.weight").T
            inside = torch.relu(
                self.batch_norm(inside, f"blocks.{i}.widened", batch_statistics=batch_statistics)
            )
            inside = inside @ self.get(f"blocks.{i}.narrow.weight").T
            x = x + torch.relu(
                self.batch_norm(inside, f"blocks.{i}.narrowed", batch_statistics=batch_statistics)
            )
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * self.get("output_norm.weight")


class Written:
    """FlashSAC in double precision, from the weights that `learner` begins with."""

    def __init__(self, learner: FlashSacAgent) -> None:
        cfg = learner.cfg
        self.cfg = cfg
        names = ("actor", "critic", "critic_target", "temperature")
        self.actor, self.critic, self.target, self.temperature = (
            oracle.doubles(learner.modules[name]) for name in names
        )
        self.actor_names = oracle.learnable(self.actor, learner.actor)
        self.critic_names = oracle.learnable(self.critic, learner.critic)
        oracle.learnable(self.temperature, learner.temperature)
        self.draws = cases.same_draws(learner.generator)
        self.steps = [oracle.AdamW(cfg.learning_rate) for _ in range(3)]
        # Of a Gaussian of deviation 0.15, in actions of half width 2.
        self.target_entropy = 2 * (0.5 * math.log(2 * math.pi * math.e * 0.15**2) + math.log(2.0))
        self.updates = 0

    def sample(self, obs: torch.Tensor, *, batch_statistics: bool) -> tuple[torch.Tensor, torch.Tensor]:
        network = Network(self.actor, "body.body.", None)
        features = network.features(
            obs.double(), self.cfg.actor_num_blocks, batch_statistics=batch_statistics
        )
        mean = features @ self.actor["body.mean.weight"].T + self.actor["body.mean_bias"]
        free = features @ self.actor["body.log_std.weight"].T + self.actor["body.log_std_bias"]
        log_std = -10.0 + 12.0 * (1.0 + torch.tanh(free)) / 2.0
        noise = torch.randn(mean.shape, generator=self.draws).double()
        density = oracle.log_density(noise, mean, log_std, cases.HALF_WIDTH)
        return torch.tanh(mean + torch.exp(log_std) * noise), density

    def probabilities(
        self, held: oracle.Tensors, obs: torch.Tensor, actions: torch.Tensor, *, batch_statistics: bool
    ) -> torch.Tensor:
        x = torch.cat((obs.double(), actions), dim=1)
        members = []
        for e in (0, 1):
            network = Network(held, "body.", e)
            features = network.features(x, self.cfg.critic_num_blocks, batch_statistics=batch_statistics)
            members.append(oracle.softmax(features @ held["head.weight"][e].T + held["head_bias"][e]))
        return torch.stack(members)

    def learn(self, batch: cases.Batch, scale: float) -> None:
        cfg, rows, support = self.cfg, len(batch.rewards), self.target["support"]
        decayed = min(self.updates / cfg.learning_rate_updates, 1.0)
        rate = cfg.learning_rate_end + (cfg.learning_rate - cfg.learning_rate_end) * 0.5 * (
            1.0 + math.cos(math.pi * decayed)
        )
        for step in self.steps:
            step.learning_rate = rate
        if self.updates % cfg.actor_interval == 0:
            both = torch.cat((batch.obs["obs"], batch.next_obs["obs"]))
            actions, density = self.sample(both, batch_statistics=True)
            actions, density = actions[:rows], density[:rows]
            values = oracle.mean_of(
                self.probabilities(self.critic, batch.obs["critic"], actions, batch_statistics=False), support
            )
            alpha = torch.exp(self.temperature["log_alpha"])
            loss = (alpha.detach() * density - torch.minimum(values[0], values[1])).mean()
            self.steps[0].step(self.actor, loss, self.actor_names)
            projected_weights(self.actor)
            gap = -density.detach().mean() - self.target_entropy
            self.steps[1].step(self.temperature, alpha * gap, ["log_alpha"])
        alpha = torch.exp(self.temperature["log_alpha"]).detach()
        next_actions, next_density = (
            tensor.detach() for tensor in self.sample(batch.next_obs["obs"], batch_statistics=False)
        )
        obs = torch.cat((batch.obs["critic"], batch.next_obs["critic"]))
        actions = torch.cat(((batch.actions.double() - cases.CENTRE) / cases.HALF_WIDTH, next_actions))
        after = self.probabilities(self.target, obs, actions, batch_statistics=True)[:, rows:].detach()
        means = oracle.mean_of(after, support)
        believed = torch.where((means[0] <= means[1])[:, None], after[0], after[1])
        target = oracle.projected(
            believed, support, batch.rewards / scale, batch.discounts, batch.terminated, alpha * next_density
        )
        predicted = self.probabilities(self.critic, obs, actions, batch_statistics=True)[:, :rows]
        loss = -(target * torch.log(predicted)).sum(-1).mean()
        self.steps[2].step(self.critic, loss, self.critic_names)
        projected_weights(self.critic)
        for name in self.critic_names:
            self.target[name] = (1.0 - cfg.tau) * self.target[name] + cfg.tau * self.critic[name].detach()
        self.updates += 1


def perturb(learner: FlashSacAgent) -> None:
    """Moves parameters and statistics away from where they begin."""
    draw = torch.Generator().manual_seed(5)
    for name in ("actor", "critic", "critic_target"):
        for key, tensor in learner.modules[name].state_dict().items():
            if key.endswith("var"):
                tensor.mul_(1.0 + torch.rand(tensor.shape, generator=draw))
            elif key != "support":
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=draw))


@pytest.mark.parametrize(
    "settings",
    [{}, {"actor_interval": 1, "init_temperature": 0.2, "learning_rate_updates": 3, "tau": 0.3}],
    ids=["published", "warm and annealed"],
)
def test_updates_equal_the_written_out_arithmetic_in_double_precision(settings: dict[str, object]) -> None:
    learner = agent(**settings)
    perturb(learner)
    rewards = torch.tensor([0.0, 2.0, 10.0, -4.0, 2.0])
    learner.observe_rewards(rewards, torch.zeros(5, dtype=torch.bool))
    scale = math.sqrt(20.8)  # the mean of the squares of -2, 0, 8, -6 and 0; the largest over 5 is only 2
    written = Written(learner)
    for update in range(4):
        batch = cases.batch(seed=update)
        learner.learn(batch)
        written.learn(batch, scale)
        oracle.assert_equal(learner.actor, written.actor)
        oracle.assert_equal(learner.temperature, written.temperature)
        oracle.assert_equal(learner.critic, written.critic)
        oracle.assert_equal(learner.critic_target, written.target)
    assert learner.updates == 4


def test_updates_project_weights_of_actor_and_critics_and_average_those_of_the_target() -> None:
    learner = agent(learning_rate=0.1, tau=0.5)
    for update in range(3):
        learner.learn(cases.batch(update))
    for network in (learner.actor, learner.critic):
        held = oracle.doubles(network)
        again = {name: tensor.clone() for name, tensor in held.items()}
        projected_weights(again)
        assert all(torch.allclose(held[name], again[name], atol=1e-5) for name in held)
    averaged = oracle.doubles(learner.critic_target)["body.embedding.weight"]
    assert float(torch.sqrt((averaged**2).sum(-1)).min()) < 1.0 - 1e-4


def test_critic_and_target_keep_statistics_of_their_own_and_deterministic_actions_change_none() -> None:
    learner = agent()
    learner.learn(cases.batch(0))
    name = "body.blocks.0.narrowed.running_mean"
    # The first normalisation sees the same numbers in both; behind weights that differ, statistics differ.
    critic, target = oracle.doubles(learner.critic), oracle.doubles(learner.critic_target)
    learner.learn(cases.batch(1))
    assert torch.equal(critic["body.input_norm.running_mean"], target["body.input_norm.running_mean"])
    assert not torch.equal(oracle.doubles(learner.critic)[name], oracle.doubles(learner.critic_target)[name])
    before = oracle.doubles(learner.actor)
    obs = cases.observations(4, torch.Generator().manual_seed(0))
    together = learner.act(obs)
    alone = torch.cat([learner.act({key: rows[i : i + 1] for key, rows in obs.items()}) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-6)
    oracle.assert_equal(learner.actor, before, tolerance=1e-30)


def test_the_actors_update_leaves_the_statistics_of_the_critics_alone_and_keeps_its_own_over_both_halves() -> (
    None
):
    learner = agent()
    critic = oracle.doubles(learner.critic)
    batch = cases.batch(0)
    learner._learn_actor(batch)
    oracle.assert_equal(learner.critic, critic, tolerance=1e-30)
    both = torch.cat((batch.obs["obs"], batch.next_obs["obs"])).double()
    held = oracle.doubles(learner.actor)
    assert torch.allclose(held["body.body.input_norm.running_mean"], 0.01 * both.mean(0), atol=1e-6)
    assert torch.allclose(held["body.body.input_norm.running_var"], 0.99 + 0.01 * both.var(0), atol=1e-6)


def test_noise_is_held_for_k_steps_with_the_probability_of_a_zeta_distribution() -> None:
    learner = agent()
    explorer = learner.explorer(1000)
    obs = {"obs": torch.zeros(1000, 3)}
    held = [explorer.act(obs) for _ in range(120)]
    lengths: list[int] = []
    for row in torch.stack(held, dim=1):
        changes = [0, *((row[1:] != row[:-1]).any(1).nonzero().flatten() + 1).tolist()]
        # Noise that is still held at the end says nothing of how long; a start near the end is then too rarely long.
        lengths += [b - a for a, b in itertools.pairwise(changes) if a < 100]
    weights = [k**-2.0 for k in range(1, 17)]
    assert max(lengths) == 16
    for k in (1, 2, 3, 5, 16):
        share = sum(length == k for length in lengths) / len(lengths)
        assert share == pytest.approx(weights[k - 1] / sum(weights), rel=0.1, abs=0.0005)


def test_an_end_of_an_episode_lets_the_noise_of_that_row_go_and_of_no_other() -> None:
    learner = agent(noise_exponent=0.0, noise_max_steps=16)
    explorer = learner.explorer(200)
    obs = {"obs": torch.zeros(200, 3)}
    before = explorer.act(obs)
    lasting = explorer.state()["noise"]["remaining"] > 0
    ended = torch.arange(200) % 2 == 0
    explorer.episodes_ended(ended)
    after = explorer.act(obs)
    same = (before == after).all(1)
    assert torch.equal(same, lasting & ~ended)


def test_an_explorer_continues_bit_for_bit_in_the_middle_of_its_noise() -> None:
    explorer, other = agent().explorer(6), agent().explorer(6)
    obs = cases.observations(6, torch.Generator().manual_seed(1))
    for _ in range(3):
        explorer.act(obs)
    other.load_state(explorer.state())
    for _ in range(20):
        assert torch.equal(explorer.act(obs), other.act(obs))


def test_exploration_stays_within_the_bounds_and_follows_the_published_module() -> None:
    learner = agent()
    with torch.no_grad():
        learner.actor.body.log_std_bias.fill_(50.0)
    explorer = learner.explorer(300)
    actions = explorer.act(cases.observations(300, torch.Generator().manual_seed(1)))
    assert actions.dtype == torch.float32
    assert actions.shape == (300, 2)
    assert bool(((actions >= cases.LOW) & (actions <= cases.HIGH)).all())
    assert float(actions.std(0).min()) > 1.0
    assert explorer.module is learner.actor
    assert "body.body.blocks.0.widened.running_var" in explorer.module.state_dict()


def test_the_target_entropy_is_that_of_the_wanted_deviation_in_units_of_the_environment() -> None:
    expected = 2 * 0.5 * math.log(2 * math.pi * math.e * 0.15**2) + 2 * math.log(2.0)
    assert float(agent().target_entropy) == pytest.approx(expected)


def test_the_reward_of_an_end_is_credited_to_its_own_episode() -> None:
    learner = agent(gamma=0.5)
    yes, no = torch.ones(5, dtype=torch.bool), torch.zeros(5, dtype=torch.bool)
    learner.observe_rewards(torch.full((5,), 4.0), no)
    learner.observe_rewards(torch.full((5,), 100.0), yes)
    learner.observe_rewards(torch.full((5,), 4.0), no)
    # Returns 4, 102 and 4, not 4, 102 and 55: the largest over 5 is 20.4, the deviation 46.2.
    expected = math.sqrt((4**2 + 102**2 + 4**2) / 3 - (110 / 3) ** 2)
    assert float(learner.modules["reward_normalizer"].scale()) == pytest.approx(expected)


def test_a_resume_learns_on_bit_for_bit() -> None:
    learner, other = agent(), agent(seed=8)
    learner.observe_rewards(torch.arange(5.0), torch.zeros(5, dtype=torch.bool))
    for update in range(3):
        learner.learn(cases.batch(update))
    for name, module in other.modules.items():
        module.load_state_dict(learner.modules[name].state_dict())
    for name, optimizer in other.optimizers.items():
        optimizer.load_state_dict(copy.deepcopy(learner.optimizers[name].state_dict()))
    other.generator.set_state(learner.generator.get_state())
    other.updates = learner.updates
    for update in range(3, 6):
        learner.learn(cases.batch(update))
        other.learn(cases.batch(update))
    for name, module in other.modules.items():
        held = learner.modules[name].state_dict()
        assert all(torch.equal(tensor, held[key]) for key, tensor in module.state_dict().items())


def test_settings_that_contradict_the_algorithm_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"obs_normalization is true, expected false: the networks begin with batch"
    ):
        FlashSacCfg(obs_normalization=True)
    with pytest.raises(
        ConfigError, match=r"log_std_min is 3 and log_std_max 2, expected the first below the second"
    ):
        FlashSacCfg(log_std_min=3.0)
