"""The one checkpoint envelope of every algorithm: written atomically, read without running code."""

from __future__ import annotations

import logging
import pickle
import re
import reprlib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from unilab_core import nearest
from unilab_rl import replay_file
from unilab_rl.atomic_write import TEMPORARY_SUFFIX, write_atomically
from unilab_rl.contracts.replay import ReplayContents
from unilab_rl.torch_archive import check_archive

__all__ = [
    "FORMAT",
    "Checkpoint",
    "CheckpointError",
    "DamagedCheckpointError",
    "checkpoint_name",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "load_checkpoint_with_replay",
    "load_latest_checkpoint",
    "remove_old_checkpoints",
    "replay_path",
    "save_checkpoint",
]

FORMAT = "unilab-rl/1"
_NAME = re.compile(r"model_(\d+)\.pt")
_SUFFIX = ".pt"
_REPLAY_SUFFIX = ".replay"
_REPLAY_NAME = re.compile(r"model_\d+\.replay")
_UNFINISHED_NAME = re.compile(rf"model_\d+\.(pt|replay){re.escape(TEMPORARY_SUFFIX)}")
_REPLAY = "replay"
_IN_A_FILE = {"format", "sha256"}
_logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint cannot be read or doesn't fit; the message names the file and what to do."""


class DamagedCheckpointError(CheckpointError):
    """A file is cut off, altered, malformed or no checkpoint at all, so that an older one is the better choice."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to continue; plain data and tensors only, with one exception.

    The exception: `learner["replay"]` may be `ReplayContents`, which lie in a file of their own, at `replay_path`. The
    checkpoint's own file has the format and the SHA-256 of that file in their place. Those of a replay in memory are
    read once, when the checkpoint is saved or loaded; a replay that went on meanwhile is taken back to them then.
    """

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


def replay_path(path: Path) -> Path:
    """Returns where the replay of the checkpoint at `path` lies, if it has one."""
    return path.with_suffix(_REPLAY_SUFFIX)


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints in `folder` by rising iteration; unfinished files (`.tmp`) are not among them."""
    found = [
        (int(match[1]), path) for path in folder.glob("model_*.pt") if (match := _NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def latest_checkpoint(folder: Path) -> Path:
    """Returns the checkpoint of the highest iteration in `folder`, unread.

    Raises:
        CheckpointError: There is none.
    """
    found = list_checkpoints(folder)
    if not found:
        raise CheckpointError(f"{folder}: no checkpoint (model_<iteration>.pt) in it yet; train first")
    return found[-1]


def load_latest_checkpoint(
    folder: Path, load: Callable[[Path], Checkpoint] | None = None
) -> tuple[Path, Checkpoint]:
    """Reads the checkpoint of the highest iteration in `folder` that isn't damaged.

    Each damaged one that it passes over is a warning, which names the one that is used instead.

    Args:
        folder: The folder.
        load: Reads one; by default `load_checkpoint`.

    Returns:
        The file and what it holds.

    Raises:
        CheckpointError: There is none, or it is of another format version.
        DamagedCheckpointError: Every one is damaged; the message is of the newest.
    """
    latest_checkpoint(folder)
    failures: list[DamagedCheckpointError] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            checkpoint = (load or load_checkpoint)(path)
        except DamagedCheckpointError as error:
            failures.append(error)
            continue
        for failure in failures:
            _logger.warning("%s", failure)
        if failures:
            _logger.warning("taking %s instead, of iteration %d", path, checkpoint.iteration)
        return path, checkpoint
    if len(failures) > 1:
        failures[0].add_note(f"the other {len(failures) - 1} checkpoints of {folder} are damaged as well")
    raise failures[0]


def remove_old_checkpoints(folder: Path, keep: int, *, spare: Path | None = None) -> list[Path]:
    """Removes all but the newest checkpoints in `folder`, with their replays; those of other names stay.

    Args:
        folder: The folder.
        keep: How many stay, at least 1; 0 keeps all.
        spare: One that stays in any case, and counts like the others.

    Returns:
        The checkpoints that were removed. What can't be removed is a warning.

    Raises:
        ValueError: `keep` is negative.
    """
    if keep < 0:
        raise ValueError(f"keep is {keep}, expected 0 for all or how many checkpoints to keep")
    removed = []
    for path in list_checkpoints(folder)[:-keep] if keep else []:
        if spare is not None and spare.exists() and path.samefile(spare):
            continue
        # The replay last: without its checkpoint it is a remnant, a checkpoint without its replay would be damaged.
        if _remove(path, "an old checkpoint"):
            removed.append(path)
            _remove(replay_path(path), "an old replay")
    return removed


def _remove_remnants(folder: Path) -> None:
    """Removes what a save or a removal that was killed left in `folder`: unfinished files, replays of no checkpoint."""
    names = {path.name for path in folder.iterdir()}
    for name in names:
        if _UNFINISHED_NAME.fullmatch(name):
            _remove(folder / name, "an unfinished file")
        elif _REPLAY_NAME.fullmatch(name) and f"{name.removesuffix(_REPLAY_SUFFIX)}{_SUFFIX}" not in names:
            _remove(folder / name, "a replay without a checkpoint")


def _remove(path: Path, what: str) -> bool:
    """Removes a file, if it is there, and returns whether it is gone; a failure is a warning."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _logger.warning("%s: %s can't be removed: %s", path, what, error)
        return False
    return True


