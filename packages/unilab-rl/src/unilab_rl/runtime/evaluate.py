"""Measures a policy over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from unilab_core import ConfigError

if TYPE_CHECKING:
    from unilab_rl.contracts.algorithm import Policy
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["Evaluation", "evaluate", "split_episodes"]

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
_METRICS = "Metrics/"


@dataclass(frozen=True)
class Evaluation:
    """What a policy earned over whole episodes; return, length and shares are of each row's first."""

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
    falls: int
    """Episodes that ended in a terminal state within the time limit, those of rows that had begun anew included."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Mean of every `Metrics/...` that finished episodes report, weighted by the counts they report."""

    def to_metrics(self) -> dict[str, float]:
        """Returns the numbers of a training's log, each under `Eval/`."""
        return {
            "Eval/return": self.return_mean,
            "Eval/length": self.length_mean,
            "Eval/reward_per_step": self.reward_per_step,
            "Eval/falls": float(self.falls),
            **{f"Eval/{key}": value for key, value in self.metrics.items()},
        }


def split_episodes(episodes: int) -> tuple[int, int]:
    """Returns rows and episodes of each row, whose product is `episodes` or the next number that divides evenly."""
    per_row = math.ceil(episodes / _MAX_ROWS)
    return math.ceil(episodes / per_row), per_row


def evaluate(env: EnvProtocol, policy: Policy, *, episodes_per_env: int = 1, seed: int = 0) -> Evaluation:
    """Runs `policy` for whole time limits, beginning with a reset of all rows.

    Return, length and shares are those of each row's first episode in a time limit. Every row has exactly one, however
    short, so rows that fall early, and could begin many, count no more than the others. Falls and metrics are those of
    all episodes that ended within the time limit: a row that falls begins anew and may fall again, each fall counts,
    and what it has not finished at the end is left out.

    Args:
        env: An environment that resets finished rows by itself; all rows are reset, from `seed`.
        policy: The policy.
        episodes_per_env: Time limits to run, each of `max_episode_length` steps.
        seed: Seed of the environment's randomness.

    Raises:
        ConfigError: A row doesn't finish an episode within `max_episode_length` steps.
    """
    log = _EpisodeLog()
    firsts = [
        _run_time_limit(env, policy, log, seed if number == 0 else None) for number in range(episodes_per_env)
    ]
    returns, lengths, terminated = (torch.cat(parts) for parts in zip(*firsts, strict=True))
    return _summary(returns, lengths, terminated, env.step_dt, log)


class _EpisodeLog:
    """Counts falls, and sums up what finished episodes report, on the environment's device."""

    def __init__(self) -> None:
        self._falls: torch.Tensor | None = None
        self._totals: dict[str, torch.Tensor] = {}

    def add(self, terminated: torch.Tensor, episode: Mapping[str, torch.Tensor]) -> None:
        falls = terminated.sum()
        self._falls = falls if self._falls is None else self._falls + falls
        for key, value in episode.items():
            if key.startswith(_METRICS):
                # float64, and a copy: the environment may write on in its own.
                value = value.to(torch.float64, copy=True)
                held = self._totals.get(key)
                self._totals[key] = value if held is None else held + value

    @property
    def falls(self) -> int:
        return 0 if self._falls is None else int(self._falls)

    def means(self) -> dict[str, float]:
        """Returns sum over count by key; a key whose count is zero is left out."""
        totals = {key: float(value) for key, value in self._totals.items()}
        names = [key.removesuffix("/sum") for key in totals if key.endswith("/sum")]
        counted = ((name, totals.get(f"{name}/count", 0.0)) for name in names)
        return {name: totals[f"{name}/sum"] / count for name, count in counted if count > 0.0}


def _run_time_limit(
    env: EnvProtocol, policy: Policy, log: _EpisodeLog, seed: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Resets all rows, runs one time limit and returns each row's first episode.

    Returns:
        Return (N,) float64, length (N,) int64, and whether it ended in a terminal state (N,) bool.
    """
    returns = torch.zeros(env.num_envs, dtype=torch.float64, device=env.device)
    lengths = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    fell = torch.zeros_like(running)
    obs, _ = env.reset(seed=seed)
    for _ in range(env.max_episode_length):
        state = env.step(policy(obs))
        obs = state.obs
        returns += torch.where(running, state.reward, 0.0)
        lengths += running
        fell |= running & state.terminated
        running &= ~(state.terminated | state.truncated)
        log.add(state.terminated, state.info.get("episode", {}))
    late = running.nonzero().flatten().tolist()
    if late:
        raise ConfigError(
            f"evaluate: rows {late[:8]} have not finished an episode in {env.max_episode_length} steps; the task has "
            "no time limit, give it a time_out term"
        )
    return returns, lengths, fell


def _summary(
    returns: torch.Tensor, lengths: torch.Tensor, terminated: torch.Tensor, step_dt: float, log: _EpisodeLog
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
        falls=log.falls,
        metrics=log.means(),
    )
