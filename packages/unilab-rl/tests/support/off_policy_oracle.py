"""An independent account, in float64, of what SAC and TD3 compute: networks, targets, losses and Adam by hand.

Nothing of the code under test is called: weights are read from it once, and its random draws are repeated from a copy
of its generator.
"""

import copy
import math
from typing import Any

import torch

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.contracts.off_policy import Batch

LOW, HIGH = (-1.0, -0.5), (3.0, 0.25)
"""Two actions, neither in the middle of 0 nor of half width 1: 2 and 0.375 around 1 and -0.125."""

SPEC = {"obs": 3, "critic": 5}


def bounds() -> ActionBounds:
    """Returns the bounds `LOW` and `HIGH`."""
    return ActionBounds(torch.tensor(LOW), torch.tensor(HIGH))


def make_batch(seed: int, rows: int = 32) -> Batch:
    """Returns transitions with windows of one to three steps, a quarter of them ending truly."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    unit = torch.rand((rows, 2), generator=generator)
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    return Batch(
        obs={name: draw(rows, width) for name, width in SPEC.items()},
        actions=low + (high - low) * unit,
        rewards=draw(rows),
        next_obs={name: draw(rows, width) for name, width in SPEC.items()},
        discounts=0.99 ** torch.randint(1, 4, (rows,), generator=generator).float(),
        terminated=torch.rand(rows, generator=generator) < 0.25,
    )


class Adam:
    """Kingma and Ba 2015, algorithm 1."""

    def __init__(self, parameters: list[torch.Tensor], rate: float) -> None:
        self.parameters = parameters
        self.rate = rate
        self.first = [torch.zeros_like(each) for each in parameters]
        self.second = [torch.zeros_like(each) for each in parameters]
        self.steps = 0

    def step(self, loss: torch.Tensor) -> None:
        """Descends the gradient of `loss` once."""
        gradients = torch.autograd.grad(loss, self.parameters)
        self.steps += 1
        for index, gradient in enumerate(gradients):
            self.first[index] = 0.9 * self.first[index] + 0.1 * gradient
            self.second[index] = 0.999 * self.second[index] + 0.001 * gradient**2
            mean = self.first[index] / (1 - 0.9**self.steps)
            deviation = (self.second[index] / (1 - 0.999**self.steps)).sqrt()
            self.parameters[index].data -= self.rate * mean / (deviation + 1e-8)


def leaves(module: torch.nn.Module) -> list[torch.Tensor]:
    """Returns the parameters of `module` as float64 leaves of their own, in order."""
    return [each.detach().double().clone().requires_grad_() for each in module.parameters()]


def perceptron(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Returns what (weight (out, in), bias (out,)) pairs with ReLU between them make of x."""
    for index in range(0, len(weights), 2):
        x = x @ weights[index].T + weights[index + 1]
        if index + 2 < len(weights):
            x = x * (x > 0)
    return x


def values(weights: list[torch.Tensor], obs: torch.Tensor, squashed: torch.Tensor) -> list[torch.Tensor]:
    """Returns the value (B,) that each of the two critics gives, from (weight (2, in, out), bias (2, 1, out)) pairs."""
    single = [
        [each[member].T if index % 2 == 0 else each[member][0] for index, each in enumerate(weights)]
        for member in range(2)
    ]
    x = torch.cat((obs, squashed), dim=1)
    return [perceptron(member, x)[:, 0] for member in single]


