"""Tasks by name. Metadata only: listing tasks imports neither torch nor an engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from unilab_core.errors import PLUGIN_FAILURES, UnknownNameError, nearest, plugin_problem

__all__ = ["TaskSpec", "get_task", "list_tasks", "register_task"]

_LOGGER = logging.getLogger(__name__)

GROUP = "unilab.tasks"


@dataclass(frozen=True)
class TaskSpec:
    """One registered task.

    Attributes:
        name: Short, lower case, with hyphens.
        env_cfg: `"package.module:function"` that returns the environment config.
        learners: Algorithm name to `"package.module:function"` that returns its learner config.
        default_learner: The algorithm used when none is asked for.
        summary: One line for `unilab list`.
        evaluation: `"package.module:function"` that turns the task's environment config into the one that `unilab eval`
            measures on (no noise, no pushes, fixed commands ...); empty: the training config itself.
    """

    name: str
    env_cfg: str
    learners: Mapping[str, str] = field(default_factory=dict)
    default_learner: str = "ppo"
    summary: str = ""
    evaluation: str = ""


class _Registry:
    """The process's tasks; packages fill it when it is first asked."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskSpec] = {}
        self._called: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        self._complete = False

    def load(self) -> list[str]:
        """Lets every package register that has not yet; returns what went wrong, which is logged once.

        A package that fails adds no task and keeps none of another package from being found. It is asked again every
        time, so that its problem can be named whenever a task is missing.
        """
        problems: list[str] = []
        if self._complete:
            return problems
        for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
            key = entry.name, entry.value
            if key in self._called:
                continue
            before = dict(self.tasks)
            try:
                entry.load()()
            except PLUGIN_FAILURES as error:
                self.tasks = before
                problems.append(plugin_problem(entry, error))
            else:
                self._called.add(key)
        for problem in problems:
            if problem not in self._told:
                _LOGGER.warning("%s; its tasks are left out", problem)
                self._told.add(problem)
        self._complete = not problems
        return problems


_REGISTRY = _Registry()


def register_task(spec: TaskSpec) -> None:
    """Adds a task. Packages do so from the callable that their entry point in group `unilab.tasks` names.

    Raises:
        ValueError: The name is not lower case, another task has it, or a function is not named `"module:function"`.
    """
    if spec.name != spec.name.lower() or not spec.name.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"register_task: name {spec.name!r}; expected lower-case letters, digits, hyphens")
    functions = {"env_cfg": spec.env_cfg, **{f"learners[{name!r}]": f for name, f in spec.learners.items()}}
    if spec.evaluation:
        functions["evaluation"] = spec.evaluation
    for field_name, function in functions.items():
        module, colon, attribute = function.partition(":")
        if not (module and colon and attribute):
            raise ValueError(
                f"register_task: {spec.name!r}: {field_name} is {function!r}, expected 'package.module:function'"
            )
    known = _REGISTRY.tasks.get(spec.name)
    if known is not None and known != spec:
        raise ValueError(f"register_task: {spec.name!r} is taken by {known.env_cfg}")
    _REGISTRY.tasks[spec.name] = spec


def list_tasks() -> tuple[TaskSpec, ...]:
    """Returns every registered task, by name. A package that cannot register is named in the log and left out."""
    _REGISTRY.load()
    return tuple(_REGISTRY.tasks[name] for name in sorted(_REGISTRY.tasks))


def get_task(name: str) -> TaskSpec:
    """Returns a task by its name, whatever its case.

    Raises:
        UnknownNameError: There is none of that name; a KeyError that lists the nearest, and the packages that could not
            register theirs.
    """
    problems = _REGISTRY.load()
    spec = _REGISTRY.tasks.get(name.lower())
    if spec is None:
        hint = nearest(name, _REGISTRY.tasks)
        missing = "".join(f"; {problem}" for problem in problems)
        raise UnknownNameError(f"unknown task {name!r}; {hint} (`unilab list` shows all tasks){missing}")
    return spec
