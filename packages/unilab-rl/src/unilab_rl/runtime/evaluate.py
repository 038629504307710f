"""Measures a policy over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from unilab_core import ConfigError, TorchEnvCfg
from unilab_rl.run_config import MAX_SEED

if TYPE_CHECKING:
    from unilab_rl.contracts.algorithm import Policy
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["Episodes", "Evaluation", "evaluate", "half_width_ci95", "run_episodes", "split_episodes"]

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
    """Share of episodes that ended in a terminal state; a time-out is none."""
    truncated_share: float
    """Share of episodes that only ran out of time."""
    falls: int
    """Episodes that ended so within the time limit, those of rows that had begun anew included."""
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


@dataclass(frozen=True, eq=False)
class Episodes:
    """The first episode of each row in each time limit, E in all: those of one time limit follow each other by row."""

    returns: torch.Tensor
    """(E,) float64 summed rewards."""
    lengths: torch.Tensor
    """(E,) int64 steps."""
    terminated: torch.Tensor
    """(E,) bool: ended in a terminal state; a time-out is none."""
    step_dt: float
    """Length of a step, s."""
    falls: int
    """Of all rows, those that had begun anew included."""
    metrics: dict[str, float]
    """As of an `Evaluation`."""

    def summary(self) -> Evaluation:
        """Returns means over the episodes."""
        count, steps = self.returns.numel(), int(self.lengths.sum())
        total = float(self.returns.sum())
        died = float(self.terminated.double().mean())
        return Evaluation(
            episodes=count,
            return_mean=total / count,
            return_std=float(self.returns.std()) if count > 1 else None,
            return_ci95=half_width_ci95(self.returns),
            length_mean=steps / count,
            reward_per_step=total / steps,
            reward_per_s=total / (steps * self.step_dt),
            terminated_share=died,
            truncated_share=1.0 - died,
            falls=self.falls,
            metrics=self.metrics,
        )


def half_width_ci95(values: torch.Tensor) -> float | None:
    """Returns half the width of the 95 % confidence interval of the mean of (E,) values; `None` for one value."""
    count = values.numel()
    if count < 2:
        return None
    quantile = _T95[count - 2] if count <= len(_T95) + 1 else 1.96
    return quantile * float(values.std()) / math.sqrt(count)


def split_episodes(episodes: int) -> tuple[int, int]:
    """Returns rows and episodes of each row, whose product is `episodes` or the next number that divides evenly."""
    per_row = math.ceil(episodes / _MAX_ROWS)
    return math.ceil(episodes / per_row), per_row


def evaluate(env: EnvProtocol, policy: Policy, *, episodes_per_env: int = 1, seed: int = 0) -> Evaluation:
    """Returns means over what `run_episodes` does with the same arguments, and raises what that does."""
    return run_episodes(env, policy, episodes_per_env=episodes_per_env, seed=seed).summary()


def run_episodes(
    env: EnvProtocol,
    policy: Policy,
    *,
    episodes_per_env: int = 1,
    seed: int = 0,
    at_start: Callable[[Mapping[str, torch.Tensor]], None] | None = None,
) -> Episodes:
    """Runs `policy` for whole time limits, each beginning with a reset of all rows from a seed of its own.

    Return, length and shares are those of each row's first episode in a time limit. Every row has exactly one, however
    short, so rows that fall early, and could begin many, count no more than the others. Falls and metrics are those of
    all episodes that ended within the time limit: a row that falls begins anew and may fall again, each fall counts,
    and what it has not finished at the end is left out.

    Where the config says `is_finite_horizon`, the environment calls a time-out an end like any other. What ends there
    in the step of the time limit has timed out, and is no fall.

    Args:
        env: An environment that resets finished rows by itself; all rows are reset, from `seed` and those after it.
        policy: The policy.
        episodes_per_env: Time limits to run, each of `max_episode_length` steps.
        seed: Seed of the environment's randomness in the first time limit; the next has the next seed, so that how a
            time limit begins doesn't depend on how those before went.
        at_start: Called with the first observations of each time limit.

    Raises:
        ConfigError: A row doesn't finish an episode within `max_episode_length` steps.
    """
    log = _EpisodeLog()
    firsts = []
    for number in range(episodes_per_env):
        obs, _ = env.reset(seed=(seed + number) % (MAX_SEED + 1))
        if at_start is not None:
            at_start(obs)
        firsts.append(_run_time_limit(env, policy, obs, log))
    returns, lengths, terminated = (torch.cat(parts) for parts in zip(*firsts, strict=True))
    return Episodes(returns, lengths, terminated, env.step_dt, log.falls, log.means())


class _EpisodeLog:
    """Counts falls, and sums up what finished episodes report, on the environment's device."""

    def __init__(self) -> None:
        self._falls: torch.Tensor | None = None
        self._totals: dict[str, torch.Tensor] = {}

    def add(self, fallen: torch.Tensor, episode: Mapping[str, torch.Tensor]) -> None:
        falls = fallen.sum()
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
    env: EnvProtocol, policy: Policy, obs: Mapping[str, torch.Tensor], log: _EpisodeLog
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs one time limit, of which `obs` are the first observations, and returns each row's first episode.

    Returns:
        Return (N,) float64, length (N,) int64, and whether it ended in a fall (N,) bool.
    """
    is_finite = isinstance(env.cfg, TorchEnvCfg) and env.cfg.is_finite_horizon
    returns = torch.zeros(env.num_envs, dtype=torch.float64, device=env.device)
    lengths = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    fell = torch.zeros_like(running)
    ages = torch.zeros_like(lengths)  # of each row's present episode
    for _ in range(env.max_episode_length):
        state = env.step(policy(obs))
        obs = state.obs
        returns += torch.where(running, state.reward, 0.0)
        lengths += running
        ages += 1
        fallen = state.terminated & (ages < env.max_episode_length) if is_finite else state.terminated
        fell |= running & fallen
        ended = state.terminated | state.truncated
        running &= ~ended
        ages.masked_fill_(ended, 0)
        log.add(fallen, state.info.get("episode", {}))
    late = running.nonzero().flatten().tolist()
    if late:
        raise ConfigError(
            f"evaluate: rows {late[:8]} have not finished an episode in {env.max_episode_length} steps; the task has "
            "no time limit, give it a time_out term"
        )
    return returns, lengths, fell
