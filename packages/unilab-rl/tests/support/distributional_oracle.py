"""Slow, plain computations in double precision that the updates of distributional learners are compared with."""

from __future__ import annotations

import math

import torch

Tensors = dict[str, torch.Tensor]


def doubles(module: torch.nn.Module) -> Tensors:
    """Returns copies of everything a module holds, in double precision, by dotted name."""
    return {
        name: tensor.detach().clone().double() if tensor.is_floating_point() else tensor.detach().clone()
        for name, tensor in module.state_dict().items()
    }


def projected(
    probabilities: torch.Tensor,
    support: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    terminated: torch.Tensor,
    entropy_cost: torch.Tensor | None = None,
) -> torch.Tensor:
    """Moves every atom and shares its probability between its two neighbours, one at a time.

    `probabilities` (B, Z); atom z of sample b lands on `r + discount * (z - entropy_cost)`, or on `r` where it ended.
    """
    atoms = [float(value) for value in support]
    out = [[0.0] * len(atoms) for _ in range(len(rewards))]
    for b in range(len(rewards)):
        for j, atom in enumerate(atoms):
            cost = 0.0 if entropy_cost is None else float(entropy_cost[b])
            ahead = 0.0 if bool(terminated[b]) else float(discounts[b]) * (atom - cost)
            place = min(max(float(rewards[b]) + ahead, atoms[0]), atoms[-1])
            mass = float(probabilities[b, j])
            for i in range(len(atoms) - 1):
                if atoms[i] <= place <= atoms[i + 1]:
                    upper = (place - atoms[i]) / (atoms[i + 1] - atoms[i])
                    out[b][i] += mass * (1.0 - upper)
                    out[b][i + 1] += mass * upper
                    break
    return torch.tensor(out, dtype=torch.float64)


def linear(x: torch.Tensor, tensors: Tensors, name: str) -> torch.Tensor:
    """A `torch.nn.Linear`."""
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A layer normalisation with torch's epsilon."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * weight + bias


def mean_of(probabilities: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """The mean of each distribution."""
    return (probabilities * support).sum(-1)


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Probabilities of logits."""
    weights = torch.exp(logits - logits.detach().amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def cross_entropy(target: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of a batch."""
    return -(target * torch.log(softmax(logits))).sum(-1).mean()


def log_density(
    noise: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor, half_width: torch.Tensor
) -> torch.Tensor:
    """The log-density of the environment's action `centre + half_width * tanh(mean + std * noise)`."""
    unsquashed = mean + torch.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    slope = half_width * (1.0 - torch.tanh(unsquashed) ** 2)
    return (normal - torch.log(slope)).sum(-1)


class AdamW:
    """Adam with decoupled weight decay, written out (Loshchilov & Hutter 2019, algorithm 2)."""

    def __init__(
        self, learning_rate: float, *, betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0.0
    ) -> None:
        self.learning_rate = learning_rate
        self._betas = betas
        self._weight_decay = weight_decay
        self._steps = 0
        self._first: Tensors = {}
        self._second: Tensors = {}

    def step(self, tensors: Tensors, loss: torch.Tensor, names: list[str]) -> None:
        """Differentiates `loss` and replaces the named tensors."""
        gradients = torch.autograd.grad(loss, [tensors[name] for name in names])
        first, second = self._betas
        self._steps += 1
        for name, gradient in zip(names, gradients, strict=True):
            self._first[name] = first * self._first.get(name, 0.0) + (1.0 - first) * gradient
            self._second[name] = second * self._second.get(name, 0.0) + (1.0 - second) * gradient**2
            mean = self._first[name] / (1.0 - first**self._steps)
            deviation = torch.sqrt(self._second[name] / (1.0 - second**self._steps)) + 1e-8
            old = tensors[name].detach()
            decayed = old * (1.0 - self.learning_rate * self._weight_decay)
            tensors[name] = (decayed - self.learning_rate * mean / deviation).requires_grad_()


def learnable(tensors: Tensors, module: torch.nn.Module) -> list[str]:
    """Marks the parameters among the tensors of `module` as differentiable and returns their names."""
    names = [name for name, _ in module.named_parameters()]
    for name in names:
        tensors[name].requires_grad_()
    return names


def assert_equal(module: torch.nn.Module, tensors: Tensors, tolerance: float = 1e-5) -> None:
    """Every parameter and buffer of `module` is what the computation says."""
    held = module.state_dict()
    assert set(held) == set(tensors)
    for name, tensor in held.items():
        worst = (tensor.detach().double() - tensors[name].detach().double()).abs().max()
        assert float(worst) < tolerance, f"{name} differs by {float(worst):.2e}"
