"""What differs between two runs: their configs, what they were made with, and how far they came."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unilab_rl.manifest import SCHEMA_VERSION
from unilab_rl.run_config import MISSING, RunConfig, config_changes
from unilab_rl.run_folder import RunFolder, RunFolderError

__all__ = ["CURVES", "Change", "Comparison", "Point", "RunFacts", "compare_runs"]

CURVES = ("Episode/return", "Eval/return")
"""The curves that are compared; higher is better in each."""


@dataclass(frozen=True)
class Point:
    """A value of a curve, and where it was reached."""

    value: float
    iteration: int
    env_steps: int


@dataclass(frozen=True)
class RunFacts:
    """One of the two runs."""

    folder: RunFolder
    config: RunConfig
    made_with: Mapping[str, Mapping[str, tuple[Any, ...]]]
    """`versions` and `threads`: by name, each different value in the order of the processes that trained the run."""
    num_resumes: int
    iterations: int
    env_steps: int
    curves: Mapping[str, tuple[Point, Point]]
    """The final and the best point of each curve that the run has."""

    @classmethod
    def read(cls, folder: RunFolder) -> RunFacts:
        """Reads a run's folder; no checkpoint is looked at.

        Raises:
            ConfigError: `config.yaml` is damaged, or of a task that isn't installed.
            RunFolderError: Another file is damaged or of another schema version.
        """
        config = folder.config()
        processes = _processes(folder)
        lines = folder.metrics()
        curves = {key: found for key in CURVES if (found := _ends(lines, key)) is not None}
        return cls(
            folder,
            config,
            {part: _values(folder, processes, part) for part in ("versions", "threads")},
            len(processes) - 1,
            lines[-1]["iteration"] if lines else 0,
            lines[-1]["env_steps"] if lines else 0,
            curves,
        )


@dataclass(frozen=True)
class Change:
    """A value that differs; `MISSING` where a run has none."""

    name: str
    first: object
    second: object


@dataclass(frozen=True)
class Comparison:
    """Two runs and what differs between them."""

    first: RunFacts
    second: RunFacts
    config: tuple[Change, ...]
    """By dotted path."""
    versions: tuple[Change, ...]
    """By distribution; each value a tuple, as in `RunFacts.made_with`."""
    threads: tuple[Change, ...]
    """By setting; each value a tuple, as in `RunFacts.made_with`."""

    def to_data(self) -> dict[str, Any]:
        """Returns plain data for JSON; a key `first` or `second` that a change lacks says that the run has no value."""
        runs = (self.first, self.second)
        return {
            "runs": [_facts(run) for run in runs],
            "config": [_change(change) for change in self.config],
            "versions": [_change(change) for change in self.versions],
            "threads": [_change(change) for change in self.threads],
            "curves": {
                key: [_curve(run.curves.get(key)) for run in runs]
                for key in CURVES
                if any(key in run.curves for run in runs)
            },
        }


def compare_runs(first: RunFolder, second: RunFolder) -> Comparison:
    """Reads two runs and compares them.

    Raises:
        ConfigError: As from `RunFacts.read`.
        RunFolderError: As from `RunFacts.read`.
    """
    one, two = RunFacts.read(first), RunFacts.read(second)

    def changes(own: object, other: object) -> tuple[Change, ...]:
        return tuple(Change(*found) for found in config_changes(own, other))

    def made_with(part: str) -> tuple[Change, ...]:
        own, other = one.made_with[part], two.made_with[part]
        names = [*own, *(name for name in other if name not in own)]
        pairs = ((name, own.get(name, MISSING), other.get(name, MISSING)) for name in names)
        return tuple(Change(*pair) for pair in pairs if pair[1] != pair[2])

    return Comparison(
        one,
        two,
        changes(one.config.to_data(), two.config.to_data()),
        made_with("versions"),
        made_with("threads"),
    )


def _processes(folder: RunFolder) -> list[Mapping[str, Any]]:
    """Returns what the manifest says of each process that trained the run: the first, then one for each resume."""
    manifest = folder.manifest()
    schema = manifest.get("schema_version")
    if schema != SCHEMA_VERSION:
        raise RunFolderError(
            f"{folder.manifest_path}: has schema_version {schema!r}, this version reads {SCHEMA_VERSION}; use the "
            "version of unilab-rl that wrote it"
        )
    resumes = manifest.get("resumes")
    if not isinstance(resumes, list) or not all(isinstance(entry, Mapping) for entry in resumes):
        raise RunFolderError(
            f"{folder.manifest_path}: the entry 'resumes' is {resumes!r:.40}, expected a list of objects"
        )
    return [manifest, *resumes]


def _values(folder: RunFolder, processes: list[Mapping[str, Any]], part: str) -> dict[str, tuple[Any, ...]]:
    """Returns, by name, each different value in the order of the processes."""
    found: dict[str, list[Any]] = {}
    for process in processes:
        entries = process.get(part)
        if not isinstance(entries, Mapping):
            raise RunFolderError(
                f"{folder.manifest_path}: the entry {part!r} is {entries!r:.40}, expected an object"
            )
        for name, value in entries.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: tuple(values) for name, values in found.items()}


def _ends(lines: list[dict[str, Any]], key: str) -> tuple[Point, Point] | None:
    points = list(_points(lines, key))
    # Of equal ones the first: there the run had learnt it.
    return (points[-1], max(points, key=lambda point: point.value)) if points else None


def _points(lines: list[dict[str, Any]], key: str) -> Iterator[Point]:
    for line in lines:
        value = line["metrics"].get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            yield Point(value, line["iteration"], line["env_steps"])


def _facts(run: RunFacts) -> dict[str, Any]:
    config = run.config
    return {
        "path": str(run.folder.path),
        "task": config.task,
        "algorithm": config.algorithm,
        "backend": config.backend,
        "device": config.device,
        "num_envs": config.num_envs,
        "seed": config.seed,
        "iterations": run.iterations,
        "env_steps": run.env_steps,
        "resumes": run.num_resumes,
    }


def _change(change: Change) -> dict[str, Any]:
    sides = {"first": change.first, "second": change.second}
    return {"name": change.name} | {side: value for side, value in sides.items() if value is not MISSING}


def _curve(ends: tuple[Point, Point] | None) -> dict[str, Any] | None:
    return (
        None if ends is None else {name: vars(end) for name, end in zip(("final", "best"), ends, strict=True)}
    )
