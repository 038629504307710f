"""The folder of a run: made whole or not at all, found again by path or as `latest`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from unilab_core import nearest
from unilab_rl.atomic_write import write_atomically
from unilab_rl.run_config import RunConfig

__all__ = [
    "LATEST",
    "RunFolder",
    "RunFolderError",
    "check_writable",
    "command_line",
    "create_run_folder",
    "find_runs",
    "resolve_run",
]

LATEST = "latest"
_NAME = re.compile(r"(?P<stamp>\d{8}-\d{6})-(?P<rest>.+?-s\d+)(?:-(?P<copy>\d+))?")


def command_line(*arguments: object) -> str:
    """Returns what to type to run `unilab` with these arguments, in the way in which it was run this time.

    A launcher that puts something in front of `unilab`, as dev.py does, says so in the environment variable
    UNILAB_COMMAND.
    """
    return f"{os.environ.get('UNILAB_COMMAND') or 'unilab'} {shlex.join(map(str, arguments))}"


class RunFolderError(ValueError):
    """A run can't be found or a folder for it can't be made; the message says what to do."""


@dataclass(frozen=True)
class RunFolder:
    """Where the parts of one run lie."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The complete, re-runnable config."""
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One JSON object a line, one line an iteration."""
        return self.path / "metrics.jsonl"

    @property
    def manifest_path(self) -> Path:
        """Where and with what the run was made."""
        return self.path / "manifest.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of `model_<iteration>.pt`, and of `model_<iteration>.replay` where the replay is saved."""
        return self.path / "checkpoints"

    @property
    def videos(self) -> Path:
        """The folder of recorded videos."""
        return self.path / "videos"

    def config(self) -> RunConfig:
        """Returns the run's config; a `ConfigError` names the file."""
        return RunConfig.read(self.config_path)

    def manifest(self) -> dict[str, Any]:
        """Returns the manifest.

        Raises:
            RunFolderError: It is missing or no JSON object.
        """
        try:
            data = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.manifest_path}: cannot be read ({error})") from error
        if not isinstance(data, dict):
            raise RunFolderError(f"{self.manifest_path}: holds a {type(data).__name__}, expected an object")
        return data

    def metrics(self) -> list[dict[str, Any]]:
        """Returns the lines of metrics, oldest first; a last line that was cut off by a crash is left out.

        Raises:
            RunFolderError: The file is missing, or another line is no JSON object with its iteration, env steps and
                metrics.
        """
        try:
            lines = self.metrics_path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.metrics_path}: cannot be read ({error})") from error
        return [_metrics_line(self.metrics_path, *numbered) for numbered in enumerate(lines[:-1], 1)]

    def has_checkpoint(self) -> bool:
        """Returns whether there is anything to resume or to measure."""
        return any(self.checkpoints.glob("model_*.pt"))

    def discard_unused(self) -> bool:
        """Removes the folder, unless it holds a checkpoint or a line of metrics; returns whether it did."""
        used = self.has_checkpoint() or (self.metrics_path.is_file() and self.metrics_path.stat().st_size > 0)
        if not used:
            shutil.rmtree(self.path, ignore_errors=True)
        return not used

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replaces the manifest atomically."""
        text = json.dumps(manifest, indent=2, allow_nan=False) + "\n"
        write_atomically(self.manifest_path, lambda file: file.write(text.encode()))


def _metrics_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record: object = json.loads(line)
    except ValueError as error:
        raise RunFolderError(f"{path}: line {number} is no JSON ({error}); remove it") from error
    wanted = {"iteration": int, "env_steps": int, "metrics": dict}
    if not isinstance(record, dict) or not all(
        isinstance(record.get(key), kind) for key, kind in wanted.items()
    ):
        raise RunFolderError(
            f"{path}: line {number} is {line!r:.60}, expected an object with {', '.join(wanted)}"
        )
    return record


def check_writable(root: Path) -> None:
    """Checks, without writing, that a folder can probably be made below `root`.

    Raises:
        RunFolderError: Something in its path is a file or can't be written to.
    """
    place = root
    while not place.exists() and not place.is_symlink() and place != place.parent:
        place = place.parent
    if not place.exists():
        raise _unwritable(root, f"{place} is a link to a place that isn't there")
    if not place.is_dir():
        raise _unwritable(root, f"{place} is a file")
    if not os.access(place, os.W_OK | os.X_OK):
        raise _unwritable(root, f"no permission to write in {place}")


def create_run_folder(
    root: Path, config: RunConfig, manifest: Mapping[str, Any], *, now: datetime
) -> RunFolder:
    """Makes `root/<task>/<YYYYMMDD-HHMMSS>-<algorithm>-s<seed>[-2]` with config, manifest and empty folders.

    The folder appears under its name when it is complete. A name that is taken, even at the same moment by another
    process, gets the next number.

    Raises:
        RunFolderError: The place can't be written; nothing is left behind.
    """
    parent = root / config.task
    made = _missing_folders(parent)
    draft = parent / f".{uuid.uuid4().hex}.tmp"
    try:
        draft.mkdir(parents=True)
        folder = RunFolder(draft)
        folder.config_path.write_text(config.to_yaml(), encoding="utf-8")
        folder.write_manifest(manifest)
        folder.metrics_path.touch()
        folder.checkpoints.mkdir()
        folder.videos.mkdir()
        return RunFolder(
            _rename_to_free_name(draft, f"{now:%Y%m%d-%H%M%S}-{config.algorithm}-s{config.seed}")
        )
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        for empty in made:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
        if isinstance(error, OSError):
            raise _unwritable(root, str(error)) from error
        raise


def find_runs(root: Path) -> list[RunFolder]:
    """Returns the runs of all tasks below `root`, oldest first."""
    found = []
    for config_path in root.glob("*/*/config.yaml"):
        match = _NAME.fullmatch(config_path.parent.name)
        if match is not None:
            age = (match["stamp"], int(match["copy"] or 1), config_path.stat().st_mtime_ns)
            found.append((age, config_path.parent))
    return [RunFolder(path) for _, path in sorted(found)]


def resolve_run(run: str, root: Path) -> tuple[RunFolder, Path | None]:
    """Finds a run.

    Args:
        run: `latest` (the newest with a checkpoint below `root`, over all tasks), a run's folder, or one of its
            checkpoints.
        root: The folder of all runs.

    Returns:
        The run, and the checkpoint where one was named.

    Raises:
        RunFolderError: There is no such run; the message names the nearest.
    """
    runs = find_runs(root)
    if run == LATEST:
        if not runs:
            raise RunFolderError(f"no runs below {str(root)!r} yet; {_advice()}")
        return next((folder for folder in reversed(runs) if folder.has_checkpoint()), runs[-1]), None
    path = Path(run)
    if path.is_file() and path.suffix == ".pt" and (path.parent.parent / "config.yaml").is_file():
        return RunFolder(path.parent.parent), path
    if (path / "config.yaml").is_file():
        return RunFolder(path), None
    if path.exists():
        raise RunFolderError(
            f"{run!r} is not a run: a run is a folder with config.yaml, or a checkpoint in one"
        )
    raise RunFolderError(f"no run {run!r}; {_suggestion(run, runs)}")


def _suggestion(run: str, runs: list[RunFolder]) -> str:
    if not runs:
        return _advice()
    return nearest(run, [*(str(folder.path) for folder in runs[-12:]), LATEST])


def _advice() -> str:
    return f"make one with: {command_line('train', 'TASK')}"


def _missing_folders(parent: Path) -> list[Path]:
    """Returns the folders that making `parent` will make, innermost first."""
    missing = []
    while not parent.exists() and parent != parent.parent:
        missing.append(parent)
        parent = parent.parent
    return missing


def _rename_to_free_name(draft: Path, name: str) -> Path:
    """Renames a complete folder; the number rises until no other run holds the name."""
    for copy in range(1, 1000):
        target = draft.with_name(name if copy == 1 else f"{name}-{copy}")
        try:
            # Renaming onto an existing folder succeeds only if that one is empty, which no run is.
            draft.rename(target)
        except OSError:
            if not target.exists():
                raise
            continue
        return target
    raise FileExistsError(f"a thousand runs are called {name}")


def _unwritable(root: Path, reason: str) -> RunFolderError:
    return RunFolderError(
        f"cannot make a run folder below {str(root)!r}: {reason}; choose another place with --runs DIR"
    )
