"""Steps of an optimiser, AdamW, and learning rates that are functions of the number of updates."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

__all__ = ["adamw", "anneal", "cosine_annealed", "minimize"]


def adamw(
    parameters: Iterable[torch.nn.Parameter],
    learning_rate: float,
    *,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.AdamW:
    """Returns AdamW (Loshchilov & Hutter 2019; epsilon 1e-8), fused into one kernel where torch can."""
    held = list(parameters)
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in held)
    return torch.optim.AdamW(
        held, lr=learning_rate, betas=betas, eps=1e-8, weight_decay=weight_decay, fused=fused
    )


def cosine_annealed(first: float, last: float, updates: int, decay_updates: int) -> float:
    """Returns the learning rate of the update that follows `updates` others (Loshchilov & Hutter 2017, eq. 5).

    It falls from `first` to `last` along half a cosine during `decay_updates`, and stays there. Where both are equal it
    is constant.
    """
    progress = min(updates / decay_updates, 1.0)
    return last + 0.5 * (first - last) * (1.0 + math.cos(math.pi * progress))


def anneal(optimizers: Iterable[torch.optim.Optimizer], learning_rate: float) -> None:
    """Sets the learning rate of all parameters; a schedule without a state can't disagree after a resume."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate


def minimize(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Takes one step of `optimizer` down the gradient of `loss`.

    Only the parameters of `optimizer` get a gradient: one of an actor's loss costs nothing for the critic's weights.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    optimizer.zero_grad(set_to_none=True)
    loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]  # torch types it not
    optimizer.step()
