"""Whole sessions: a new run from a task's name, and a run that continues."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from unilab_core import (
    Cfg,
    ConfigError,
    EnvFactory,
    TorchEnv,
    get_task,
    import_object,
    make_env,
    nearest,
    parse_overrides,
)
from unilab_rl.checkpoint import CheckpointError
from unilab_rl.contracts.algorithm import Algorithm, Learner, LearnerCfg
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.contracts.replay import ReplayContents
from unilab_rl.manifest import make_manifest
from unilab_rl.registry import get_algorithm
from unilab_rl.run_config import MAX_SEED, BudgetCfg, RunConfig
from unilab_rl.run_folder import RunFolder, check_writable, create_run_folder
from unilab_rl.runtime.evaluator import Evaluator, import_training_state, learner_state
from unilab_rl.runtime.interrupt import InterruptGuard
from unilab_rl.runtime.resuming import Resume, read_resume
from unilab_rl.runtime.runner import Outcome, Runner, Watcher

__all__ = ["TrainRequest", "resume", "task_learner_cfg", "train"]

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
        KeyboardInterrupt: A Ctrl-C came before the folder was made; nothing was saved.
        ConfigError: An unknown algorithm, or a wrong override or value.
        KeyError: An unknown task.
        CapabilityError: Something that is needed isn't installed or can't be done.
        RunFolderError: The run folder can't be made.
    """
    spec = get_task(request.task)
    algorithm = get_algorithm(request.algorithm or spec.default_learner)
    env_overrides, learner_overrides = _split_overrides(request.overrides)
    learner_cfg = task_learner_cfg(spec.name, spec.learners, algorithm, learner_overrides)
    algorithm.require()
    check_writable(request.runs)
    env = make_env(
        spec.name,
        backend=request.backend,
        device=request.device,
        num_envs=_num_envs(request, learner_cfg, env_overrides),
        seed=request.seed,
        overrides=env_overrides,
    )
    with ExitStack() as owner:
        owner.enter_context(closing(env))
        factory = _factory(env, request.backend, request.device, request.seed)
        learner = algorithm.make_learner(env, learner_cfg, seed=request.seed, factory=factory)
        owner.callback(learner.close)
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
        evaluator = _evaluator(config)
        now = datetime.now()
        manifest = make_manifest(config, env, overrides=request.overrides, now=now)
        watcher = watcher or Watcher()
        with InterruptGuard(watcher.on_interrupt) as guard, owner.pop_all():
            folder = create_run_folder(request.runs, config, manifest, now=now)
            try:
                runner = Runner(env, learner, config, folder, evaluator=evaluator)
                return runner.run(config.budget, watcher, guard=guard)
            except BaseException as error:
                if folder.discard_unused():
                    error.add_note("nothing was learned yet, so the run folder was removed")
                raise


def resume(
    folder: RunFolder,
    checkpoint: Path | None = None,
    *,
    budget: BudgetCfg | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Continues a run in its own folder, at the iteration after its checkpoint.

    Every file is checked first, and none changes before the first iteration is complete. Then what the run had
    written after that checkpoint is set aside under names with `.superseded`.

    Args:
        folder: The run.
        checkpoint: One of its checkpoints; by default the last, or where that is damaged, with a warning, the last one
            that isn't.
        budget: A new budget, counted from the run's beginning; by default the run's own.
        watcher: Is told what happens.

    Raises:
        CheckpointError: The checkpoint is damaged or doesn't fit the run.
        ConfigError: The run's config is damaged, or its budget is used up.
        RunFolderError: Another file of the run is damaged, or the run can't be written to.
    """
    config = folder.config()
    start = read_resume(folder, config, checkpoint)
    budget = budget or config.budget
    _check_budget(budget, start)
    algorithm = get_algorithm(config.algorithm)
    algorithm.require()
    # Without the environment's own random state a resumed run must not draw the first episodes again.
    seed = (config.seed + start.checkpoint.iteration) % (MAX_SEED + 1)
    env = make_env(
        config.env, backend=config.backend, device=config.device, num_envs=config.num_envs, seed=seed
    )
    watcher = watcher or Watcher()
    with ExitStack() as owner:
        owner.enter_context(closing(env))
        # Before the first reset, which follows curricula.
        import_training_state(env, start.path, start.checkpoint)
        factory = _factory(env, config.backend, config.device, seed)
        learner = algorithm.make_learner(env, config.learner, seed=config.seed, factory=factory)
        owner.callback(learner.close)
        _restore(env, learner, start)
        start = _without_replay(start)  # a file that is as large as the learner's own replay, and read
        evaluator = _evaluator(config)
        with InterruptGuard(watcher.on_interrupt) as guard, owner.pop_all():
            runner = Runner(env, learner, config, folder, start=start, evaluator=evaluator)
            return runner.run(budget, watcher, guard=guard)


def _check_budget(budget: BudgetCfg, start: Resume) -> None:
    done = start.checkpoint
    if budget.fraction(done.iteration, done.env_steps, 0.0) >= 1.0:
        raise ConfigError(
            f"{start.path}: the run has done {done.iteration} iterations and {done.env_steps:,} steps, its budget of "
            f"{budget} is used up; raise it with --iterations, --steps or --minutes"
        )


def _evaluator(config: RunConfig) -> Evaluator | None:
    """Returns what measures the run now and then, tried once; `None` where its config asks for no evaluations."""
    if not config.learner.eval_interval:
        return None
    evaluator = Evaluator(config, episodes=config.learner.eval_episodes)
    evaluator.check()
    return evaluator


def _num_envs(request: TrainRequest, cfg: LearnerCfg, overrides: Mapping[str, Any]) -> int | None:
    """Returns how many rows were asked for, else how many the learner is made for; `None`: as the task says."""
    if request.num_envs is not None or "num_envs" in overrides:
        return request.num_envs
    return cfg.num_envs


def _factory(env: TorchEnv, backend: str, device: str, seed: int) -> EnvFactory:
    """Returns what builds another environment like `env`."""
    return EnvFactory(env.cfg, backend=backend, device=device, num_envs=env.num_envs, seed=seed)


def _split_overrides(texts: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the overrides of the environment's config and of the learner's, without their prefix."""
    overrides = parse_overrides(texts)
    learner = {
        path.removeprefix(_LEARNER): value for path, value in overrides.items() if path.startswith(_LEARNER)
    }
    return {path: value for path, value in overrides.items() if not path.startswith(_LEARNER)}, learner


def task_learner_cfg(
    task: str, learners: Mapping[str, str], algorithm: Algorithm, overrides: Mapping[str, Any]
) -> LearnerCfg:
    """Returns a task's config of a learner, with overrides (dotted path to value) applied.

    Raises:
        ConfigError: The task has none for this algorithm, one of another type, or an override is wrong.
    """
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


def _restore(env: EnvProtocol, learner: Learner, start: Resume) -> None:
    done = start.checkpoint
    continues = done.env_state is not None
    try:
        learner.load_state(learner_state(done), episodes_continue=continues, trained=done.iteration > 0)
        if done.env_state is not None:
            env.load_state_dict(done.env_state)
    except ValueError as error:
        raise CheckpointError(f"{start.path}: doesn't fit the run's config.yaml: {error}") from error


def _without_replay(start: Resume) -> Resume:
    """Returns where a run continues without the contents of a replay, which have been loaded."""
    held = start.checkpoint.learner
    kept = {name: part for name, part in held.items() if not isinstance(part, ReplayContents)}
    return replace(start, checkpoint=replace(start.checkpoint, learner=kept))
