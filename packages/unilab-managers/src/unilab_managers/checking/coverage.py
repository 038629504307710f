"""What observations and rewards come to in many short episodes: random and zero actions, scattered starts, seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from unilab_core.errors import NonFiniteError
from unilab_core.state import TorchEnvState
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import Place, labelled, observed
from unilab_managers.checking.under_test import Drawn, StoppedError, TaskUnderTest, stopping
from unilab_managers.checking.variants import scattered, without_corruption
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.env_cfg import TermsCfg
from unilab_managers.managers.command_manager import CommandTerm

__all__ = ["Coverage", "check_constant_columns", "check_dead_rewards", "cover"]

_ULPS = 8.0 * torch.finfo(torch.float32).eps
"""Values that differ by no more than this share of them are the same but for rounding."""
_FAR = 2**40
"""A step counter that every stage of a curriculum lies before."""


@dataclass
class Coverage:
    """What was seen.

    Attributes:
        columns: Term and label of each observation column.
        low: (C,) smallest values.
        high: (C,) largest values.
        rewards: Reward to its smallest and largest addition, of those that had a weight.
        weighted: Rewards that had a weight at some time.
        steps: Steps of all rows together.
        points: Columns of observations whose command is drawn from a range without width.
    """

    columns: list[tuple[Place, str]] = field(default_factory=list)
    low: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    high: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    rewards: dict[str, tuple[float, float]] = field(default_factory=dict)
    weighted: set[str] = field(default_factory=set)
    steps: int = 0
    points: set[tuple[Place, str]] = field(default_factory=set)

    def see(self, env: ManagerBasedRlEnv, state: TorchEnvState | None) -> None:
        """Adds the present observations and, after a step, its final observations and rewards."""
        rows = [observed(env)]
        if state is not None:
            self.steps += env.num_envs
            if state.final_observation is not None:
                groups = env.observation_manager.labels()
                rows.append(torch.cat([state.final_observation[name] for name in groups], dim=1))
            self._see_rewards(env)
        low, high = torch.cat(rows).aminmax(dim=0)
        if not self.columns:
            self.columns, self.low, self.high = labelled(env), low.clone(), high.clone()
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)

    def _see_rewards(self, env: ManagerBasedRlEnv) -> None:
        for name, values in env.reward_manager.term_values().items():
            if env.reward_manager.get_weight(name) != 0.0:
                self.weighted.add(name)
                low, high = (float(value) for value in values.aminmax())
                before = self.rewards.get(name, (low, high))
                self.rewards[name] = min(low, before[0]), max(high, before[1])


def cover(task: TaskUnderTest) -> Coverage:
    """Drives the task, without noise, and returns what was seen.

    Raises:
        StoppedError: It failed in states that its own starts lead to.
    """
    coverage = Coverage()
    calm = without_corruption(task.cfg)
    brief = without_corruption(task.hurried)
    _drive(task, coverage, brief, 30, "random", task.seed)
    _drive(task, coverage, brief, 15, "zero", task.seed + 1)
    _drive(task, coverage, calm, 60, "random", task.seed + 2)
    try:
        _drive(task, coverage, scattered(brief), 40, "random", task.seed + 3)
    except StoppedError as error:
        # No start of the task's own leads there, so that it may well fail there.
        if not isinstance(error.__cause__, NonFiniteError):
            raise
    return coverage


def _drive(
    task: TaskUnderTest, coverage: Coverage, cfg: TermsCfg, steps: int, drawn: Drawn, seed: int
) -> None:
    with task.env(cfg, seed=seed) as env:
        with stopping("reset"):
            env.reset()
        coverage.see(env, None)
        coverage.points |= _points(env)
        task.run(env, steps, drawn, lambda state: coverage.see(env, state), seed=seed)
        if any(env.reward_manager.get_weight(name) == 0.0 for name in env.reward_manager.active_terms):
            # What a curriculum switches on late counts as well.
            env.import_training_state({"version": 1, "step_counter": _FAR})
            with stopping("reset at a late step"):
                env.reset()
            task.run(env, 3, drawn, lambda state: coverage.see(env, state), seed=seed)


def _points(env: ManagerBasedRlEnv) -> set[tuple[Place, str]]:
    """Returns the columns that show a command which is drawn from a range without width."""
    found: set[tuple[Place, str]] = set()
    columns = labelled(env)
    for group, terms in ((g, c.terms) for g, c in env.cfg.observations.items()):
        for name, cfg in terms.items():
            shown = [v for v in cfg.params.values() if isinstance(v, str) and v in env.cfg.commands]
            for command in shown:
                fixed = _fixed(env.command_manager.get_term(command))
                found |= {
                    (place, label)
                    for place, label in columns
                    if place == Place("observations", f"{group}/{name}") and _column(label) in fixed
                }
    return found


def _column(label: str) -> str:
    return label.partition("[")[2].partition("]")[0]


def _fixed(command: CommandTerm) -> set[str]:
    """Returns the columns of a command whose range has no width, by the label of the column."""
    data: dict[str, Any] = dict(command.cfg)
    read = getattr(getattr(command, "ranges", None), "read", None)
    ranges = data | (read() if callable(read) else {})
    fixed: set[str] = set()
    for label in command.labels:
        pair = ranges.get(label.strip("[]"))
        if isinstance(pair, tuple) and len(pair) == 2 and pair[0] == pair[1]:
            fixed.add(label)
    table = data.get("fixed")  # commands that rows hold in turn
    for label, column in zip(command.labels, zip(*table, strict=True), strict=True) if table else ():
        if len(set(column)) == 1:
            fixed.add(label)
    return fixed


# ---------------------------------------------------------------- checks


def _seen(task: TaskUnderTest) -> Coverage:
    """Returns what both checks judge; the task is driven once."""
    if "coverage" not in task.kept:
        task.kept["coverage"] = cover(task)
    seen: Coverage = task.kept["coverage"]
    return seen


def check_constant_columns(task: TaskUnderTest) -> list[Finding]:
    """Looks for observation columns that never change."""
    seen = _seen(task)
    still = (seen.high - seen.low) <= _ULPS * torch.maximum(seen.high.abs(), seen.low.abs())
    terms: dict[tuple[Place, bool], list[tuple[str, float]]] = {}
    for column in still.nonzero().flatten().tolist():
        place, label = seen.columns[column]
        terms.setdefault((place, (place, label) in seen.points), []).append((label, float(seen.low[column])))
    found: list[Finding] = []
    for (place, is_point), columns in terms.items():
        names = ", ".join(f"{label} = {value:.4g}" for label, value in columns[:6])
        more = f" and {len(columns) - 6} more" if len(columns) > 6 else ""
        if is_point:
            what, fix = (
                f"constant, for its command's range has no width: {names}{more}",
                "nothing, if that is meant",
            )
        else:
            what = f"constant in {seen.steps} steps, without noise: {names}{more}"
            fix = "take the column out, or find out why what it shows never changes"
        found.append(Finding("constant-columns", *place, what, fix, kind="note" if is_point else "finding"))
    return found


def check_dead_rewards(task: TaskUnderTest) -> list[Finding]:
    """Looks for rewards that are always zero, and for those without a weight that nothing gives one."""
    seen = _seen(task)
    found: list[Finding] = []
    for name, cfg in task.cfg.rewards.items():
        place = Place("rewards", name)
        if name not in seen.weighted:
            named = [c for c, term in task.cfg.curriculum.items() if _mentions(term.params, name)]
            fix = "take it out, give it a weight, or have a curriculum set one (mdp.reward_weight)"
            what = f"its weight is {cfg.weight:g} and stays so, so that it is never evaluated"
            if named:
                what, fix = (
                    f"its weight is 0 until curriculum {named[0]!r} changes it",
                    "nothing, if that is meant",
                )
            found.append(
                Finding("dead-rewards", *place, what, fix, kind="note" if bool(named) else "finding")
            )
        elif seen.rewards[name] == (0.0, 0.0):
            what = f"it was 0 in all of {seen.steps} steps"
            fix = "check its parameters, and whether what it looks at can happen in an episode"
            found.append(Finding("dead-rewards", *place, what, fix))
    return found


def _mentions(value: object, name: str) -> bool:
    """Whether a text is anywhere among parameters."""
    if isinstance(value, str):
        return value == name
    if hasattr(value, "items"):
        return any(_mentions(part, name) for pair in value.items() for part in pair)
    return isinstance(value, list | tuple) and any(_mentions(item, name) for item in value)