class _Disk:
    """What `torch.save` writes to. It remembers a failure, which torch's writer covers with one of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        self._file.flush()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint so that `path` holds the old file, or none, until the new one is complete.

    A replay is written first, to `replay_path(path)`, so a checkpoint that is there has its replay. One in memory that
    went on since the checkpoint was made is taken back to that moment and stays there, as `ReplayContents` says. What
    an earlier save in this folder left behind when it was killed is removed.

    Raises:
        ValueError: The checkpoint has a replay, and `path` doesn't end in `.pt`.
        FileExistsError: The checkpoint has a replay and `path` exists: two files can't be replaced at once.
        ReplayGoneError: The replay was loaded anew, or taken back farther, so its contents are gone.
        OSError: The place can't be written or is full; nothing new is left behind. Or all is written, and the folder
            can't be synchronised: then `path` holds the new checkpoint, with its replay.
    """
    _remove_remnants(path.parent)
    envelope = {"format": FORMAT} | {
        field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)
    }
    contents = checkpoint.learner.get(_REPLAY)
    if not isinstance(contents, ReplayContents):
        write_atomically(path, lambda file: _write(envelope, file))
        return
    if path.suffix != _SUFFIX:  # or two checkpoints would share one replay, or one would be its own
        raise ValueError(f"{path}: a checkpoint with a replay must be named <name>{_SUFFIX}")
    if path.exists():
        raise FileExistsError(f"{path}: is there already; remove it, or save to another name")
    beside, state = replay_path(path), contents.restore()
    was_there = beside.exists()  # somebody's, of whom nothing else is known
    try:
        digest = replay_file.write_replay_file(beside, state)
        named = {"format": replay_file.FORMAT, "sha256": digest}
        envelope["learner"] = {**checkpoint.learner, _REPLAY: named}
        write_atomically(path, lambda file: _write(envelope, file))
    except BaseException:
        # What fails or is interrupted after the rename leaves a checkpoint, which needs its replay.
        if not was_there and not path.exists():
            _remove(beside, "a replay without a checkpoint")
        raise


