"""The one checkpoint envelope of every algorithm: written atomically, read without running code."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from unilab_core import nearest

__all__ = [
    "FORMAT",
    "Checkpoint",
    "CheckpointError",
    "checkpoint_name",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "save_checkpoint",
]

FORMAT = "unilab-rl/1"
_NAME = re.compile(r"model_(\d+)\.pt")


class CheckpointError(ValueError):
    """A checkpoint cannot be read or doesn't fit; the message names the file and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to continue; plain data and tensors only."""

    algorithm: str
    """Name of the algorithm that wrote it."""
    task: str
    """Name of the task."""
    iteration: int
    """Completed iterations; a resumed run does the next."""
    env_steps: int
    """Environment steps taken so far, summed over rows."""
    learner: dict[str, Any]
    """Parameters and buffers, normalisers excepted."""
    optimizer: dict[str, Any]
    """State of every optimiser."""
    normalizer: dict[str, Any]
    """Statistics of the normalisers."""
    env_training_state: dict[str, Any]
    """`{"version": 1, "step_counter": n}`."""
    env_state: dict[str, Any] | None
    """Everything in the environment, or `None`: then the run continues from a reset ("warm")."""
    rng: dict[str, Any]
    """States of the learner's random generators."""
    config: dict[str, Any]
    """The run's complete config as plain data."""
    versions: dict[str, Any]
    """Versions of what wrote it."""


_TYPES: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "algorithm": (str,),
    "task": (str,),
    "iteration": (int,),
    "env_steps": (int,),
    "learner": (dict,),
    "optimizer": (dict,),
    "normalizer": (dict,),
    "env_training_state": (dict,),
    "env_state": (dict, type(None)),
    "rng": (dict,),
    "config": (dict,),
    "versions": (dict,),
}


def checkpoint_name(iteration: int) -> str:
    """Returns the file name of the checkpoint after `iteration` completed iterations."""
    return f"model_{iteration}.pt"


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints in `folder` by rising iteration; unfinished files (`.tmp`) are not among them."""
    found = [
        (int(match[1]), path) for path in folder.glob("model_*.pt") if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def latest_checkpoint(folder: Path) -> Path:
    """Returns the checkpoint of the highest iteration in `folder`.

    Raises:
        CheckpointError: There is none.
    """
    found = list_checkpoints(folder)
    if not found:
        raise CheckpointError(f"{folder}: no checkpoint (model_<iteration>.pt) in it yet; train first")
    return found[-1]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint so that `path` holds the old file, or none, until the new one is complete.

    Raises:
        OSError: The place can't be written or is full; nothing is left behind.
    """
    envelope = {"format": FORMAT} | {
        field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)
    }
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(envelope, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint, tensors on the CPU, without running any code that the file may hold.

    Raises:
        CheckpointError: There is no such file; it is empty, cut off or no checkpoint of ours; it is of another
            format version; or an entry is missing, unknown or of the wrong type.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint{_advice(path)}")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path}: the file is empty{_advice(path)}")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path}: cut off, or not a checkpoint{_advice(path)}")
    try:
        envelope = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path}: damaged, or not a checkpoint of unilab-rl ({reason}){_advice(path)}"
        ) from error
    return _checked(path, envelope)


def _checked(path: Path, envelope: object) -> Checkpoint:
    given = envelope.get("format") if isinstance(envelope, Mapping) else None
    if not isinstance(envelope, Mapping) or not isinstance(given, str) or not given.startswith("unilab-rl/"):
        raise CheckpointError(
            f"{path}: written by something else, not a checkpoint of unilab-rl{_advice(path)}"
        )
    if given != FORMAT:
        raise CheckpointError(
            f"{path}: has format {given!r}, this version reads {FORMAT!r}; use the version of unilab-rl that wrote it"
        )
    for key in envelope:
        if key not in _TYPES:
            raise CheckpointError(
                f"{path}: unknown entry {key!r}; {nearest(str(key), _TYPES)}{_advice(path)}"
            )
    for key, types in _TYPES.items():
        if key not in envelope:
            raise CheckpointError(f"{path}: the entry {key!r} is missing{_advice(path)}")
        value = envelope[key]
        negative = isinstance(value, int) and value < 0
        if not isinstance(value, types) or isinstance(value, bool) or negative:
            expected = " or ".join("a count" if kind is int else kind.__name__ for kind in types)
            raise CheckpointError(
                f"{path}: the entry {key!r} is {value!r:.40}, expected {expected}{_advice(path)}"
            )
    return Checkpoint(**{field.name: envelope[field.name] for field in fields(Checkpoint)})


def _advice(path: Path) -> str:
    """Names the newest other checkpoint that lies beside a bad one."""
    match = _NAME.fullmatch(path.name)
    below = [
        other
        for other in list_checkpoints(path.parent)
        if match is None or int(_NAME.fullmatch(other.name)[1]) < int(match[1])  # type: ignore[index]
    ]
    return f"; use the older {below[-1]}" if below else ""


def _sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
