"""The loop of training: iterate, log, save, stop at the budget or when asked to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unilab_core import CapabilityError
from unilab_rl.checkpoint import Checkpoint, checkpoint_name, save_checkpoint
from unilab_rl.contracts.algorithm import Iteration, Learner
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.manifest import installed_versions
from unilab_rl.metrics_log import MetricsLog
from unilab_rl.run_config import BudgetCfg, RunConfig
from unilab_rl.run_folder import RunFolder
from unilab_rl.runtime.interrupt import InterruptGuard

__all__ = ["Outcome", "Progress", "Runner", "Watcher", "resume_kind"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Where a run stands after an iteration."""

    iteration: int
    """Completed iterations, those before a resume included."""
    env_steps: int
    """Environment steps, summed over rows, those before a resume included."""
    elapsed_s: float
    """Wall-clock seconds of this process's training."""
    budget_used: float
    """Share of the budget, 1 or more at the end."""
    done: Iteration
    """What the last iteration did."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Literal["finished", "interrupted"]
    iteration: int
    env_steps: int
    checkpoint: Path
    """The last checkpoint, which holds `iteration`."""


class Watcher:
    """Is told what happens during a run; does nothing by itself."""

    def on_start(
        self, folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Checkpoint | None
    ) -> None:
        """Called when everything is built and the first iteration is about to begin."""

    def on_iteration(self, progress: Progress) -> None:
        """Called after each iteration."""

    def on_interrupt(self) -> None:
        """Called inside the signal handler at the first Ctrl-C; must not print through buffered streams."""


class Runner:
    """Runs one learner until its budget is used.

    The state after the last completed iteration is kept in memory, so that a run which is stopped in the middle of
    an iteration, or whose next iteration fails, leaves that state as its last checkpoint.
    """

    def __init__(
        self,
        env: EnvProtocol,
        learner: Learner,
        config: RunConfig,
        folder: RunFolder,
        *,
        start: Checkpoint | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a runner.

        Args:
            env: The environment that `learner` was made on; closing it is its maker's business.
            learner: A learner, in the state of `start` if that is given.
            config: The run's complete config.
            folder: Where metrics and checkpoints go.
            start: The checkpoint that the run continues from.
            clock: Seconds that only rise.
        """
        self._env = env
        self._learner = learner
        self._config = config
        self._config_data = config.to_data()
        self._versions = installed_versions()
        self._folder = folder
        self._clock = clock
        self._start = start
        self._resumed: str | None = None if start is None else resume_kind(start)
        self._keeps_env_state = True
        self._last = start if start is not None else self._snapshot(0, 0)
        self._saved: int | None = None if start is None else start.iteration

    def run(self, budget: BudgetCfg, watcher: Watcher | None = None) -> Outcome:
        """Iterates until `budget` is used or a Ctrl-C asks to stop.

        Raises:
            Exception: Whatever an iteration raises, after the last completed iteration was saved.
        """
        watcher = watcher or Watcher()
        watcher.on_start(self._folder, self._config, budget, self._start)
        with InterruptGuard(watcher.on_interrupt) as guard, MetricsLog(self._folder.metrics_path) as metrics:
            try:
                self._loop(budget, watcher, guard, metrics)
                guard.ignore_from_now()
            except KeyboardInterrupt:
                _logger.info("stopped in the middle of iteration %d", self._last.iteration + 1)
            except Exception as error:
                guard.ignore_from_now()
                self._save_after(error)
                raise
            self._save()
        return self._outcome("interrupted" if guard.requested else "finished")

    def _loop(self, budget: BudgetCfg, watcher: Watcher, guard: InterruptGuard, metrics: MetricsLog) -> None:
        began = self._clock()
        used = budget.fraction(self._last.iteration, self._last.env_steps, 0.0)
        while used < 1.0 and not guard.requested:
            done = self._learner.iterate()
            iteration, env_steps = self._last.iteration + 1, self._last.env_steps + done.env_steps
            elapsed_s = self._clock() - began
            used = budget.fraction(iteration, env_steps, elapsed_s)
            snapshot = self._snapshot(iteration, env_steps)
            metrics.append(
                done, iteration=iteration, env_steps=env_steps, elapsed_s=elapsed_s, resumed=self._resumed
            )
            self._last, self._resumed = snapshot, None
            if iteration % self._config.learner.save_interval == 0:
                self._save()
            watcher.on_iteration(Progress(iteration, env_steps, elapsed_s, used, done))

    def _snapshot(self, iteration: int, env_steps: int) -> Checkpoint:
        state = self._learner.state()
        return Checkpoint(
            algorithm=self._config.algorithm,
            task=self._config.task,
            iteration=iteration,
            env_steps=env_steps,
            learner=state.learner,
            optimizer=state.optimizer,
            normalizer=state.normalizer,
            env_training_state=dict(self._env.export_training_state()),
            env_state=self._env_state(),
            rng=state.rng,
            config=self._config_data,
            versions=self._versions,
        )

    def _env_state(self) -> dict[str, Any] | None:
        if not self._keeps_env_state:
            return None
        try:
            return self._env.state_dict()
        except CapabilityError as error:
            _logger.info("checkpoints hold no environment state, a resume will be warm: %s", error)
            self._keeps_env_state = False
            return None

    def _save(self) -> None:
        """Writes the last completed iteration unless it is on disk already."""
        if self._saved != self._last.iteration:
            save_checkpoint(self._folder.checkpoints / checkpoint_name(self._last.iteration), self._last)
            self._saved = self._last.iteration

    def _save_after(self, error: Exception) -> None:
        """Saves what there is after a failure, without hiding the failure behind one of saving."""
        if self._last.iteration == 0:
            return
        try:
            self._save()
        except OSError as second:
            error.add_note(f"the last completed iteration could not be saved either: {second}")
        else:
            error.add_note(f"iteration {self._last.iteration} is saved in {self._folder.checkpoints}")

    def _outcome(self, status: Literal["finished", "interrupted"]) -> Outcome:
        path = self._folder.checkpoints / checkpoint_name(self._last.iteration)
        return Outcome(status, self._last.iteration, self._last.env_steps, path)


def resume_kind(checkpoint: Checkpoint) -> str:
    """Returns `"exact"` where a checkpoint holds the environment's state, else `"warm"`: it starts from a reset."""
    return "warm" if checkpoint.env_state is None else "exact"
