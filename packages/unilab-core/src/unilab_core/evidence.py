"""Which task is known to run on which backend, and which algorithm is known to learn it there.

A package ships what was recorded of its tasks as JSON files in a folder, and names the folder in the entry-point group
`unilab.evidence`. What no file tells is "not shown". Nothing here imports Torch or an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from unilab_core.errors import ConfigError
from unisim.evidence import read_recorded

__all__ = ["Combination", "Level", "TaskEvidence", "combinations", "find_task_evidence"]

GROUP = "unilab.evidence"

Level = Literal["trained", "runs", "not shown", "not supported"]
"""The algorithm trained the task to its bar; the environment was built, stepped and reset, which says nothing of an
algorithm; nothing is recorded; the backend refused the task."""

_Outcome = Literal["runs", "not supported"]


@dataclass(frozen=True)
class TaskEvidence:
    """What is recorded of one task on one backend and one kind of device.

    Attributes:
        outcome: Whether the environment ran there or the backend refused it; None: nobody tried.
        reason: Why it was refused.
        trained: The algorithms that trained it to its bar there.
        versions: Of the distributions that the environment ran with.
    """

    outcome: _Outcome | None = None
    reason: str = ""
    trained: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)

    def level(self, algorithm: str) -> Level:
        """Returns what is known of the task with one algorithm."""
        if algorithm in self.trained:
            return "trained"
        return self.outcome or "not shown"


@dataclass(frozen=True)
class Combination:
    """One task on one backend and kind of device with one algorithm; empty: of a task without learners."""

    backend: str
    device: str
    algorithm: str
    evidence: TaskEvidence

    @property
    def level(self) -> Level:
        """What is known of it."""
        return self.evidence.level(self.algorithm)


Recorded = dict[tuple[str, str, str], TaskEvidence]
"""By task, backend and device type."""


def find_task_evidence() -> Recorded:
    """Returns the recorded evidence of all installed packages.

    Raises:
        ConfigError: A file is no evidence, or tells again what another one tells.
        TypeError: An entry point names no folder.
    """
    found: Recorded = {}
    for where, content in read_recorded(GROUP):
        missing = {"backend", "device", "versions", "tasks", "trained"} - set(content)
        if missing:
            raise ConfigError(f"{where}: lacks {sorted(missing)}")
        for task in sorted({*content["tasks"], *content["trained"]}):
            key = task, content["backend"], content["device"]
            if key in found:
                raise ConfigError(
                    f"{where}: another file tells of task {key[0]!r} on {key[1]!r} on {key[2]} too"
                )
            found[key] = _parse(where, task, content)
    return found


def _parse(where: str, task: str, content: Mapping[str, Any]) -> TaskEvidence:
    ran = content["tasks"].get(task, {})
    outcome = ran.get("outcome")
    if ran and outcome not in get_args(_Outcome):
        raise ConfigError(
            f"{where}: task {task!r}: outcome {outcome!r}, expected one of {get_args(_Outcome)}"
        )
    trained = frozenset(content["trained"].get(task, {}))
    return TaskEvidence(outcome, ran.get("reason", ""), trained, content["versions"])


def combinations(
    task: str, algorithms: Sequence[str], devices: Mapping[str, Sequence[str]], recorded: Recorded
) -> list[Combination]:
    """Returns every combination of one task with what is known of it, backend by backend.

    Args:
        task: Its name.
        algorithms: Those that it has settings for.
        devices: The device types of each backend.
        recorded: What `find_task_evidence` returned.
    """
    return [
        Combination(backend, device, algorithm, recorded.get((task, backend, device), TaskEvidence()))
        for backend, accepted in devices.items()
        for device in accepted
        for algorithm in algorithms or ("",)
    ]
