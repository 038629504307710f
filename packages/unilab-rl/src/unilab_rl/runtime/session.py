"""Whole sessions: a new run from a task's name, and a run that continues."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from unilab_core import Cfg, ConfigError, get_task, import_object, make_env, nearest, parse_overrides
from unilab_rl.checkpoint import (
    Checkpoint,
    CheckpointError,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
)
from unilab_rl.contracts.algorithm import Algorithm, Learner, LearnerCfg, LearnerState
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.manifest import installed_versions, make_manifest
from unilab_rl.metrics_log import set_aside_after
from unilab_rl.registry import get_algorithm
from unilab_rl.run_config import BudgetCfg, RunConfig
from unilab_rl.run_folder import RunFolder, RunFolderError, check_writable, create_run_folder
from unilab_rl.runtime.runner import Outcome, Runner, Watcher, resume_kind

__all__ = ["TrainRequest", "learner_state", "resume", "train"]

_LEARNER = "learner."


@dataclass(frozen=True)
class TrainRequest:
    """What a new run is asked to do; `None` leaves the choice to the task."""

    task: str
    algorithm: str | None = None
    backend: str = "mujoco"
    device: str = "cpu"
    num_envs: int | None = None
    seed: int = 0
    budget: BudgetCfg | None = None
    """When to stop; by default after the learner config's `iterations`."""
    overrides: tuple[str, ...] = ()
    """`PATH=VALUE` texts for the environment's config, or with `learner.` in front for the learner's."""
    runs: Path = Path("runs")
    """The folder of all runs."""


def train(request: TrainRequest, watcher: Watcher | None = None) -> Outcome:
    """Trains from the beginning in a new run folder.

    The folder is made when environment and learner are built, so bad input leaves none behind.

    Raises:
        ConfigError: An unknown algorithm, or a wrong override or value.
        KeyError: An unknown task.
        CapabilityError: Something that is needed isn't installed or can't be done.
        RunFolderError: The run folder can't be made.
    """
    spec = get_task(request.task)
    algorithm = get_algorithm(request.algorithm or spec.default_learner)
    env_overrides, learner_overrides = _split_overrides(request.overrides)
    learner_cfg = _learner_cfg(spec.name, spec.learners, algorithm, learner_overrides)
    algorithm.require()
    check_writable(request.runs)
    env = make_env(
        spec.name,
        backend=request.backend,
        device=request.device,
        num_envs=request.num_envs,
        seed=request.seed,
        overrides=env_overrides,
    )
    with closing(env):
        learner = algorithm.make_learner(env, learner_cfg, seed=request.seed)
        config = RunConfig(
            task=spec.name,
            algorithm=algorithm.name,
            backend=request.backend,
            device=request.device,
            num_envs=env.num_envs,
            seed=request.seed,
            budget=request.budget or BudgetCfg(iterations=learner_cfg.iterations),
            env=env.cfg,
            learner=learner_cfg,
        )
        now = datetime.now()
        manifest = make_manifest(config, env, overrides=request.overrides, now=now)
        folder = create_run_folder(request.runs, config, manifest, now=now)
        return Runner(env, learner, config, folder).run(config.budget, watcher)


