"""What is shown of a run while it trains, whether in a panel or in lines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.resuming import Resume
    from unilab_rl.runtime.runner import Progress

__all__ = ["EVAL", "RunView", "evaluation_line", "format_duration", "start_lines"]

EVAL = "Eval/"
_WINDOW = 100  # episodes that the shown return and length are means of, at least


@dataclass
class RunView:
    """The latest of everything; a number that an iteration doesn't report stays what it was."""

    used_before: float = 0.0
    """Share of the budget that a resumed run had used before this process."""
    progress: Progress | None = None
    values: dict[str, float] = field(default_factory=dict)
    """The last value of each metric of the training."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """The last evaluation, without the `Eval/`."""
    evaluated_at: int = 0
    """The iteration of `evaluation`."""
    checkpoint: Path | None = None
    _recent: deque[tuple[float, float, float]] = field(default_factory=deque)

    def start(self, budget: BudgetCfg, start: Resume | None) -> None:
        """Notes how much of the budget lies before this process."""
        if start is not None:
            self.used_before = budget.fraction(start.checkpoint.iteration, start.checkpoint.env_steps, 0.0)

    def note(self, progress: Progress) -> None:
        """Takes up an iteration."""
        self.progress = progress
        metrics = progress.done.metrics
        self.values.update({key: value for key, value in metrics.items() if not key.startswith(EVAL)})
        evaluation = {key.removeprefix(EVAL): value for key, value in metrics.items() if key.startswith(EVAL)}
        if evaluation:
            self.evaluation, self.evaluated_at = evaluation, progress.iteration
        count = metrics.get("Episode/count", 0.0)
        if count:
            recent = self._recent
            recent.append((metrics["Episode/return"] * count, metrics["Episode/length"] * count, count))
            while sum(entry[2] for entry in recent) - recent[0][2] >= _WINDOW:
                recent.popleft()

    def episode_means(self) -> tuple[float, float] | None:
        """Returns return and length over at least the last 100 episodes, or all there were; `None` before the first."""
        episodes = sum(entry[2] for entry in self._recent)
        if not episodes:
            return None
        returns, lengths = (sum(entry[column] for entry in self._recent) for column in (0, 1))
        return returns / episodes, lengths / episodes

    def eta(self) -> str:
        """Extrapolates from this process's share of the budget: a resumed run's earlier part took no time here."""
        if self.progress is None or self.progress.budget_used <= self.used_before:
            return "?"
        used = self.progress.budget_used - self.used_before
        return format_duration((1.0 - self.progress.budget_used) * self.progress.elapsed_s / used)

    def section(self, prefix: str) -> dict[str, float]:
        """Returns the metrics below a prefix, by the rest of their name."""
        return {
            key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)
        }


def start_lines(folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Resume | None) -> list[str]:
    """Returns what is trained where, and how a resumed run continues."""
    lines = [
        f"training {config.task} with {config.algorithm}: backend {config.backend}, device {config.device}, "
        f"{config.num_envs} environments, seed {config.seed}, {budget}"
    ]
    if start is not None:
        done = start.checkpoint
        note = {
            "exact": "exact: bit for bit as if it had not stopped",
            "inexact": "not bit for bit",
            "warm": "warm: environments start new episodes",
        }[start.kind]
        note = "; ".join([note, *start.differences])
        lines.append(f"resuming after iteration {done.iteration}, {done.env_steps:,} env steps ({note})")
        end = f"to iteration {budget.iterations:,}" if budget.iterations is not None else f"until {budget}"
        lines.append(f"continuing at iteration {done.iteration + 1:,} {end}")
    return [*lines, f"run folder: {folder.path}"]


def evaluation_line(iteration: int, evaluation: dict[str, float]) -> str:
    """Returns an evaluation as one line."""
    shown = "  ".join(f"{key.removeprefix('Metrics/')} {value:.4g}" for key, value in evaluation.items())
    return f"evaluation after iteration {iteration}  {shown}"


def format_duration(seconds: float) -> str:
    """Returns `m:ss`, or `h:mm:ss` from an hour on."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"
