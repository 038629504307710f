"""The loop of training: iterate, log, save, stop at the budget or when asked to."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unilab_core import CapabilityError
from unilab_rl.atomic_write import sync_folder
from unilab_rl.checkpoint import Checkpoint, checkpoint_name, remove_old_checkpoints, save_checkpoint
from unilab_rl.contracts.algorithm import Iteration, Learner
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.manifest import installed_versions
from unilab_rl.metrics_log import MetricsLog
from unilab_rl.run_config import BudgetCfg, RunConfig
from unilab_rl.run_folder import RunFolder
from unilab_rl.runtime.evaluator import Evaluator
from unilab_rl.runtime.interrupt import InterruptGuard
from unilab_rl.runtime.resuming import Resume, write_resume

__all__ = ["Outcome", "Progress", "Runner", "Watcher"]

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
    """What the last iteration did; its metrics hold `Eval/...` where it was evaluated."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Literal["finished", "interrupted"]
    iteration: int
    env_steps: int
    checkpoint: Path
    """A file that is there and holds `iteration`."""


class Watcher:
    """Is told what happens during a run; does nothing by itself."""

    def on_start(self, folder: RunFolder, config: RunConfig, budget: BudgetCfg, start: Resume | None) -> None:
        """Called when everything is built and the first iteration is about to begin."""

    def on_iteration(self, progress: Progress) -> None:
        """Called after each iteration."""

    def on_checkpoint(self, path: Path) -> None:
        """Called when a checkpoint is complete."""

    def on_end(self) -> None:
        """Called last, however the run ends, also where `on_start` failed."""

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
        start: Resume | None = None,
        evaluator: Evaluator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a runner.

        Args:
            env: The environment that `learner` was made on; closing it is its maker's business.
            learner: A learner, in the state of `start` if that is given.
            config: The run's complete config.
            folder: Where metrics and checkpoints go.
            start: What the run continues from.
            evaluator: Measures the run every `config.learner.eval_interval` iterations and at the end.
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
        self._evaluator = evaluator
        self._watcher = Watcher()
        self._keeps_env_state = True
        self._last = start.checkpoint if start is not None else self._snapshot(0, 0)
        self._file = None if start is None else start.path  # that holds `_last`
        self._begun: Path | None = None
        """The file that was begun last."""

    def run(
        self, budget: BudgetCfg, watcher: Watcher | None = None, *, guard: InterruptGuard | None = None
    ) -> Outcome:
        """Iterates until `budget` is used or a Ctrl-C asks to stop.

        The files of a resumed run change only when its first iteration is complete.

        Args:
            budget: When to stop.
            watcher: Is told what happens.
            guard: Listens to Ctrl-C already; by default one that listens from now on.

        Raises:
            Exception: Whatever an iteration raises, after the last completed iteration was saved.
        """
        self._watcher = watcher = watcher or Watcher()
        with contextlib.ExitStack() as stack:
            guard = guard or stack.enter_context(InterruptGuard(watcher.on_interrupt))
            metrics = stack.enter_context(MetricsLog(self._folder.metrics_path))
            stack.callback(watcher.on_end)
            stopped = False
            try:
                watcher.on_start(self._folder, self._config, budget, self._start)
                self._loop(budget, watcher, guard, metrics)
            except KeyboardInterrupt:
                stopped = True
                _logger.info("stopped; the last complete iteration is %d", self._last.iteration)
            except Exception as error:
                guard.ignore_from_now()
                self._save_after(error)
                raise
            guard.ignore_from_now()
            file = self._save()
        status: Literal["finished", "interrupted"] = (
            "interrupted" if stopped or guard.requested else "finished"
        )
        return Outcome(status, self._last.iteration, self._last.env_steps, file)

    def _loop(self, budget: BudgetCfg, watcher: Watcher, guard: InterruptGuard, metrics: MetricsLog) -> None:
        began = self._clock()
        used = budget.fraction(self._last.iteration, self._last.env_steps, 0.0)
        while used < 1.0 and not guard.requested:
            done = self._learner.iterate()
            iteration, env_steps = self._last.iteration + 1, self._last.env_steps + done.env_steps
            elapsed_s = self._clock() - began
            used = budget.fraction(iteration, env_steps, elapsed_s)
            snapshot = self._snapshot(iteration, env_steps)
            measured: dict[str, float] = {}
            try:
                if self._evaluator is not None and self._is_due(iteration, used, guard):
                    measured = self._evaluate(self._evaluator, snapshot)
            finally:  # an evaluation that fails or is interrupted costs no iteration that was complete
                done = replace(done, metrics={**done.metrics, **measured})
                self._complete(snapshot, done, elapsed_s, budget, metrics)
            if iteration % self._config.learner.save_interval == 0:
                self._save()
            watcher.on_iteration(Progress(iteration, env_steps, elapsed_s, used, done))

    def _complete(
        self,
        snapshot: Checkpoint,
        done: Iteration,
        elapsed_s: float,
        budget: BudgetCfg,
        metrics: MetricsLog,
    ) -> None:
        """Makes an iteration the last one that is complete; the first one of a resumed run also says so on disk."""
        resumed = None
        if self._start is not None and self._last is self._start.checkpoint:
            write_resume(self._folder, self._start, budget)
            resumed = self._start.kind
        metrics.append(
            done,
            iteration=snapshot.iteration,
            env_steps=snapshot.env_steps,
            elapsed_s=elapsed_s,
            resumed=resumed,
        )
        self._last, self._file = snapshot, None

    def _is_due(self, iteration: int, used: float, guard: InterruptGuard) -> bool:
        """Returns whether an iteration is evaluated; not where somebody waits for the end."""
        interval = self._config.learner.eval_interval
        return interval > 0 and not guard.requested and (iteration % interval == 0 or used >= 1.0)

    def _evaluate(self, evaluator: Evaluator, snapshot: Checkpoint) -> dict[str, float]:
        """Measures an iteration."""
        began = self._clock()
        metrics = evaluator.measure(snapshot).to_metrics()
        return {**metrics, "Eval/seconds": self._clock() - began}

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
            env_state=self._env_state() if state.exact else None,
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

    def _save(self) -> Path:
        """Writes the last completed iteration unless a file holds it already, and returns that file.

        Once it is complete, checkpoints beyond `config.learner.keep_checkpoints` are removed.
        """
        if self._file is None:
            file = self._folder.checkpoints / checkpoint_name(self._last.iteration)
            if self._begun == file and file.exists():
                sync_folder(
                    file.parent
                )  # saving it failed, or was interrupted, after it had its name: it is whole
            else:
                self._begun = file
                save_checkpoint(file, self._last)
            self._file = file
            resumed_from = None if self._start is None else self._start.path
            remove_old_checkpoints(file.parent, self._config.learner.keep_checkpoints, spare=resumed_from)
            self._watcher.on_checkpoint(file)
        return self._file

    def _save_after(self, error: Exception) -> None:
        """Saves what there is after a failure, without hiding the failure behind one of saving."""
        if self._last.iteration == 0:
            return
        try:
            file = self._save()
        except OSError as second:
            error.add_note(f"the last completed iteration could not be saved either: {second}")
        else:
            error.add_note(f"iteration {self._last.iteration} is saved in {file}")
