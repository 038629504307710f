"""Off-policy corrected values of a rollout that an older policy collected."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from unilab_rl.targets.gae import check_rollout, values_reached

__all__ = ["VTrace", "vtrace"]


class VTrace(NamedTuple):
    """What a rollout of T steps and N rows is worth to the policy that learns from it."""

    targets: torch.Tensor
    """(T, N), what values are pulled towards."""

    advantages: torch.Tensor
    """(T, N), of the actions taken; weighted by `ratios` already."""

    ratios: torch.Tensor
    """(T, N), the clipped importance weights rho, in 0 to `rho_bar`."""


def vtrace(
    log_ratios: torch.Tensor,
    rewards: torch.Tensor,
    values: torch.Tensor,
    last_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    final_values: torch.Tensor,
    *,
    gamma: float,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> VTrace:
    """Returns V-trace targets and advantages, time-major (Espeholt et al. 2018, 1802.01561, eq. 1 and section 4.2).

    With `rho_t = min(rho_bar, pi/mu)`, `c_t = lam min(c_bar, pi/mu)` and
    `delta_t = rho_t (r_t + gamma V(o'_t) - V_t)`: `v_t = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1})` and
    `A_t = rho_t (r_t + gamma v_{t+1} - V_t)`. Behind the end of an episode `v_{t+1} - V_{t+1}` counts as 0, and
    `v_{t+1}` is the value of the final observation at a time-out and 0 behind a true end. Where both policies are one,
    targets equal `gae`'s returns for the same `lam`.

    Args:
        log_ratios: (T, N), log pi(a|o) - log mu(a|o), of the learning over the collecting policy; however large.
        rewards: (T, N).
        values: (T, N), V of the observations that were acted on.
        last_values: (N,), V of the observation after the last step; not read in rows whose episode ended there.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        final_values: (T, N), V of final observations; read only where `truncated & ~terminated`.
        gamma: The discount factor, 0 to 1.
        lam: Shortens the traces, 0 to 1. Default: the paper's, no shortening.
        rho_bar: Upper bound of the weight of a step. Default: the paper's.
        c_bar: Upper bound of the weight of a trace. Default: the paper's.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape doesn't fit, or a bound is not positive.
    """
    if not (rho_bar > 0.0 and c_bar > 0.0):
        raise ValueError(f"vtrace: rho_bar is {rho_bar} and c_bar {c_bar}, expected positive numbers")
    check_rollout(
        "vtrace",
        rewards=rewards,
        log_ratios=log_ratios,
        values=values,
        last_values=last_values,
        terminated=terminated,
        truncated=truncated,
        final_values=final_values,
    )
    # Clipped before the exponential, which would overflow to inf.
    rho = log_ratios.clamp(max=math.log(rho_bar)).exp()
    trace = lam * log_ratios.clamp(max=math.log(c_bar)).exp()
    reached = values_reached(values, last_values, terminated, truncated, final_values)
    deltas = rho * (rewards + gamma * reached - values)
    gains, corrections = _accumulate(deltas, gamma * trace, ~(terminated | truncated))
    return VTrace(values + corrections, rho * (rewards + gamma * (reached + gains) - values), rho)


def _accumulate(
    deltas: torch.Tensor, decay: torch.Tensor, goes_on: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns `v_{t+1} - V_{t+1}`, 0 behind an end and behind the rollout, and `v_t - V_t`, each (T, N)."""
    gains, corrections = torch.empty_like(deltas), torch.empty_like(deltas)
    following = torch.zeros_like(deltas[0])
    for step in reversed(range(deltas.shape[0])):
        gains[step] = goes_on[step] * following
        following = deltas[step] + decay[step] * gains[step]
        corrections[step] = following
    return gains, corrections
