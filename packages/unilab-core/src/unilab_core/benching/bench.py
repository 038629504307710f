"""One task measured at several numbers of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Annotated, Any, Self

import torch
from pydantic import Field, PositiveInt, model_validator

from unilab_core.benching.counts import StepCounts, measure_counts
from unilab_core.benching.intervals import FEWEST, Line, fit_line
from unilab_core.benching.load import MachineLoad, OtherLoad, usable_cores
from unilab_core.benching.machine import Machine, describe_machine, torch_threads
from unilab_core.benching.pairs import Pairs, measure_pairs
from unilab_core.benching.parts import BenchPart, LearnerCost, find_parts
from unilab_core.benching.phases import PhaseCost, measure_phases
from unilab_core.benching.resets import ResetCost, measure_resets
from unilab_core.env import TorchEnv
from unilab_core.errors import CapabilityError, ConfigError
from unilab_core.factory import load_env_cfg, make_env
from unilab_core.registry import get_task
from unisim.bare import BareEngine, Freshness, make_bare
from unisim.config import Cfg, parse_overrides

__all__ = ["BenchCfg", "BenchReport", "BenchRow", "BenchStoppedError", "run_bench"]

_LEARNER = "learner."
_WINDOW_ROWS, _WINDOW_STEPS = 4096, 5
"""A window has so many environment steps, and at least so many steps of all rows."""
_COUNTED_STEPS = 20
_FRESHNESS: tuple[Freshness, ...] = ("fresh", "plain")


class BenchCfg(Cfg):
    """What is measured, and how.

    Attributes:
        task: Name of a registered task.
        num_envs: Numbers of rows, each measured on its own.
        backend: Name of a physics backend.
        device: Torch device of the environment.
        threads: Of the engine and of Torch; 0: all cores that this process may use; None: the config's, and Torch's own
            choice.
        pairs: Windows of the environment, each beside the engine alone.
        steps: Steps of a window; None: 4,096 environment steps, and at least 5 steps.
        warmup: Steps before anything is measured, in which timers and episodes get out of step with each other.
        action_std: Standard deviation of normal actions around zero, which are kept within their bounds.
        learner: Algorithm whose cost is measured; None: the task's own where one is installed; `"none"`: none.
        overrides: Texts `"path.to.field=value"`, with `learner.` in front of the learner's.
        seed: Of the environment, the actions, the ages of the first episodes and the learner.

    Raises:
        ConfigError: A value is out of its range, or an override contradicts another field.
    """

    task: str
    num_envs: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64, 512, 2048)
    backend: str = "mujoco"
    device: str = "cpu"
    threads: int | None = Field(default=None, ge=0)
    pairs: int = Field(default=30, ge=FEWEST)
    steps: int | None = Field(default=None, ge=1)
    warmup: int = Field(default=200, ge=0)
    action_std: float = Field(default=0.2, ge=0.0)
    learner: str | None = None
    overrides: tuple[str, ...] = ()
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        paths = parse_overrides(self.overrides)
        if "num_envs" in paths:
            raise ValueError("--set num_envs: --num-envs says the numbers of rows; leave --set num_envs out")
        if self.threads is not None and "sim.num_threads" in paths:
            raise ValueError(
                f"--threads {self.threads} and --set sim.num_threads={paths['sim.num_threads']}: "
                "both say the threads of the engine; leave one of them out"
            )
        if self.learner == "none" and (of_learner := [path for path in paths if path.startswith(_LEARNER)]):
            raise ValueError(
                f"--learner none and --set {of_learner[0]}: no learner is measured; leave one of them out"
            )
        return self

    def window(self, num_envs: int) -> int:
        """Returns the steps of a window."""
        return self.steps or max(_WINDOW_STEPS, _WINDOW_ROWS // num_envs)


@dataclass(frozen=True)
class BenchRow:
    """What was measured at one number of rows."""

    num_envs: int
    pairs: Pairs
    phases: dict[str, PhaseCost]
    counts: dict[str, StepCounts]
    transfers: dict[str, dict[str, float]]
    reset: ResetCost
    learner: LearnerCost | None


@dataclass(frozen=True)
class BenchReport:
    """All of a measurement.

    Attributes:
        cfg: What was asked for.
        machine: Where.
        engine_threads: Of the physics engine; 0: all cores.
        references: What the engine alone is, by what it leaves current.
        exact: Whether it came to the same states to the bit.
        rows: By number of rows, in the order asked for.
        above: Time above the engine as a line in the number of rows, µs per step; None for a single number.
        load: What others did meanwhile.
        notes: What could not be measured, and why.
        failure: At which number of rows it ended before its time, and why; empty where it did not.
    """

    cfg: BenchCfg
    machine: Machine
    engine_threads: int
    references: dict[Freshness, str]
    exact: bool
    rows: list[BenchRow]
    above: Line | None
    load: OtherLoad
    notes: list[str]
    failure: str = ""


class BenchStoppedError(RuntimeError):
    """A number of rows could not be measured; `report` holds those before it, `__cause__` is what happened."""

    def __init__(self, report: BenchReport) -> None:
        """Takes what was measured until then, whose `failure` is the message."""
        super().__init__(report.failure)
        self.report = report


def run_bench(cfg: BenchCfg, watch: Callable[[str], None] = lambda text: None) -> BenchReport:
    """Measures a task; `watch` is told what is being done.

    Learners come first, at all numbers of rows, each on an environment of its own: one that does not fit is refused
    before anything else is measured, and what is measured afterwards is the same with and without a learner.

    Raises:
        BenchStoppedError: At a later number of rows something of what follows here, or an interruption.
        UnknownNameError: No such task.
        ConfigError: An override is wrong, or a learner that was asked for does not fit.
        CapabilityError: The backend or device cannot do what the task needs, or has no snapshots.
        NotTheSameWorkError: The engine alone came to another state than the environment.
    """
    return _Bench(cfg, watch).run()


class _Bench:
    """The run of one measurement."""

    def __init__(self, cfg: BenchCfg, watch: Callable[[str], None]) -> None:
        self._cfg, self._watch = cfg, watch
        texts = parse_overrides(cfg.overrides)
        self._learner_overrides = {
            path.removeprefix(_LEARNER): value for path, value in texts.items() if path.startswith(_LEARNER)
        }
        self._overrides: dict[str, Any] = {
            path: value for path, value in texts.items() if not path.startswith(_LEARNER)
        }
        self._threads = len(usable_cores()) if cfg.threads == 0 else cfg.threads
        if self._threads is not None:
            self._overrides["sim.num_threads"] = self._threads
        self._task = get_task(cfg.task)
        self._parts = find_parts()
        self._notes: list[str] = []
        self._references: dict[Freshness, str] = {}
        self._exact = True
        self._engine_threads = 0

    def run(self) -> BenchReport:
        for num_envs in self._cfg.num_envs:  # all of them before anything is measured
            load_env_cfg(self._task.name, num_envs=num_envs, overrides=self._overrides)
        rows: list[BenchRow] = []
        with torch_threads(self._threads):
            self._load = MachineLoad()
            learners = [self._learner(num_envs) for num_envs in self._cfg.num_envs]
            for num_envs, learner in zip(self._cfg.num_envs, learners, strict=True):
                try:
                    rows.append(self._measure(num_envs, learner))
                except (Exception, KeyboardInterrupt) as error:
                    if not rows:
                        raise
                    failure = f"{num_envs} envs: {str(error) or type(error).__name__}"
                    raise BenchStoppedError(self._report(rows, failure)) from error
            return self._report(rows)

    def _report(self, rows: list[BenchRow], failure: str = "") -> BenchReport:
        """Returns what was measured, while Torch still has the threads that it was measured with."""
        return BenchReport(
            cfg=self._cfg,
            machine=describe_machine(self._cfg.device),
            engine_threads=self._engine_threads,
            references=self._references,
            exact=self._exact,
            rows=rows,
            above=_above(rows),
            load=self._load.so_far(),
            notes=self._notes,
            failure=failure,
        )

    def _build(self, num_envs: int) -> TorchEnv:
        self._watch(f"{num_envs} envs: building")
        return make_env(
            self._task.name,
            backend=self._cfg.backend,
            device=self._cfg.device,
            num_envs=num_envs,
            seed=self._cfg.seed,
            overrides=self._overrides,
        )

    def _measure(self, num_envs: int, learner: LearnerCost | None) -> BenchRow:
        cfg, generator = self._cfg, torch.Generator().manual_seed(self._cfg.seed)
        with closing(self._build(num_envs)) as env:
            self._engine_threads = env.cfg.sim.num_threads
            self._warm_up(env, generator)
            pairs = self._pairs(env, generator)
            steps = max(_COUNTED_STEPS, cfg.window(num_envs))
            self._watch(f"{num_envs} envs: phases")
            phases = measure_phases(env, list(self._draw(env, steps, generator)), self._parts)
            self._watch(f"{num_envs} envs: counts")
            counts, transfers = measure_counts(env, list(self._draw(env, _COUNTED_STEPS, generator)))
            self._watch(f"{num_envs} envs: resets")
            reset = measure_resets(env, pairs.step_us.value, generator)
            return BenchRow(num_envs, pairs, phases, counts, transfers, reset, learner)

    def _warm_up(self, env: TorchEnv, generator: torch.Generator) -> None:
        """Steps until rows are no longer alike: episodes of all ages, timers that run down at different times."""
        env.reset()
        ages = torch.randint(env.max_episode_length, (env.num_envs,), generator=generator)
        env.episode_length = ages.to(env.device)
        self._watch(f"{env.num_envs} envs: warming up")
        with torch.inference_mode():
            for action in self._draw(env, self._cfg.warmup, generator):
                env.step(action)

    def _draw(self, env: TorchEnv, steps: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """Draws actions of so many steps, (N, A) each, one after the other."""
        shape = (env.num_envs, env.num_actions)
        low, high = (bound.cpu() for bound in env.action_bounds)
        for _ in range(steps):
            action = torch.randn(shape, generator=generator) * self._cfg.action_std
            yield action.clamp(low, high).to(env.device)

    def _pairs(self, env: TorchEnv, generator: torch.Generator) -> Pairs:
        cfg, engines = self._cfg, dict[Freshness, BareEngine]()
        with ExitStack() as stack:
            for freshness in _FRESHNESS:
                engine = make_bare(
                    cfg.backend,
                    env.cfg.scene,
                    env.cfg.sim,
                    num_envs=env.num_envs,
                    device=cfg.device,
                    declared=env.declared,
                    freshness=freshness,
                    reads=env._io.keys,
                )
                if engine is not None:
                    engines[freshness] = stack.enter_context(closing(engine))
            self._references = {freshness: engine.label for freshness, engine in engines.items()}
            self._exact = all(engine.exact for engine in engines.values())
            return measure_pairs(
                env,
                engines,
                lambda: list(self._draw(env, cfg.window(env.num_envs), generator)),
                pairs=cfg.pairs,
                watch=lambda pair: self._watch(f"{env.num_envs} envs: pair {pair} of {cfg.pairs}"),
            )

    def _learner(self, num_envs: int) -> LearnerCost | None:
        """Returns what the learner costs on an environment of its own; a note says why there is none."""
        if self._cfg.learner == "none":
            return None
        # What was asked for must be there; the task's own learner is measured where that can be done.
        asked = self._cfg.learner is not None or bool(self._learner_overrides)
        with closing(self._build(num_envs)) as env:
            self._watch(f"{num_envs} envs: learner")
            try:
                cost = _learner_cost(self._parts, env, self._cfg, self._learner_overrides)
            except (ConfigError, CapabilityError) as error:
                if asked:
                    raise
                self._note(f"learner at {num_envs} envs: {error}")
                return None
        if cost is None:
            missing = self._missing_learner()
            if asked:
                raise missing
            self._note(str(missing))
        return cost

    def _missing_learner(self) -> ConfigError | CapabilityError:
        """Returns why no installed package measured a learner."""
        asked, paths = self._cfg.learner, self._learner_overrides
        option = (
            f"--learner {asked}" if asked else f"--set learner.{next(iter(paths))}" if paths else "learner"
        )
        if asked is None and not self._task.learners:
            return ConfigError(f"{option}: the task {self._task.name!r} has no learner")
        return CapabilityError(
            f"{option}: no installed package measures learners; install 'unilab-rl[cli,rsl-rl]>=2.0,<3'"
        )

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def _learner_cost(
    parts: Sequence[BenchPart], env: TorchEnv, cfg: BenchCfg, overrides: Mapping[str, Any]
) -> LearnerCost | None:
    """Returns what the first package says that has the learner."""
    task = get_task(cfg.task)
    costs = (part.learner(env, task, cfg.learner, overrides, seed=cfg.seed) for part in parts)
    return next((cost for cost in costs if cost is not None), None)


def _above(rows: Sequence[BenchRow]) -> Line | None:
    """Returns the time above the engine as a line in the number of rows, every number weighed by its interval."""
    if len({row.num_envs for row in rows}) < 2:
        return None
    above = [row.pairs.above_us("fresh") for row in rows]
    # An interval of no width would be a value without error, which no clock gives: a nanosecond is as good as any.
    errors = [max(1e-3, median.half_width) for median in above]
    return fit_line([row.num_envs for row in rows], [median.value for median in above], errors)
