"""FastSAC: one update is the written-out arithmetic, and the policy begins still and narrow."""

import copy
import math

import distributional_cases as cases
import distributional_oracle as oracle
import pytest
import torch

from unilab_core import ConfigError
from unilab_rl.algorithms.fast_sac import FastSacAgent, FastSacCfg

SMALL = {
    "actor_hidden_dims": (8, 6),
    "critic_hidden_dims": (10, 8),
    "num_atoms": 11,
    "v_min": -4.0,
    "v_max": 4.0,
}


def agent(seed: int = 3, **settings: object) -> FastSacAgent:
    cfg = FastSacCfg(**{**SMALL, **settings})  # type: ignore[arg-type]
    return FastSacAgent(cfg, cases.SPEC, cases.bounds(), seed=seed)


def perturb(learner: FastSacAgent) -> None:
    """Moves every parameter away from the zeros and ones that it may begin with."""
    draw = torch.Generator().manual_seed(5)
    for name in ("actor", "critic", "critic_target"):
        for parameter in learner.modules[name].parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw)


def silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1.0 + torch.exp(-x))


def policy_in_doubles(
    held: oracle.Tensors, obs: torch.Tensor, cfg: FastSacCfg
) -> tuple[torch.Tensor, torch.Tensor]:
    for layer, norm in (("body.0", "body.1"), ("body.3", "body.4")):
        obs = oracle.linear(obs, held, layer)
        obs = silu(oracle.layer_norm(obs, held[f"{norm}.weight"], held[f"{norm}.bias"]))
    share = (1.0 + torch.tanh(oracle.linear(obs, held, "log_std"))) / 2.0
    return oracle.linear(obs, held, "mean"), cfg.log_std_min + (cfg.log_std_max - cfg.log_std_min) * share


def critics_in_doubles(
    held: oracle.Tensors, prefix: str, obs: torch.Tensor, actions: torch.Tensor
) -> torch.Tensor:
    logits = []
    for e in (0, 1):
        x = torch.cat((obs, actions), dim=1)
        own = {name.removeprefix(prefix): tensor for name, tensor in held.items() if "layers" in name}
        for layer in (0, 3):
            x = x @ own[f"layers.{layer}.weight"][e] + own[f"layers.{layer}.bias"][e]
            x = silu(
                oracle.layer_norm(x, own[f"layers.{layer + 1}.weight"][e], own[f"layers.{layer + 1}.bias"][e])
            )
        logits.append(x @ own["layers.6.weight"][e] + own["layers.6.bias"][e])
    return torch.stack(logits)


class Written:
    """FastSAC in double precision, from the weights that `learner` begins with."""

    def __init__(self, learner: FastSacAgent, seen: dict[str, torch.Tensor]) -> None:
        cfg = learner.cfg
        self.cfg, self.seen = cfg, seen
        names = ("actor", "critic", "critic_target", "temperature")
        self.actor, self.critic, self.target, self.temperature = (
            oracle.doubles(learner.modules[name]) for name in names
        )
        self.actor_names = oracle.learnable(self.actor, learner.actor)
        self.critic_names = oracle.learnable(self.critic, learner.critic)
        oracle.learnable(self.temperature, learner.temperature)
        self.draws = cases.same_draws(learner.generator)
        self.actor_step, self.critic_step, self.temperature_step = (
            oracle.AdamW(cfg.learning_rate, betas=(0.9, 0.95), weight_decay=decay)
            for decay in (cfg.weight_decay, cfg.weight_decay, 0.0)
        )
        self.updates = 0

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = policy_in_doubles(self.actor, cases.normalized(obs, self.seen["obs"]), self.cfg)
        noise = torch.randn(mean.shape, generator=self.draws).double()
        density = oracle.log_density(noise, mean, log_std, cases.HALF_WIDTH)
        return torch.tanh(mean + torch.exp(log_std) * noise), density

    def learn(self, batch: cases.Batch) -> None:
        cfg, support = self.cfg, self.target["support"]
        alpha = torch.exp(self.temperature["log_alpha"]).detach()
        next_actions, next_density = (tensor.detach() for tensor in self.sample(batch.next_obs["obs"]))
        next_obs = cases.normalized(batch.next_obs["critic"], self.seen["critic"])
        after = oracle.softmax(critics_in_doubles(self.target, "", next_obs, next_actions))
        obs = cases.normalized(batch.obs["critic"], self.seen["critic"])
        actions = (batch.actions.double() - cases.CENTRE) / cases.HALF_WIDTH
        logits = critics_in_doubles(self.critic, "ensemble.", obs, actions)
        loss = torch.zeros((), dtype=torch.float64)
        for e in (0, 1):
            target = oracle.projected(
                after[e], support, batch.rewards, batch.discounts, batch.terminated, alpha * next_density
            )
            loss = loss + oracle.cross_entropy(target, logits[e])
        self.critic_step.step(self.critic, loss, self.critic_names)
        entropy_gap = (next_density - cfg.target_entropy_ratio * 2).mean()
        self.temperature_step.step(
            self.temperature, -torch.exp(self.temperature["log_alpha"]) * entropy_gap, ["log_alpha"]
        )
        self.updates += 1
        if self.updates % cfg.actor_interval == 0:
            alpha = torch.exp(self.temperature["log_alpha"]).detach()
            actions, density = self.sample(batch.obs["obs"])
            values = oracle.mean_of(
                oracle.softmax(critics_in_doubles(self.critic, "ensemble.", obs, actions)), support
            )
            self.actor_step.step(self.actor, (alpha * density - values.mean(0)).mean(), self.actor_names)
        for name in self.critic_names:
            own = name.removeprefix("ensemble.")
            self.target[own] = (1.0 - cfg.tau) * self.target[own] + cfg.tau * self.critic[name].detach()


