"""Everything that is checked before a run continues, so that a bad file costs nothing, and what is then changed."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from unilab_rl.checkpoint import (
    Checkpoint,
    CheckpointError,
    list_checkpoints,
    load_checkpoint_with_replay,
    load_latest_checkpoint,
    replay_path,
)
from unilab_rl.manifest import installed_versions, thread_settings
from unilab_rl.metrics_log import check_metrics, set_aside_after
from unilab_rl.run_config import MISSING, BudgetCfg, RunConfig, config_changes
from unilab_rl.run_folder import RunFolder, RunFolderError

__all__ = ["Resume", "read_resume", "write_resume"]


@dataclass(frozen=True)
class Resume:
    """Where a run continues."""

    path: Path
    """The file of `checkpoint`."""
    checkpoint: Checkpoint
    """The state that the run continues from."""
    differences: tuple[str, ...] = ()
    """What decides bits and is not as it was when the checkpoint was written."""

    @property
    def kind(self) -> Literal["exact", "inexact", "warm"]:
        """`"exact"` goes on bit for bit; `"inexact"` does not, for `differences`; `"warm"` starts new episodes."""
        if self.checkpoint.env_state is None:
            return "warm"
        return "inexact" if self.differences else "exact"


def read_resume(folder: RunFolder, config: RunConfig, path: Path | None = None) -> Resume:
    """Reads a checkpoint of a run and checks it and every file of the run that resuming changes.

    Args:
        folder: The run.
        config: Its config.
        path: The checkpoint; by default the newest that isn't damaged, with a warning for each one passed over.

    Raises:
        CheckpointError: The checkpoint or its replay is damaged, or it was trained with another config.
        RunFolderError: Another file of the run is damaged or missing, or the run can't be written to.
    """
    if path is None:
        path, checkpoint = load_latest_checkpoint(folder.checkpoints, load_checkpoint_with_replay)
    else:
        checkpoint = load_checkpoint_with_replay(path)
    _check_same_config(folder, config, path, checkpoint)
    _resumes(folder)
    try:
        check_metrics(folder.metrics_path)
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{folder.metrics_path}: cannot be read ({error}); put the file back, an empty one loses the curves only"
        ) from error
    for place in (folder.path, folder.checkpoints):
        if not os.access(place, os.W_OK | os.X_OK):
            raise RunFolderError(f"{place}: no permission to write; copy the run to a place of your own")
    return Resume(path, checkpoint, tuple(_differences(folder, config, checkpoint)))


def write_resume(folder: RunFolder, start: Resume, budget: BudgetCfg) -> None:
    """Notes the resume in the manifest and takes what the run wrote later out of the way of `latest`."""
    entry = {
        "time": datetime.now().isoformat(timespec="seconds"),
        "kind": start.kind,
        "iteration": start.checkpoint.iteration,
        "env_steps": start.checkpoint.env_steps,
        "budget": str(budget),
        "versions": installed_versions(),
        "threads": thread_settings(),
    }
    folder.write_manifest(folder.manifest() | {"resumes": [*_resumes(folder), entry]})
    for path in list_checkpoints(folder.checkpoints):
        if int(path.stem.removeprefix("model_")) > start.checkpoint.iteration:
            _set_aside(path)
    set_aside_after(folder.metrics_path, start.checkpoint.iteration)


def _set_aside(path: Path) -> None:
    """Renames a checkpoint and its replay alike, so that both can be given their names back.

    Both get `.superseded`, or with the first number from 2 that neither's earlier copies have.
    """
    # The replay first: after a kill in between, a replay that is still there would be removed by the next save, while
    # the checkpoint is passed over, and gets the suffix of its replay when it is set aside itself.
    pair = [each for each in (replay_path(path), path) if each.exists()]
    suffix, number = ".superseded", 1
    while any(each.with_name(each.name + suffix).exists() for each in pair):
        number += 1
        suffix = f".superseded-{number}"
    for each in pair:
        each.rename(each.with_name(each.name + suffix))


def _check_same_config(folder: RunFolder, config: RunConfig, path: Path, checkpoint: Checkpoint) -> None:
    """Refuses what another config was trained with; the budget may change."""
    own = {**config.to_data(), "budget": None}
    named = {"task": checkpoint.task, "algorithm": checkpoint.algorithm}
    trained = {**checkpoint.config, **named, "budget": None}
    for place, now, then in config_changes(own, trained):
        raise CheckpointError(
            f"{path}: doesn't fit {folder.config_path}: {place} is {_short(now)} there, and the checkpoint was trained "
            f"with {_short(then)}; put back what was changed, or start a new run"
        )


def _short(value: object) -> str:
    return "missing" if value is MISSING else f"{reprlib.repr(value):.60}"


def _resumes(folder: RunFolder) -> list[dict[str, Any]]:
    """Returns the manifest's list of earlier resumes."""
    resumes: object = folder.manifest().get("resumes", [])
    if not isinstance(resumes, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("iteration"), int) for entry in resumes
    ):
        raise RunFolderError(
            f"{folder.manifest_path}: the entry 'resumes' is {resumes!r:.40}, expected a list of objects, each with "
            "its iteration"
        )
    return resumes


def _differences(folder: RunFolder, config: RunConfig, checkpoint: Checkpoint) -> Iterator[str]:
    if config.device.lower() != "cpu":
        yield f"device {config.device} repeats no bits"
    for name, now in installed_versions().items():
        then = checkpoint.versions.get(name)
        if name != "python" and now != then:
            yield f"{name} {then or 'not installed'} -> {now or 'not installed'}"
    # The process that wrote a checkpoint is the last one that began before it.
    writers = [entry for entry in _resumes(folder) if entry["iteration"] < checkpoint.iteration]
    threads: object = (writers[-1] if writers else folder.manifest()).get("threads")
    before = threads.get("torch") if isinstance(threads, dict) else None
    if before != thread_settings()["torch"]:
        yield f"torch threads {before} -> {thread_settings()['torch']}"
