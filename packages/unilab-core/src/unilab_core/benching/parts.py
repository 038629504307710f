"""What a layer above adds to a measurement: phases of its own, and what a learner costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from unilab_core.errors import PLUGIN_FAILURES, plugin_problem

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_core.registry import TaskSpec

__all__ = ["BenchPart", "LearnerCost", "Phase", "find_parts"]

_LOGGER = logging.getLogger(__name__)

GROUP = "unilab.bench"


@dataclass(frozen=True)
class Phase:
    """Methods of one object whose time is summed under one name.

    Attributes:
        name: What they do, in a word or two; phases of equal names are summed.
        owner: The object.
        methods: Names of methods of its class.
        scope: Whether what runs inside is told apart from the same phases elsewhere: `"reset.events"`.
    """

    name: str
    owner: object
    methods: tuple[str, ...]
    scope: bool = False


@dataclass(frozen=True)
class LearnerCost:
    """What learning adds to stepping; all times per step of all rows, of a policy that has hardly learnt anything.

    Attributes:
        algorithm: Its name.
        steps_per_iteration: Steps of all rows between two updates.
        policy_us: The deterministic policy on one batch of observations, µs.
        collect_us: What collecting costs beside the step of the environment: acting, values, storing, µs.
        learn_us: The update, shared among the steps of its iteration, µs.
        env_steps_per_s: Environment steps of all rows per second of training.
    """

    algorithm: str
    steps_per_iteration: int
    policy_us: float
    collect_us: float
    learn_us: float
    env_steps_per_s: float


class BenchPart:
    """What one package adds; made without arguments from an entry point of the group `unilab.bench`."""

    def phases(self, env: TorchEnv) -> Sequence[Phase]:
        """Returns phases of an environment; none if it is of no kind that this package knows."""
        del env
        return ()

    def learner(
        self,
        env: TorchEnv,
        task: TaskSpec,
        algorithm: str | None,
        overrides: Mapping[str, Any],
        *,
        seed: int,
    ) -> LearnerCost | None:
        """Returns what a learner of the task costs on `env`, which it resets and steps; None: this package has none.

        Args:
            env: Built from the task.
            task: Says the learners' configs.
            algorithm: Which learner; None: the task's own.
            overrides: Dotted path to value of the learner's config.
            seed: Of the learner.

        Raises:
            ConfigError: The task has no such learner, its config is wrong or does not fit the number of rows.
            CapabilityError: Something that the learner needs is not installed.
        """
        del env, task, algorithm, overrides, seed
        return None


def find_parts() -> list[BenchPart]:
    """Returns what the installed packages add; one that cannot be loaded is named in the log and left out."""
    parts = []
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            part = entry.load()()
            if not isinstance(part, BenchPart):
                raise TypeError(f"it makes a {type(part).__name__}, expected a BenchPart")
        except PLUGIN_FAILURES as error:
            _LOGGER.warning("%s; it is left out", plugin_problem(entry, error))
        else:
            parts.append(part)
    return parts