def _write(envelope: dict[str, Any], file: BinaryIO) -> None:
    disk = _Disk(file)
    try:
        torch.save(envelope, disk)  # type: ignore[arg-type]  # needs `write` and `flush` alone
    except RuntimeError as error:
        if disk.failure is not None:
            raise disk.failure from error
        raise


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint, tensors on the CPU, without running any code that the file may hold; its replay is not read.

    What the file claims is compared with what it has before anything is made of it, checksums included, so a damaged
    or hostile file takes no more memory than its size lets expect.

    Raises:
        CheckpointError: There is no such file, or it is of another format version.
        DamagedCheckpointError: It is empty, cut off, altered or no checkpoint of ours; or an entry is missing, unknown
            or of the wrong type.
        OSError: It can't be read.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint{_advice(path)}")
    if path.stat().st_size == 0:
        raise DamagedCheckpointError(f"{path}: the file is empty{_advice(path)}")
    if not zipfile.is_zipfile(path):
        raise DamagedCheckpointError(f"{path}: cut off, or not a checkpoint{_advice(path)}")
    try:
        check_archive(path)
        envelope = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedCheckpointError(
            f"{path}: damaged, or not a checkpoint of unilab-rl ({reason}){_advice(path)}"
        ) from error
    return _checked(path, envelope)


def load_checkpoint_with_replay(path: Path) -> Checkpoint:
    """Reads a checkpoint, and if it names a replay, checks that file and maps it, as `ReplayContents`.

    Raises:
        CheckpointError: As from `load_checkpoint`; or the replay is of another format version.
        DamagedCheckpointError: As from `load_checkpoint`; or the replay is missing, damaged or of another checkpoint.
        OSError: A file can't be read.
    """
    checkpoint = load_checkpoint(path)
    named = checkpoint.learner.get(_REPLAY)
    if not isinstance(named, Mapping) or set(named) != _IN_A_FILE:
        return checkpoint
    if not all(isinstance(value, str) for value in named.values()):
        raise DamagedCheckpointError(
            f"{path}: can't be continued from: the format and SHA-256 of its replay are no text{_advice(path)}"
        )
    if named["format"] != replay_file.FORMAT:
        raise CheckpointError(
            f"{path}: can't be continued from: its replay has format {named['format']!r:.60}, this version reads "
            f"{replay_file.FORMAT!r}; use the version of unilab-rl that wrote it"
        )
    try:
        contents = replay_file.read_replay_file(replay_path(path), digest=named["sha256"])
    except replay_file.DamagedReplayFileError as error:
        raise DamagedCheckpointError(f"{path}: can't be continued from: {error}{_advice(path)}") from error
    except replay_file.ReplayFileError as error:
        raise CheckpointError(f"{path}: can't be continued from: {error}") from error
    return replace(checkpoint, learner={**checkpoint.learner, _REPLAY: contents})


def _checked(path: Path, envelope: object) -> Checkpoint:
    given = envelope.get("format") if isinstance(envelope, Mapping) else None
    if not isinstance(envelope, Mapping) or not isinstance(given, str) or not given.startswith("unilab-rl/"):
        raise DamagedCheckpointError(
            f"{path}: written by something else, not a checkpoint of unilab-rl{_advice(path)}"
        )
    if given != FORMAT:
        raise CheckpointError(
            f"{path}: has format {given!r}, this version reads {FORMAT!r}; use the version of unilab-rl that wrote it"
        )
    for key in envelope:
        if key not in _TYPES:
            raise DamagedCheckpointError(
                f"{path}: unknown entry {key!r}; {nearest(str(key), _TYPES)}{_advice(path)}"
            )
    for key, types in _TYPES.items():
        if key not in envelope:
            raise DamagedCheckpointError(f"{path}: the entry {key!r} is missing{_advice(path)}")
        value = envelope[key]
        negative = isinstance(value, int) and value < 0
        if not isinstance(value, types) or isinstance(value, bool) or negative:
            expected = " or ".join("a count" if kind is int else kind.__name__ for kind in types)
            raise DamagedCheckpointError(
                f"{path}: the entry {key!r} is {reprlib.repr(value):.40}, expected {expected}{_advice(path)}"
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
