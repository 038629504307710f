"""The one way in which a file is replaced: whole, and on the disk, before it has its name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

__all__ = ["TEMPORARY_SUFFIX", "sync_folder", "write_atomically"]

TEMPORARY_SUFFIX = ".tmp"
"""What the name of an unfinished file ends in."""

_Result = TypeVar("_Result")


def write_atomically(path: Path, write: Callable[[BinaryIO], _Result]) -> _Result:
    """Writes a file so that `path` holds the old one, or none, until the new one is complete and on the disk.

    A kill or a loss of power leaves `<path>.tmp` at most. An exception leaves no unfinished file, but one that comes
    after the rename leaves the new file at `path`, whole, and perhaps not yet safe from a loss of power.

    Args:
        path: The file.
        write: Writes the content into a file that is open for it.

    Returns:
        What `write` returned.

    Raises:
        OSError: The place can't be written or is full, or the folder can't be synchronised after the rename.
        Exception: Whatever `write` raises.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            result = write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
    return result


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a loss of power.

    Raises:
        OSError: It can't be opened or synchronised.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
