"""What a reset of some rows costs, and whether that is a line in their number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from unilab_core.benching.instruments import waiter
from unilab_core.benching.intervals import Line, fit_line
from unilab_core.env import TorchEnv

__all__ = ["ResetCost", "measure_resets", "reset_sizes"]

REPEATS = 15


@dataclass(frozen=True)
class ResetCost:
    """Cost of `reset(env_ids)` of k of N rows.

    Attributes:
        us: Median by k, µs.
        line: Of least squares, every k weighed by its own time; None for a single k.
        worst_deviation: Largest distance of a median from the line, relative to the line; None without one.
        intercept_share: The line's value at k = 0 as a share of a step of all rows; None without one.
    """

    us: dict[int, float]
    line: Line | None
    worst_deviation: float | None
    intercept_share: float | None


def reset_sizes(num_envs: int) -> list[int]:
    """Returns numbers of rows to try, each four times the one before, up to a quarter of all rows."""
    most = max(1, num_envs // 4, min(num_envs, 4))
    sizes = [1]
    while 4 * sizes[-1] < most:
        sizes.append(4 * sizes[-1])
    return sizes if most == 1 else [*sizes, most]


def measure_resets(env: TorchEnv, step_us: float, generator: torch.Generator) -> ResetCost:
    """Resets rows drawn anew each time, the sizes in turn so that a slow moment meets them all.

    Args:
        env: It has been reset; it goes on afterwards.
        step_us: What a step of all rows costs, µs.
        generator: Of the draws, on the CPU.
    """
    wait = waiter(env.device)
    times: dict[int, list[float]] = {k: [] for k in reset_sizes(env.num_envs)}
    with torch.inference_mode():
        for repeat in range(REPEATS + 1):
            for k, found in times.items():
                ids = torch.randperm(env.num_envs, generator=generator)[:k].sort().values.to(env.device)
                wait()
                began = time.perf_counter()
                env.reset(ids)
                wait()
                if repeat:  # the first round allocates
                    found.append((time.perf_counter() - began) * 1e6)
    return summarise({k: median(found) for k, found in times.items()}, step_us)


def summarise(us: dict[int, float], step_us: float) -> ResetCost:
    """Returns medians by k with their line."""
    if len(us) < 2:
        return ResetCost(us, None, None, None)
    sizes: Sequence[int] = list(us)
    values = list(us.values())
    line = fit_line(sizes, values, errors=values)
    worst = max(abs((value - line.at(k)) / line.at(k)) for k, value in us.items())
    return ResetCost(us, line, worst, line.intercept / step_us)
