"""What a training run says into a file or a plain terminal: one line now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from unilab_rl.cli.run_view import EVAL, RunView, evaluation_line, start_lines
from unilab_rl.runtime.runner import Progress, Watcher

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.resuming import Resume

__all__ = ["PlainProgress"]


class PlainProgress(Watcher):
    """Prints lines at the start, each evaluation, and progress at most once in `interval_s`, the end always."""

    def __init__(self, *, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = RunView()
        self._interval_s = interval_s
        self._clock = clock
        self._printed_at: float | None = None

    def on_start(self, folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Resume | None) -> None:
        """Says what is trained where."""
        self.view.start(budget, start)
        for line in start_lines(folder, config, budget, start):
            click.echo(line)

    def on_iteration(self, progress: Progress) -> None:
        """Prints one line if the last one is old enough or the budget is used."""
        self.view.note(progress)
        now = self._clock()
        if (
            self._printed_at is None
            or now - self._printed_at >= self._interval_s
            or progress.budget_used >= 1.0
        ):
            self._printed_at = now
            click.echo(self._line(progress))
        if any(key.startswith(EVAL) for key in progress.done.metrics):
            click.echo(evaluation_line(progress.iteration, self.view.evaluation))

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
        means = self.view.episode_means()
        if means is not None:
            parts += [f"return {means[0]:.4g}", f"length {means[1]:.4g}"]
        parts += [
            f"{name.removeprefix('Loss/')} loss {value:.3g}"
            for name, value in done.metrics.items()
            if name in ("Loss/value", "Loss/surrogate", "Loss/actor", "Loss/critic")
        ]
        return "  ".join([*parts, f"ETA {self.view.eta()}"])