def resume(
    folder: RunFolder,
    checkpoint: Path | None = None,
    *,
    budget: BudgetCfg | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Continues a run in its own folder, at the iteration after its checkpoint.

    What the run had written after that checkpoint is set aside under names that end in `.superseded`.

    Args:
        folder: The run.
        checkpoint: One of its checkpoints; by default the last.
        budget: A new budget, counted from the run's beginning; by default the run's own.
        watcher: Is told what happens.

    Raises:
        CheckpointError: The checkpoint is damaged or doesn't fit the run.
        ConfigError: The run's config is damaged, or its budget is used up.
        RunFolderError: The run can't be written to.
    """
    config = folder.config()
    path = checkpoint or latest_checkpoint(folder.checkpoints)
    start = load_checkpoint(path)
    _check_belongs(path, start, config)
    budget = budget or config.budget
    if budget.fraction(start.iteration, start.env_steps, 0.0) >= 1.0:
        raise ConfigError(
            f"{path}: the run has done {start.iteration} iterations and {start.env_steps:,} steps, its budget of "
            f"{budget} is used up; raise it with --iterations, --steps or --minutes"
        )
    algorithm = get_algorithm(config.algorithm)
    algorithm.require()
    if not os.access(folder.path, os.W_OK | os.X_OK):
        raise RunFolderError(f"{folder.path}: no permission to write; copy the run to a place of your own")
    # Without the environment's own random state a resumed run must not draw the first episodes again.
    seed = config.seed + start.iteration
    env = make_env(
        config.env, backend=config.backend, device=config.device, num_envs=config.num_envs, seed=seed
    )
    with closing(env):
        env.import_training_state(start.env_training_state)  # before the first reset, which follows curricula
        learner = algorithm.make_learner(env, config.learner, seed=config.seed)
        _restore(env, learner, path, start)
        _note_resume(folder, start, budget)
        _set_aside(folder, start.iteration)
        return Runner(env, learner, config, folder, start=start).run(budget, watcher)


def learner_state(checkpoint: Checkpoint) -> LearnerState:
    """Returns the learner's part of a checkpoint."""
    return LearnerState(checkpoint.learner, checkpoint.optimizer, checkpoint.normalizer, checkpoint.rng)


def _split_overrides(texts: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the overrides of the environment's config and of the learner's, without their prefix."""
    overrides = parse_overrides(texts)
    learner = {
        path.removeprefix(_LEARNER): value for path, value in overrides.items() if path.startswith(_LEARNER)
    }
    return {path: value for path, value in overrides.items() if not path.startswith(_LEARNER)}, learner


def _learner_cfg(
    task: str, learners: Mapping[str, str], algorithm: Algorithm, overrides: Mapping[str, Any]
) -> LearnerCfg:
    if algorithm.name not in learners:
        raise ConfigError(
            f"task {task!r} has no settings for the algorithm {algorithm.name!r}; {nearest(algorithm.name, learners)}"
        )
    cfg: Cfg = import_object(learners[algorithm.name])()
    if not isinstance(cfg, algorithm.config_type):
        raise ConfigError(
            f"task {task!r}: {learners[algorithm.name]!r} returned a {type(cfg).__name__}, expected a "
            f"{algorithm.config_type.__name__}"
        )
    try:
        return cfg.with_(overrides)
    except ConfigError as error:
        raise ConfigError(f"--set learner.PATH=VALUE: {error}") from error


def _check_belongs(path: Path, checkpoint: Checkpoint, config: RunConfig) -> None:
    given, expected = (checkpoint.task, checkpoint.algorithm), (config.task, config.algorithm)
    if given != expected:
        raise CheckpointError(
            f"{path}: is of task {given[0]!r} and algorithm {given[1]!r}, but its run folder's config.yaml says "
            f"{expected[0]!r} and {expected[1]!r}; put it back where it belongs"
        )


def _restore(env: EnvProtocol, learner: Learner, path: Path, start: Checkpoint) -> None:
    try:
        learner.load_state(learner_state(start), episodes_continue=start.env_state is not None)
        if start.env_state is not None:
            env.load_state_dict(start.env_state)
    except ValueError as error:
        raise CheckpointError(f"{path}: doesn't fit the run's config.yaml: {error}") from error


def _note_resume(folder: RunFolder, start: Checkpoint, budget: BudgetCfg) -> None:
    manifest = folder.manifest()
    entry = {
        "time": datetime.now().isoformat(timespec="seconds"),
        "kind": resume_kind(start),
        "iteration": start.iteration,
        "env_steps": start.env_steps,
        "budget": str(budget),
        "versions": installed_versions(),
    }
    folder.write_manifest(manifest | {"resumes": [*manifest.get("resumes", []), entry]})


def _set_aside(folder: RunFolder, iteration: int) -> None:
    """Takes what a run wrote after `iteration` out of the way: `latest` must not find it again."""
    for path in list_checkpoints(folder.checkpoints):
        if int(path.stem.removeprefix("model_")) > iteration:
            path.rename(path.with_name(path.name + ".superseded"))
    set_aside_after(folder.metrics_path, iteration)
