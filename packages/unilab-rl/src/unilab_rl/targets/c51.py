"""Distributions of returns over fixed atoms, and their projection (Bellemare, Dabney and Munos 2017, 1707.06887)."""

from __future__ import annotations

import torch

from unilab_rl.targets.shapes import check_flags, check_floats

__all__ = ["c51_support", "lower_mean_distribution", "project_c51"]


def c51_support(
    num_atoms: int, v_min: float, v_max: float, *, dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    """Returns the atoms `z_i = v_min + i (v_max - v_min) / (M - 1)`, (M,).

    Raises:
        ValueError: Fewer than two atoms, or `v_min` is not below `v_max`.
    """
    _check_range("c51_support", num_atoms, v_min, v_max)
    return torch.linspace(v_min, v_max, num_atoms, dtype=dtype, device=device)


def project_c51(
    probabilities: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    terminated: torch.Tensor,
    *,
    v_min: float,
    v_max: float,
    next_bonus: torch.Tensor | None = None,
) -> torch.Tensor:
    """Projects the distribution of `R + gamma^k (z + bonus)` back onto the atoms (1707.06887, algorithm 1).

    Every atom moves to `clamp(R + gamma^k (z_i + bonus), v_min, v_max)`, or to `R` behind a true end, and its mass is
    shared by the two atoms around that place in proportion to nearness; a place on an atom gives it all. The mass
    stays, and so does the mean as long as no place was clamped.

    Args:
        probabilities: (B, M), of the target critic after the window, M atoms evenly from `v_min` to `v_max`.
        rewards: (B,), the discounted sum R of the rewards of k steps.
        discounts: (B,), gamma^k.
        terminated: (B,) bool, and not whether the episode was cut.
        v_min: The lowest atom, a return.
        v_max: The highest.
        next_bonus: (B,), what is added to every atom before it is discounted: `-alpha log pi(a'|o')` for an
            entropy-regularised critic; `None`: nothing.

    Returns:
        (B, M), fresh. A row with a place that is no number becomes NaN in its first atom.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: A shape or the range is wrong.
    """
    if probabilities.ndim != 2:
        raise ValueError(
            f"project_c51: probabilities has shape {tuple(probabilities.shape)}, expected (B, M)"
        )
    batch, num_atoms = probabilities.shape
    _check_range("project_c51", num_atoms, v_min, v_max)
    check_floats("project_c51", (batch, num_atoms), probabilities=probabilities)
    bonus = rewards.new_zeros(rewards.shape) if next_bonus is None else next_bonus
    check_floats("project_c51", (batch,), rewards=rewards, discounts=discounts, next_bonus=bonus)
    check_flags("project_c51", (batch,), terminated=terminated)
    atoms = c51_support(num_atoms, v_min, v_max, dtype=rewards.dtype, device=rewards.device)
    following = discounts.unsqueeze(1) * (atoms + bonus.unsqueeze(1))
    following = torch.where(terminated.unsqueeze(1), torch.zeros_like(following), following)
    spacing = (v_max - v_min) / (num_atoms - 1)
    places = ((rewards.unsqueeze(1) + following - v_min) / spacing).clamp(0, num_atoms - 1)
    below = places.floor()
    share = (places - below).to(probabilities.dtype)
    # NaN is no index; its share is NaN too, so that it shows in the result instead of in a crash of the device.
    lower = below.nan_to_num(0.0).long()
    upper = (lower + 1).clamp_(max=num_atoms - 1)  # the highest atom has none above it; its share is 0
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, lower, probabilities * (1 - share))
    return projected.scatter_add_(1, upper, probabilities * share)


def lower_mean_distribution(probabilities: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """Returns for each row the distribution of that critic whose mean is lowest, of the first where means are equal.

    The clipped double target of distributions: all mass comes from one critic (FastTD3, 2505.22642; FlashSAC).

    Args:
        probabilities: (E, B, M), of E critics.
        support: (M,), the atoms.

    Returns:
        (B, M), fresh.

    Raises:
        TypeError: A dtype is wrong or dtypes differ.
        ValueError: `probabilities` has not three dimensions or no critic, or `support` is not (M,).
    """
    if probabilities.ndim != 3 or probabilities.shape[0] == 0:
        raise ValueError(
            f"lower_mean_distribution: probabilities has shape {tuple(probabilities.shape)}, expected (E, B, M) of at "
            "least one critic"
        )
    num_atoms = probabilities.shape[2]
    check_floats("lower_mean_distribution", (num_atoms,), support=support)
    check_floats("lower_mean_distribution", tuple(probabilities.shape), probabilities=probabilities)
    means = probabilities @ support
    lowest = means.argmin(dim=0)[None, :, None].expand(1, -1, num_atoms)
    return probabilities.gather(0, lowest).squeeze(0)


def _check_range(function: str, num_atoms: int, v_min: float, v_max: float) -> None:
    if num_atoms < 2:
        raise ValueError(f"{function}: {num_atoms} atoms, expected at least 2")
    if not v_min < v_max:
        raise ValueError(f"{function}: v_min is {v_min} and v_max {v_max}, expected v_min < v_max")
