"""The metrics of a run: one JSON object a line, one line an iteration."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, TextIO

from unilab_rl.contracts.algorithm import Iteration

__all__ = ["MetricsLog", "check_metrics", "set_aside_after"]


class MetricsLog:
    """Appends lines to `metrics.jsonl`; each is on disk as a whole line when `append` returns.

    The file is opened by the first `append`, so that a resumed run may trim it until then. Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(
        self, done: Iteration, *, iteration: int, env_steps: int, elapsed_s: float, resumed: str | None
    ) -> None:
        """Writes one line.

        Args:
            done: What the iteration did; a metric that isn't finite is written as null.
            iteration: Its number, from 1.
            env_steps: Environment steps of the run so far.
            elapsed_s: Wall-clock seconds of this process's training so far.
            resumed: `"exact"`, `"inexact"` or `"warm"` in the first line after a resume, else `None`.
        """
        record = {
            "iteration": iteration,
            "env_steps": env_steps,
            "elapsed_s": round(elapsed_s, 3),
            "collect_s": round(done.collect_s, 6),
            "learn_s": round(done.learn_s, 6),
            "resumed": resumed,
            "metrics": {key: value if math.isfinite(value) else None for key, value in done.metrics.items()},
        }
        if self._file is None:
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()


def check_metrics(path: Path) -> None:
    """Checks that `set_aside_after` will be able to read the file.

    Raises:
        OSError: It is missing or can't be read.
        UnicodeDecodeError: It is not UTF-8.
    """
    path.read_text(encoding="utf-8")


def set_aside_after(path: Path, iteration: int) -> int:
    """Moves the lines of later iterations to `<name>.superseded`, so that resuming doesn't write them twice.

    Returns:
        The number of lines moved; a last line that was cut off by a crash is one of them.
    """
    kept: list[str] = []
    later: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        number = _iteration_of(line)
        (kept if number is not None and number <= iteration else later).append(line + "\n")
    if later:
        with path.with_name(path.name + ".superseded").open("a", encoding="utf-8") as file:
            file.writelines(later)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        os.replace(temporary, path)
    return len(later)


def _iteration_of(line: str) -> int | None:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return None  # cut off by a crash
    number = record.get("iteration") if isinstance(record, dict) else None
    return number if isinstance(number, int) else None
