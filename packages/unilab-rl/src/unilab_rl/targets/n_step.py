"""Returns of up to n steps that stop at the first end of an episode."""

from __future__ import annotations

from typing import NamedTuple

import torch

from unilab_rl.targets.shapes import check_flags, check_floats

__all__ = ["NStepReturn", "n_step_return"]


class NStepReturn(NamedTuple):
    """What B windows came to."""

    rewards: torch.Tensor
    """(B,), the sum of gamma^i r_i over the k steps of the window."""

    discounts: torch.Tensor
    """(B,), gamma^k."""

    num_steps: torch.Tensor
    """(B,) int64, k, from 1 to n."""


def n_step_return(
    rewards: torch.Tensor, ended: torch.Tensor, available: torch.Tensor, *, gamma: float
) -> NStepReturn:
    """Sums the rewards of windows that are cut short (Sutton and Barto 2018, eq. 7.1).

    A window goes on as long as no step of it ended an episode, terminated or truncated, and the next step is there:
    behind the newest step of a replay, or where a step was refused, there is none. What a value after it is worth
    is multiplied by gamma^k, and k is the number of steps that were really taken. `bootstrapped_target` makes a target
    of both.

    Args:
        rewards: (B, n), of the steps one after another; where a step isn't available it may hold anything.
        ended: (B, n) bool, `terminated | truncated` of each step.
        available: (B, n) bool, whether there is such a step; the first always is.
        gamma: The discount factor of a step, 0 to 1.

    Returns:
        Fresh tensors, those of numbers in the dtype of `rewards`.

    Raises:
        TypeError: A dtype is wrong.
        ValueError: A shape is not (B, n) of at least one step.
    """
    if rewards.ndim != 2 or rewards.shape[1] == 0:
        raise ValueError(
            f"n_step_return: rewards has shape {tuple(rewards.shape)}, expected (B, n) of at least one step"
        )
    shape = (rewards.shape[0], rewards.shape[1])
    check_floats("n_step_return", shape, rewards=rewards)
    check_flags("n_step_return", shape, ended=ended, available=available)
    taken = available.clone()
    taken[:, 1:] &= ~ended[:, :-1]
    taken = taken.cumprod(dim=1)  # int64: once cut, always cut
    # In double precision: gamma^n in that of the rewards would gather n roundings.
    exponents = torch.arange(shape[1] + 1, dtype=torch.float64, device=rewards.device)
    powers = torch.pow(gamma, exponents).to(rewards.dtype)
    kept = torch.where(taken.bool(), rewards, torch.zeros_like(rewards))
    num_steps = taken.sum(dim=1)
    return NStepReturn((kept * powers[:-1]).sum(dim=1), powers[num_steps], num_steps)
