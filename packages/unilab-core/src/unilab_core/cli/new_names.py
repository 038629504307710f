"""What a package of tasks may be called."""

from __future__ import annotations

import keyword
import re
import sys
import unicodedata
from importlib.util import find_spec

from unilab_core.registry import list_tasks

__all__ = ["problem_of", "proposal"]

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_FOLDERS = ("src", "tests")
"""Importable wherever pytest runs, and so not to be met."""
_PYTEST = ("conftest",)
"""Files of pytest, which would take the package for one of them."""
_TASKS = ("balance", "balance-pushed")
"""What follows the package's name in those of the tasks that the template registers."""
_LAYERS = ("unilab", "unilab_core", "unilab_managers", "unilab_rl", "unilab_tasks", "unisim")


def problem_of(name: str) -> str | None:
    """Returns why a package of tasks cannot have this name, or None. Imports nothing but what registers tasks."""
    if not _NAME.fullmatch(name):
        return "expected lower-case letters, digits and single underscores, a letter first"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "it is a word of Python"
    if name in sys.stdlib_module_names or name in _FOLDERS:
        return "Python has a module of this name"
    if name in _PYTEST:
        return "pytest has files of this name"
    if name in _LAYERS or find_spec(name) is not None:
        return "a module of this name is installed already"
    made = {f"{name.replace('_', '-')}-{task}" for task in _TASKS}
    taken = [task.name for task in list_tasks() if task.name in made]
    return f"there is a task {taken[0]!r} already" if taken else None


def proposal(name: str) -> str:
    """Returns a name near to this one that a package of tasks can have."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    # A capital begins a word: MyRobot is my_robot.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", ascii_only).lower()
    found = re.sub(r"[^a-z0-9]+", "_", words).strip("_") or "my_robot"
    if found[0].isdigit():
        found = f"robot_{found}"
    while problem_of(found):
        found += "_tasks"
    return found