@pytest.mark.parametrize(
    "settings",
    [{"actor_interval": 2}, {"actor_interval": 1, "init_temperature": 0.3, "target_entropy_ratio": 1.5}],
    ids=["published", "warm and with a target"],
)
def test_updates_equal_the_written_out_arithmetic_in_double_precision(settings: dict[str, object]) -> None:
    learner = agent(**settings)
    perturb(learner)
    seen = cases.observations(40, torch.Generator().manual_seed(9))
    learner.observe(seen)
    written = Written(learner, seen)
    for update in range(4):
        batch = cases.batch(seed=update)
        learner.learn(batch)
        written.learn(batch)
        oracle.assert_equal(learner.critic, written.critic)
        oracle.assert_equal(learner.critic_target, written.target)
        oracle.assert_equal(learner.actor, written.actor)
        oracle.assert_equal(learner.temperature, written.temperature)
    assert learner.updates == 4


def test_the_policy_begins_at_the_centre_with_the_middle_deviation() -> None:
    learner = agent()
    obs = cases.observations(5, torch.Generator().manual_seed(0))
    mean, log_std = learner.actor.distribution(obs["obs"])
    assert learner.act(obs).tolist() == [[0.0, 1.0]] * 5
    assert mean.tolist() == [[0.0, 0.0]] * 5
    assert log_std.tolist() == [[-2.5, -2.5]] * 5


@pytest.mark.parametrize(("value", "expected"), [(-100.0, -5.0), (100.0, 0.0)])
def test_the_deviation_stays_in_its_range(value: float, expected: float) -> None:
    learner = agent()
    with torch.no_grad():
        learner.actor.log_std.bias.fill_(value)
    _, log_std = learner.actor.distribution(cases.observations(2, torch.Generator().manual_seed(0))["obs"])
    assert log_std.tolist() == [[expected] * 2] * 2


@pytest.mark.parametrize(
    ("log_std", "falls"), [(100.0, True), (-100.0, False)], ids=["much entropy", "little entropy"]
)
def test_the_temperature_falls_above_the_target_entropy_and_rises_below(
    log_std: float, *, falls: bool
) -> None:
    learner = agent()
    with torch.no_grad():
        learner.actor.log_std.bias.fill_(log_std)
    metrics = learner.learn(cases.batch(0))
    # Two actions of half width 2: wide ones have about log 16 nats at most, a deviation of exp(-5) has about -5.8.
    assert (float(metrics["entropy"]) > 0.0) is falls
    assert (float(learner.temperature().detach()) < float(metrics["alpha"])) is falls
    assert float(metrics["alpha"]) == pytest.approx(0.001)


def test_the_actor_learns_only_every_fourth_update_and_the_rest_at_each() -> None:
    learner = agent()
    reported = [set(learner.learn(cases.batch(update))) for update in range(8)]
    always = {"critic", "target_value", "alpha", "entropy"}
    assert reported == [always, always, always, always | {"actor"}] * 2


def test_samples_stay_within_the_bounds_however_wide_the_policy() -> None:
    learner = agent()
    with torch.no_grad():
        learner.actor.mean.bias.copy_(torch.tensor([60.0, -60.0]))
        learner.actor.log_std.bias.fill_(100.0)
    actions = learner.explorer(64).act(cases.observations(64, torch.Generator().manual_seed(1)))
    assert actions.dtype == torch.float32
    assert actions.tolist() == [[2.0, -1.0]] * 64


def test_exploration_samples_the_policy_from_a_generator_of_its_own() -> None:
    learner = agent()
    explorer = learner.explorer(20_000)
    state = learner.generator.get_state()
    obs = {"obs": torch.zeros(20_000, 3)}
    unsquashed = torch.atanh((explorer.act(obs) - cases.CENTRE) / cases.HALF_WIDTH)
    assert float(unsquashed.mean()) == pytest.approx(0.0, abs=0.002)
    assert float(unsquashed.std()) == pytest.approx(math.exp(-2.5), rel=0.02)
    assert torch.equal(learner.generator.get_state(), state)


def test_an_explorer_continues_bit_for_bit_from_its_state() -> None:
    explorer, other = agent().explorer(4), agent().explorer(4)
    obs = cases.observations(4, torch.Generator().manual_seed(1))
    explorer.act(obs)
    other.load_state(explorer.state())
    assert torch.equal(explorer.act(obs), other.act(obs))


def test_a_resume_learns_on_bit_for_bit() -> None:
    learner, other = agent(), agent(seed=8)
    learner.observe(cases.observations(9, torch.Generator().manual_seed(0)))
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


def test_a_range_of_deviations_in_the_wrong_order_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"log_std_min is 1 and log_std_max 0, expected the first below the second"
    ):
        FastSacCfg(log_std_min=1.0)