class Oracle:
    """What the two algorithms share: weights, replayed draws, the map of actions and the movement of targets."""

    def __init__(self, agent: Any) -> None:
        self.cfg = agent.cfg
        self.actor = leaves(agent.actor)
        self.critic = leaves(agent.critic)
        self.critic_target = leaves(agent.critic_target)
        self.generator = torch.Generator()
        self.generator.set_state(agent.generator.get_state())
        self.actor_adam = Adam(self.actor, self.cfg.learning_rate)
        self.critic_adam = Adam(self.critic, self.cfg.learning_rate)
        self.low, self.high = torch.tensor(LOW).double(), torch.tensor(HIGH).double()
        self.updates = 0

    def draw(self, rows: int) -> torch.Tensor:
        """Returns the next standard normal numbers (rows, 2) that the agent draws too."""
        return torch.randn((rows, 2), generator=self.generator).double()

    def squash(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns where the actions lie between the bounds, from -1 to 1."""
        return 2 * (actions.double() - self.low) / (self.high - self.low) - 1

    def move(self, target: list[torch.Tensor], source: list[torch.Tensor]) -> None:
        """Moves a target network."""
        for old, new in zip(target, source, strict=True):
            old.data = (1 - self.cfg.tau) * old.data + self.cfg.tau * new.data

    def bootstrap(self, batch: Batch, after: torch.Tensor) -> torch.Tensor:
        """Returns the targets, row by row."""
        rows = []
        for row in range(after.shape[0]):
            later = 0.0 if bool(batch.terminated[row]) else float(batch.discounts[row]) * after[row]
            rows.append(float(batch.rewards[row]) + later)
        return torch.stack([torch.as_tensor(each, dtype=torch.float64) for each in rows]).detach()


class SacOracle(Oracle):
    """One soft actor-critic update after another."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.log_alpha = agent.temperature.log_alpha.detach().double().clone().requires_grad_()
        self.alpha_adam = Adam([self.log_alpha], self.cfg.learning_rate)

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns squashed actions and the log-density of the environment's actions, by the change of variables."""
        out = perceptron(self.actor, obs.double())
        mean, free = out[:, :2], out[:, 2:]
        low, high = self.cfg.log_std_min, self.cfg.log_std_max
        std = (low + (high - low) * (torch.tanh(free) + 1) / 2).exp()
        u = mean + std * self.draw(obs.shape[0])
        density = (-((u - mean) ** 2) / (2 * std**2)).exp() / (std * math.sqrt(2 * math.pi))
        slope = (self.high - self.low) / 2 * (1 - torch.tanh(u) ** 2)
        return torch.tanh(u), (density / slope).log().sum(1)

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates once and returns the losses."""
        self.updates += 1
        obs, next_obs = batch.obs["critic"].double(), batch.next_obs["critic"].double()
        alpha = self.log_alpha.detach().exp()
        action, log_prob = self.sample(batch.next_obs["obs"])
        lower = torch.minimum(*values(self.critic_target, next_obs, action))
        target = self.bootstrap(batch, (lower - alpha * log_prob).detach())
        errors = [q - target for q in values(self.critic, obs, self.squash(batch.actions))]
        critic_loss = (errors[0] ** 2).mean() / 2 + (errors[1] ** 2).mean() / 2
        self.critic_adam.step(critic_loss)
        result = {"critic": critic_loss, "alpha": alpha, "q": (errors[0] / 2 + errors[1] / 2 + target).mean()}
        if self.updates % self.cfg.actor_interval == 0:
            action, log_prob = self.sample(batch.obs["obs"])
            actor_loss = (alpha * log_prob - torch.minimum(*values(self.critic, obs, action))).mean()
            log_prob = log_prob.detach()
            self.actor_adam.step(actor_loss)
            # -1 nat for each action in units of its half width; widths of 2 and 0.375 add their logarithms.
            target_entropy = -2.0 + math.log(2.0) + math.log(0.375)
            alpha_loss = (-self.log_alpha.exp() * (log_prob + target_entropy)).mean()
            self.alpha_adam.step(alpha_loss)
            result |= {"actor": actor_loss, "entropy": -log_prob.mean(), "temperature": alpha_loss}
        self.move(self.critic_target, self.critic)
        return result


class Td3Oracle(Oracle):
    """One TD3 update after another."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.actor_target = leaves(agent.actor_target)

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Updates once and returns the losses."""
        self.updates += 1
        obs, next_obs = batch.obs["critic"].double(), batch.next_obs["critic"].double()
        noise = (self.draw(obs.shape[0]) * self.cfg.target_noise).clip(
            -self.cfg.target_noise_clip, self.cfg.target_noise_clip
        )
        action = torch.tanh(perceptron(self.actor_target, batch.next_obs["obs"].double())) + noise
        lower = torch.minimum(*values(self.critic_target, next_obs, action.clip(-1, 1)))
        target = self.bootstrap(batch, lower.detach())
        errors = [q - target for q in values(self.critic, obs, self.squash(batch.actions))]
        critic_loss = (errors[0] ** 2).mean() + (errors[1] ** 2).mean()
        self.critic_adam.step(critic_loss)
        result = {"critic": critic_loss, "q": (errors[0] / 2 + errors[1] / 2 + target).mean()}
        if self.updates % self.cfg.actor_interval == 0:
            action = torch.tanh(perceptron(self.actor, batch.obs["obs"].double()))
            actor_loss = -values(self.critic, obs, action)[0].mean()
            self.actor_adam.step(actor_loss)
            self.move(self.critic_target, self.critic)
            self.move(self.actor_target, self.actor)
            result["actor"] = actor_loss
        return result


def parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    """Returns copies of the parameters of `module`."""
    return [copy.deepcopy(each.detach()) for each in module.parameters()]


def assert_close(module: torch.nn.Module, expected: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    """Asserts that the parameters of `module` are the expected ones."""
    for own, other in zip(module.parameters(), expected, strict=True):
        difference = (own.detach().double() - other.detach()).abs().max()
        assert difference < tolerance, difference


def constant_value(agent: Any, value: float, *, obs_weight: float = 0.0) -> None:
    """Sets every critic to 0 and every target critic to `value + obs_weight * max(first observation, 0)`."""
    with torch.no_grad():
        for module in (agent.critic, agent.critic_target):
            for parameter in module.parameters():
                parameter.zero_()
        layers = agent.critic_target.ensemble.layers
        linears = [layer for layer in layers if hasattr(layer, "weight")]
        for layer in linears:
            layer.weight[:, 0, 0] = 1.0
        linears[0].weight[:, 0, 0] = obs_weight
        linears[-1].bias.fill_(value)


def linear_quadratic(agent: Any, updates: int) -> float:
    """Teaches `agent` to steer s' = s + a at the cost s^2 + 0.1 a^2, from uniform states and actions, in [-1, 1].

    Returns:
        The gain k of the policy a = -k s, fitted to 101 states.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(updates):
        state, action = (2 * torch.rand((128, 1), generator=generator) - 1 for _ in range(2))
        agent.learn(
            Batch(
                obs={"obs": state},
                actions=action,
                rewards=-(state.square() + 0.1 * action.square())[:, 0],
                next_obs={"obs": state + action},
                discounts=torch.full((128,), agent.cfg.gamma),
                terminated=torch.zeros(128, dtype=torch.bool),
            )
        )
    states = torch.linspace(-1, 1, 101)[:, None]
    actions = agent.act({"obs": states})
    return -float((states * actions).sum() / states.square().sum())


def optimal_gain(gamma: float) -> float:
    """Returns the best such gain, from the fixed point of the Riccati equation p = 1 + g p r / (r + g p), r = 0.1."""
    price = 1.0
    for _ in range(200):
        price = 1.0 + gamma * price * 0.1 / (0.1 + gamma * price)
    return gamma * price / (0.1 + gamma * price)
