"""Measures a policy over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from unilab_rl.contracts.algorithm import Policy
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["Evaluation", "ZeroPolicy", "evaluate", "split_episodes"]

# Two-sided 95 % quantiles of Student's t for 1 to 29 degrees of freedom; beyond, the normal's 1.96 is within 4 %.
_T95 = (
    *(
        12.706,
        4.303,
        3.182,
        2.776,
        2.571,
        2.447,
        2.365,
        2.306,
        2.262,
        2.228,
        2.201,
        2.179,
        2.160,
        2.145,
        2.131,
    ),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045),
)
_MAX_ROWS = 1024


@dataclass(frozen=True)
class Evaluation:
    """What a policy earned over whole episodes."""

    episodes: int
    return_mean: float
    """Mean over episodes of the summed reward."""
    return_std: float | None
    """Standard deviation between episodes; `None` for one episode."""
    return_ci95: float | None
    """Half the width of the 95 % confidence interval of `return_mean`; `None` for one episode."""
    length_mean: float
    """Mean steps in an episode."""
    reward_per_step: float
    """Reward of all episodes over their steps."""
    reward_per_s: float
    """Reward of all episodes over their simulated seconds: the weighted terms where rewards are scaled by dt."""
    terminated_share: float
    """Share of episodes that ended in a terminal state."""
    truncated_share: float
    """Share of episodes that only ran out of time."""


class ZeroPolicy:
    """Always does nothing: the score to beat."""

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns zeros, (N, A) float32."""
        rows = obs["obs"]
        return torch.zeros(rows.shape[0], self._num_actions, device=rows.device)


def split_episodes(episodes: int) -> tuple[int, int]:
    """Returns rows and episodes of each row, whose product is `episodes` or the next number that divides evenly."""
    per_row = math.ceil(episodes / _MAX_ROWS)
    return math.ceil(episodes / per_row), per_row


def evaluate(env: EnvProtocol, policy: Policy, *, episodes_per_env: int = 1, seed: int = 0) -> Evaluation:
    """Runs `policy` until every row has finished its share of episodes.

    Each row contributes its first episodes, however long they last, so short ones are not over-represented.

    Args:
        env: An environment that resets finished rows by itself; all rows are reset, from `seed`.
        policy: The policy.
        episodes_per_env: Whole episodes that each row contributes.
        seed: Seed of the environment's randomness.

    Raises:
        RuntimeError: A row doesn't finish its episodes within `max_episode_length` steps each.
    """
    shape = (env.num_envs, episodes_per_env)
    returns = torch.zeros(shape, dtype=torch.float64, device=env.device)
    lengths = torch.zeros(shape, dtype=torch.int64, device=env.device)
    terminated = torch.zeros(shape, dtype=torch.bool, device=env.device)
    finished = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    earned = torch.zeros(env.num_envs, dtype=torch.float64, device=env.device)
    age = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    obs, _ = env.reset(seed=seed)
    for _ in range(episodes_per_env * env.max_episode_length):
        state = env.step(policy(obs))
        obs = state.obs
        earned += state.reward
        age += 1
        done = state.terminated | state.truncated
        rows = (done & (finished < episodes_per_env)).nonzero().flatten()
        if rows.numel():
            column = finished[rows]
            returns[rows, column] = earned[rows]
            lengths[rows, column] = age[rows]
            terminated[rows, column] = state.terminated[rows]
            finished[rows] += 1
        earned.masked_fill_(done, 0.0)
        age.masked_fill_(done, 0)
        if rows.numel() and bool((finished == episodes_per_env).all()):
            return _summary(returns.flatten(), lengths.flatten(), terminated.flatten(), env.step_dt)
    late = (finished < episodes_per_env).nonzero().flatten().tolist()
    raise RuntimeError(
        f"evaluate: rows {late[:8]} have not finished {episodes_per_env} episodes of at most {env.max_episode_length} "
        "steps; the task has no time limit, give it a time_out term"
    )


def _summary(
    returns: torch.Tensor, lengths: torch.Tensor, terminated: torch.Tensor, step_dt: float
) -> Evaluation:
    count = returns.numel()
    std = float(returns.std()) if count > 1 else None
    quantile = _T95[count - 2] if 2 <= count <= len(_T95) + 1 else 1.96
    steps, total = int(lengths.sum()), float(returns.sum())
    died = float(terminated.double().mean())
    return Evaluation(
        episodes=count,
        return_mean=total / count,
        return_std=std,
        return_ci95=None if std is None else quantile * std / math.sqrt(count),
        length_mean=steps / count,
        reward_per_step=total / steps,
        reward_per_s=total / (steps * step_dt),
        terminated_share=died,
        truncated_share=1.0 - died,
    )
