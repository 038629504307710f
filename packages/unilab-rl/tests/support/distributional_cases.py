"""Transitions and bounds that the tests of the distributional learners share."""

from __future__ import annotations

import torch

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.contracts.off_policy import Batch

SPEC = {"obs": 3, "critic": 4}
LOW, HIGH = torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 3.0])
CENTRE, HALF_WIDTH = (
    torch.tensor([0.0, 1.0], dtype=torch.float64),
    torch.tensor([2.0, 2.0], dtype=torch.float64),
)


def bounds() -> ActionBounds:
    """Two actions, the second not symmetric about 0."""
    return ActionBounds(LOW, HIGH)


def observations(rows: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Raw observations of both groups, far from mean 0 and deviation 1."""
    return {name: 3.0 + 2.0 * torch.randn(rows, width, generator=generator) for name, width in SPEC.items()}


def batch(seed: int, rows: int = 12) -> Batch:
    """Windows of one to three steps, a third of them ending in a true end."""
    draw = torch.Generator().manual_seed(seed)
    return Batch(
        obs=observations(rows, draw),
        actions=LOW + (HIGH - LOW) * torch.rand(rows, 2, generator=draw),
        rewards=torch.randn(rows, generator=draw),
        next_obs=observations(rows, draw),
        discounts=0.97 ** torch.randint(1, 4, (rows,), generator=draw),
        terminated=torch.arange(rows) % 3 == 0,
    )


def normalized(obs: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """What a normaliser that has seen the rows of `seen` makes of `obs`, in double precision."""
    seen = seen.double()
    return (obs.double() - seen.mean(0)) / (torch.sqrt(((seen - seen.mean(0)) ** 2).mean(0)) + 1e-2)


def same_draws(generator: torch.Generator) -> torch.Generator:
    """A generator that draws what `generator` is about to draw."""
    return torch.Generator().set_state(generator.get_state())
