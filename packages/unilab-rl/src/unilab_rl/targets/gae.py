"""Generalised advantage estimation over a rollout in which episodes end."""

from __future__ import annotations

import torch

from unilab_rl.targets.shapes import check_flags, check_floats

__all__ = ["check_rollout", "gae", "values_reached"]


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    last_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    final_values: torch.Tensor,
    *,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns advantages and returns of a rollout, time-major (Schulman et al. 2016, 1506.02438, eq. 16).

    `delta_t = r_t + gamma V(o'_t) - V(o_t)` and `A_t = delta_t + gamma lam A_{t+1}`, where the chain is cut behind the
    end of an episode. `V(o'_t)` is the value of the observation that the step led to: of a time-out the final one
    and not that of the next episode, and 0 behind a true end, also where both happen at once.

    Args:
        rewards: (T, N).
        values: (T, N), V of the observations that were acted on.
        last_values: (N,), V of the observation after the last step; not read in rows whose episode ended there.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        final_values: (T, N), V of final observations; read only where `truncated & ~terminated`, elsewhere it may
            hold anything.
        gamma: The discount factor, 0 to 1.
        lam: The lambda of the estimator, 0 to 1.

    Returns:
        Advantages and returns (`advantages + values`), each (T, N), fresh.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape doesn't fit.
    """
    check_rollout(
        "gae",
        rewards=rewards,
        values=values,
        last_values=last_values,
        terminated=terminated,
        truncated=truncated,
        final_values=final_values,
    )
    reached = values_reached(values, last_values, terminated, truncated, final_values)
    deltas = rewards + gamma * reached - values
    decay = gamma * lam * (~(terminated | truncated)).to(rewards.dtype)
    advantages = torch.empty_like(deltas)
    following = torch.zeros_like(last_values)
    for step in reversed(range(rewards.shape[0])):
        following = deltas[step] + decay[step] * following
        advantages[step] = following
    return advantages, advantages + values


def values_reached(
    values: torch.Tensor,
    last_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    final_values: torch.Tensor,
) -> torch.Tensor:
    """Returns the value of what each step led to, (T, N): final at a time-out, 0 behind a true end."""
    following = torch.cat((values[1:], last_values.unsqueeze(0)))
    following = torch.where(truncated, final_values, following)
    return torch.where(terminated, torch.zeros_like(following), following)


def check_rollout(
    function: str,
    *,
    last_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    rewards: torch.Tensor,
    **others: torch.Tensor,
) -> None:
    """Checks a rollout of T steps of N rows: all (T, N), of one dtype, but `last_values` (N,) and bool flags.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape doesn't fit.
    """
    if rewards.ndim != 2 or rewards.shape[0] == 0:
        raise ValueError(
            f"{function}: rewards has shape {tuple(rewards.shape)}, expected (T, N) of at least one step"
        )
    shape = (rewards.shape[0], rewards.shape[1])
    check_floats(function, shape, rewards=rewards, **others)
    check_floats(function, shape[1:], last_values=last_values)
    if last_values.dtype != rewards.dtype:
        raise TypeError(f"{function}: last_values has dtype {last_values.dtype}, expected {rewards.dtype}")
    check_flags(function, shape, terminated=terminated, truncated=truncated)
