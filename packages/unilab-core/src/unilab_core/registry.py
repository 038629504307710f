"""Tasks by name. Metadata only: listing tasks imports neither torch nor an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from unilab_core.errors import UnknownNameError, nearest

__all__ = ["TaskSpec", "get_task", "list_tasks", "register_task"]

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
        self.loaded = False

    def load(self) -> None:
        if not self.loaded:
            for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
                entry.load()()
            self.loaded = True  # only now: a package that fails does so every time, not once


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
    """Returns every registered task, by name."""
    _REGISTRY.load()
    return tuple(_REGISTRY.tasks[name] for name in sorted(_REGISTRY.tasks))


def get_task(name: str) -> TaskSpec:
    """Returns a task by its name, whatever its case.

    Raises:
        UnknownNameError: There is none of that name; a KeyError that lists the nearest.
    """
    _REGISTRY.load()
    spec = _REGISTRY.tasks.get(name.lower())
    if spec is None:
        hint = nearest(name, _REGISTRY.tasks)
        raise UnknownNameError(f"unknown task {name!r}; {hint} (`unilab list` shows all tasks)")
    return spec
