"""The files of a new repository, and how they come into being: all or none."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["SUFFIX", "repository_files", "write_tree"]

_LOGGER = logging.getLogger(__name__)

SUFFIX = ".template"
"""Ends the name of every file of the template, so that no tool takes one for a part of this package."""
_EXAMPLE = "my_robot"
"""The name of the package in the template, which is examples/downstream of the workspace to the letter."""


def repository_files(name: str, appendix: str = "") -> dict[str, str]:
    """Returns the files of a repository with the package `name`: text by path, with `/` between folders.

    Args:
        name: What the package is called; the distribution and the tasks have hyphens for its underscores.
        appendix: The end of `pyproject.toml`.
    """
    found = sorted(_read(files("unilab_core.cli") / "new_template"))
    texts = {_renamed(path, name): _renamed(text, name) for path, text in found}
    texts["pyproject.toml"] += appendix
    return texts


def _renamed(text: str, name: str) -> str:
    return text.replace(_EXAMPLE, name).replace(_EXAMPLE.replace("_", "-"), name.replace("_", "-"))


def _read(folder: Traversable, prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _read(item, f"{prefix}{item.name}/")
        elif item.name.endswith(SUFFIX):
            found.append((prefix + item.name.removesuffix(SUFFIX), item.read_text(encoding="utf-8")))
    return found


def write_tree(folder: Path, texts: Mapping[str, str]) -> None:
    """Makes a folder with these files, or, if anything fails, nothing.

    They are written to a folder beside it, which gets its name when it is complete.

    Args:
        folder: What is to be made; the folder that holds it must exist.
        texts: Text by path below it.

    Raises:
        FileExistsError: There is something of that name.
        FileNotFoundError: There is no folder to make it in.
        OSError: It cannot be made there.
    """
    if os.path.lexists(folder):
        raise FileExistsError("it exists already; name another folder with --path")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {os.fspath(folder.parent)!r} to make it in")
    draft = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    try:
        draft.mkdir()
        for path, text in texts.items():
            target = draft / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
        draft.rename(folder)
    except BaseException:  # an interrupt must leave nothing behind either
        _remove(draft)
        raise


def _remove(draft: Path) -> None:
    """Removes what was begun; that it cannot be is said, and does not take the place of why it is to go."""
    if not os.path.lexists(draft):
        return
    try:
        shutil.rmtree(draft)
    except OSError as error:
        _LOGGER.warning("%s was begun and cannot be removed: %s", os.fspath(draft), error)
