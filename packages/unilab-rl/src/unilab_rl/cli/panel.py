"""What a training run shows on a terminal: one panel that stays in its place."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unilab_rl.cli.run_view import RunView, format_duration, start_lines
from unilab_rl.runtime.runner import Progress, Watcher

if TYPE_CHECKING:
    from unilab_rl.run_config import BudgetCfg, RunConfig
    from unilab_rl.run_folder import RunFolder
    from unilab_rl.runtime.resuming import Resume

__all__ = ["PanelProgress", "panel"]

HINT = "Ctrl-C finishes the iteration, saves and stops"
HEARD = "finishing this iteration, then saving (Ctrl-C again stops now)"

# How many lines a part may have, so that the whole fits a terminal of 24 lines.
_TERMS, _ENDS, _CURRICULUM, _EVALUATION = 8, 4, 3, 8


class PanelProgress(Watcher):
    """Redraws a panel after an iteration, at most once in `interval_s`, and leaves the last one standing.

    Each redraw is one write to the terminal, and no thread draws, so nothing flickers. What others print meanwhile
    appears above the panel.
    """

    def __init__(
        self,
        console: Console,
        *,
        interval_s: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[bytes], object] | None = None,
    ) -> None:
        """Makes a panel, shown from `on_start` to `on_end`.

        Args:
            console: A terminal.
            interval_s: The shortest time between two redraws.
            clock: Seconds that only rise.
            write: Writes to the terminal from inside a signal handler; by default to the console's descriptor.
        """
        self.view = RunView()
        self._console = console
        self._interval_s = interval_s
        self._clock = clock
        self._write = write or (lambda text: os.write(console.file.fileno(), text))
        self._title = ""
        self._folder: Path | None = None
        self._hint = HINT
        self._drawn_at: float | None = None
        self._live: Live | None = None

    def on_start(self, folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Resume | None) -> None:
        """Says what is trained where, and shows the panel."""
        self.view.start(budget, start)
        for line in start_lines(folder, config, budget, start):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._title = f"{config.task}, {config.algorithm}, {budget}"
        self._folder = folder.path
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stderr=sys.stderr.isatty(),
            get_renderable=self._render,
        )
        self._live.start(refresh=True)

    def on_iteration(self, progress: Progress) -> None:
        """Redraws if the last time is long enough ago."""
        self.view.note(progress)
        now = self._clock()
        if self._live is not None and (self._drawn_at is None or now - self._drawn_at >= self._interval_s):
            self._drawn_at = now
            self._live.refresh()

    def on_checkpoint(self, path: Path) -> None:
        """Notes it for the next redraw."""
        self.view.checkpoint = path

    def on_end(self) -> None:
        """Draws the panel a last time and gives the terminal back, cursor and streams as they were."""
        live, self._live = self._live, None
        self._hint = ""
        if live is not None:
            live.stop()

    def on_interrupt(self) -> None:
        """Says that the request was heard, in the panel's last line.

        It runs inside a signal handler, perhaps in the middle of a redraw, so it writes to the descriptor, and no more
        than the line on which a redraw leaves the cursor.
        """
        self._hint = HEARD
        heard = HEARD[: self._console.width]  # a second line would shift the panel
        line = f"\r\x1b[2K{heard}" if self._live is not None else f"\n{HEARD}\n"
        self._write(line.encode())

    def _render(self) -> RenderableType:
        body = panel(self.view, title=self._title, folder=self._folder)
        return (
            Group(body, Text(self._hint, style="dim", no_wrap=True, overflow="crop")) if self._hint else body
        )


def panel(view: RunView, *, title: str, folder: Path | None) -> Panel:
    """Returns a run as a panel of at most 22 lines."""
    used = 0.0 if view.progress is None else min(1.0, view.progress.budget_used)
    elapsed = 0.0 if view.progress is None else view.progress.elapsed_s
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_row(
        ProgressBar(total=1.0, completed=used),
        Text(f"{used:.0%}  elapsed {format_duration(elapsed)}  ETA {view.eta()}", no_wrap=True),
    )
    parts: list[RenderableType] = [head, _numbers(view)]
    sections = [section for section in (_terms(view), _ends(view), _evaluation(view)) if section is not None]
    if sections:
        row = Table.grid(padding=(0, 3, 0, 0), expand=True)
        for _ in sections:
            row.add_column(ratio=1)
        row.add_row(*sections)
        parts.append(Padding(row, (1, 0, 0, 0)))
    if view.checkpoint is not None:
        saved = view.checkpoint
        if folder is not None and saved.is_relative_to(folder):
            saved = saved.relative_to(folder)
        parts.append(Padding(Text(f"saved {saved}", overflow="ellipsis", no_wrap=True), (1, 0, 0, 0)))
    return Panel(Group(*parts), title=Text(title, style="bold"), title_align="left")


def _numbers(view: RunView) -> Table:
    """Returns counts, rates and means, in three pairs of columns."""
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(3):
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
    progress, means = view.progress, view.episode_means()
    done = None if progress is None else progress.done
    counts = {
        "iteration": "-" if progress is None else f"{progress.iteration:,}",
        "env steps": "-" if progress is None else f"{progress.env_steps:,}",
    }
    rates = {
        "collect steps/s": "-" if done is None else _rate(done.env_steps, done.collect_s),
        "learn steps/s": "-" if done is None else _rate(done.env_steps, done.learn_s),
    }
    episodes = {
        "return": "-" if means is None else f"{means[0]:.4g}",
        "episode length": "-" if means is None else f"{means[1]:.4g}",
    }
    for group in zip(counts.items(), rates.items(), episodes.items(), strict=True):
        grid.add_row(
            *(
                Text(part, style=style)
                for pair in group
                for part, style in zip(pair, ("dim", ""), strict=True)
            )
        )
    return grid


def _terms(view: RunView) -> Table | None:
    terms = view.section("Episode_Reward/")
    largest = sorted(terms.items(), key=lambda item: -abs(item[1]))
    return _section("reward terms", {name: f"{value:.4g}" for name, value in largest}, _TERMS)


def _ends(view: RunView) -> RenderableType | None:
    """Returns why episodes ended, and below that where the curricula are."""
    causes = sorted(view.section("Episode_Termination/").items(), key=lambda item: -item[1])
    ends = _section("episodes ended by", {name: f"{value:.0%}" for name, value in causes}, _ENDS)
    levels = {name: f"{value:.4g}" for name, value in view.section("Curriculum/").items()}
    curriculum = _section("curriculum", levels, _CURRICULUM)
    both = [part for part in (ends, curriculum) if part is not None]
    return Group(*both) if both else None


def _evaluation(view: RunView) -> Table | None:
    values = {name.removeprefix("Metrics/"): f"{value:.4g}" for name, value in view.evaluation.items()}
    return _section(f"evaluation at {view.evaluated_at:,}", values, _EVALUATION)


def _section(heading: str, values: dict[str, str], most: int) -> Table | None:
    """Returns names and values under a heading, `None` where there are none; says how many are left out."""
    if not values:
        return None
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(heading, style="bold"), "")
    shown = most if len(values) <= most else most - 1
    for name, value in list(values.items())[:shown]:
        table.add_row(Text(name), Text(value))
    if len(values) > shown:
        table.add_row(Text(f"and {len(values) - shown} more", style="dim"), "")
    return table


def _rate(env_steps: int, seconds: float) -> str:
    return f"{env_steps / max(seconds, 1e-9):,.0f}"
