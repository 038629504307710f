"""Targets of a value from a window of rewards and the value after it."""

from __future__ import annotations

import torch

from unilab_rl.targets.shapes import check_flags, check_floats

__all__ = ["bootstrapped_target", "clipped_double_target", "soft_target"]


def bootstrapped_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    terminated: torch.Tensor,
    next_values: torch.Tensor,
) -> torch.Tensor:
    """Returns `y = R + gamma^k V(o')`, and `y = R` where the window ends in a true end (Sutton and Barto 2018, 7.1).

    A time-out is no true end: it bootstraps from the value of the final observation, which is what `next_values` must
    hold there. Behind a true end `next_values` is not read, so that it may hold anything, NaN too.

    Args:
        rewards: (B,), the discounted sum R of the rewards of k steps.
        discounts: (B,), gamma^k.
        terminated: (B,) bool, and not whether the episode was cut.
        next_values: (B,), of the observation after the window.

    Returns:
        (B,), fresh.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape is not (B,).
    """
    shape = (rewards.shape[0] if rewards.ndim else 1,)
    check_floats("bootstrapped_target", shape, rewards=rewards, discounts=discounts, next_values=next_values)
    check_flags("bootstrapped_target", shape, terminated=terminated)
    return rewards + torch.where(terminated, torch.zeros_like(next_values), discounts * next_values)


def clipped_double_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    terminated: torch.Tensor,
    next_values: torch.Tensor,
) -> torch.Tensor:
    """Returns `y = R + gamma^k min_e Q_e(o', a')`: clipped double Q-learning (Fujimoto et al. 2018, algorithm 1).

    Args:
        rewards: (B,), the discounted sum R of the rewards of k steps.
        discounts: (B,), gamma^k.
        terminated: (B,) bool; such rows are not bootstrapped.
        next_values: (E, B), of E target critics.

    Returns:
        (B,), fresh.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape is not (B,), or `next_values` has not two dimensions or no critic.
    """
    lowest = _minimum("clipped_double_target", next_values)
    return bootstrapped_target(rewards, discounts, terminated, lowest)


def soft_target(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    terminated: torch.Tensor,
    next_values: torch.Tensor,
    next_log_probs: torch.Tensor,
    temperature: torch.Tensor | float,
) -> torch.Tensor:
    """Returns `y = R + gamma^k (min_e Q_e(o', a') - alpha log pi(a'|o'))` (Haarnoja et al. 2018, 1812.05905, 4.2).

    Of a window of several steps only the entropy after it counts; that of the steps inside is left out.

    Args:
        rewards: (B,), the discounted sum R of the rewards of k steps.
        discounts: (B,), gamma^k.
        terminated: (B,) bool; such rows get neither a value nor an entropy.
        next_values: (E, B), of E target critics; E = 1 where each critic has its own target.
        next_log_probs: (B,), log pi(a'|o') in nats, in the unit of actions that the target entropy is in.
        temperature: alpha, a number or a 0-d tensor, which is not read on the host.

    Returns:
        (B,), fresh.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape is not (B,), or `next_values` has not two dimensions or no critic.
    """
    lowest = _minimum("soft_target", next_values)
    check_floats("soft_target", tuple(lowest.shape), next_values=lowest, next_log_probs=next_log_probs)
    return bootstrapped_target(rewards, discounts, terminated, lowest - temperature * next_log_probs)


def _minimum(function: str, next_values: torch.Tensor) -> torch.Tensor:
    if next_values.ndim != 2 or next_values.shape[0] == 0:
        raise ValueError(
            f"{function}: next_values has shape {tuple(next_values.shape)}, expected (E, B) of at least one critic"
        )
    return next_values.amin(dim=0)
