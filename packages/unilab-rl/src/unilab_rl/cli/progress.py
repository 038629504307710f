"""What a training run says on a terminal or into a file: one plain line now and then."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from unilab_rl.runtime.runner import Progress, Watcher

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.resuming import Resume

__all__ = ["PlainProgress", "format_duration"]

_WINDOW = 100  # episodes that the shown return and length are means of, at least


class PlainProgress(Watcher):
    """Prints a line at the start, and progress at most once in `interval_s`, the last iteration always."""

    def __init__(self, *, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._printed_at: float | None = None
        self._used_before = 0.0
        self._recent: deque[tuple[float, float, float]] = deque()

    def on_start(self, folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Resume | None) -> None:
        """Says what is trained where."""
        click.echo(
            f"training {config.task} with {config.algorithm}: backend {config.backend}, device {config.device}, "
            f"{config.num_envs} environments, seed {config.seed}, {budget}"
        )
        if start is not None:
            done = start.checkpoint
            self._used_before = budget.fraction(done.iteration, done.env_steps, 0.0)
            note = {
                "exact": "exact: bit for bit as if it had not stopped",
                "inexact": "not bit for bit",
                "warm": "warm: environments start new episodes",
            }[start.kind]
            note = "; ".join([note, *start.differences])
            click.echo(f"resuming after iteration {done.iteration}, {done.env_steps:,} env steps ({note})")
        click.echo(f"run folder: {folder.path}")

    def on_iteration(self, progress: Progress) -> None:
        """Prints one line if the last one is old enough or the budget is used."""
        metrics = progress.done.metrics
        count = metrics.get("Episode/count", 0.0)
        if count:
            self._recent.append((metrics["Episode/return"] * count, metrics["Episode/length"] * count, count))
        while (
            sum(entry[2] for entry in self._recent) - (self._recent[0][2] if self._recent else 0.0) >= _WINDOW
        ):
            self._recent.popleft()
        now = self._clock()
        if (
            self._printed_at is None
            or now - self._printed_at >= self._interval_s
            or progress.budget_used >= 1.0
        ):
            self._printed_at = now
            click.echo(self._line(progress))

    def on_interrupt(self) -> None:
        """Says that the request was heard; straight to the descriptor, for it runs inside a signal handler."""
        os.write(2, b"\nfinishing this iteration, then saving (Ctrl-C again stops now)\n")

    def _line(self, progress: Progress) -> str:
        done = progress.done
        rate = done.env_steps / max(done.collect_s + done.learn_s, 1e-9)
        parts = [
            f"iteration {progress.iteration}",
            f"env steps {progress.env_steps:,}",
            f"steps/s {rate:,.0f}",
        ]
        episodes = sum(entry[2] for entry in self._recent)
        if episodes:
            parts.append(f"return {sum(entry[0] for entry in self._recent) / episodes:.4g}")
            parts.append(f"length {sum(entry[1] for entry in self._recent) / episodes:.4g}")
        parts += [
            f"{name.removeprefix('Loss/')} loss {value:.3g}"
            for name, value in done.metrics.items()
            if name in ("Loss/value", "Loss/surrogate", "Loss/actor", "Loss/critic")
        ]
        return "  ".join([*parts, f"ETA {self._eta(progress)}"])

    def _eta(self, progress: Progress) -> str:
        """Extrapolates from this process's share of the budget: a resumed run's earlier part took no time here."""
        used = progress.budget_used - self._used_before
        if used <= 0.0:
            return "?"
        return format_duration((1.0 - progress.budget_used) * progress.elapsed_s / used)


def format_duration(seconds: float) -> str:
    """Returns `m:ss`, or `h:mm:ss` from an hour on."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"
