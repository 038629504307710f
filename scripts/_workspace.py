"""What the checks know of a workspace: its members, what they declare, and their source files."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


def normalised(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """The distribution that a requirement asks for: `unilab-rl` of `unilab-rl[cli]>=2.0`."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement.strip())
    if match is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return normalised(match[0])


@dataclass(frozen=True)
class Member:
    """One package of the workspace: its folder and the contents of its pyproject.toml."""

    folder: Path
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """The distribution's name."""
        return str(self.data["project"]["name"])

    @property
    def module(self) -> str:
        """The name that is imported."""
        return self.name.replace("-", "_")

    @property
    def version(self) -> str:
        """The version in pyproject.toml."""
        return str(self.data["project"]["version"])

    @property
    def requirements(self) -> list[str]:
        """What is always installed with it."""
        return list(self.data["project"].get("dependencies", []))

    @property
    def extras(self) -> dict[str, list[str]]:
        """What each extra adds."""
        return dict(self.data["project"].get("optional-dependencies", {}))

    @property
    def groups(self) -> dict[str, list[str]]:
        """Its dependency groups."""
        return dict(self.data.get("dependency-groups", {}))

    @property
    def entry_points(self) -> Iterator[tuple[str, str, str]]:
        """Group, name and target of each entry point, scripts included."""
        project = self.data["project"]
        groups = {"project.scripts": project.get("scripts", {}), **project.get("entry-points", {})}
        for group, entries in groups.items():
            for name, target in entries.items():
                yield group, name, target

    @property
    def source(self) -> Path:
        """The folder that holds its modules."""
        return self.folder / "src" / self.module

    def module_of(self, path: Path) -> str:
        """The dotted name of one of its source files."""
        parts = path.relative_to(self.folder / "src").with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class Workspace:
    """The root pyproject.toml and the members below packages/."""

    root: Path

    @cached_property
    def data(self) -> dict[str, Any]:
        """The contents of the root pyproject.toml."""
        return tomllib.loads((self.root / "pyproject.toml").read_text())

    @cached_property
    def members(self) -> list[Member]:
        """The packages, in the order of their names."""
        files = sorted(self.root.glob("packages/*/pyproject.toml"))
        return [Member(file.parent, tomllib.loads(file.read_text())) for file in files]

    @property
    def settings(self) -> dict[str, Any]:
        """The table [tool.unilab]."""
        return dict(self.data["tool"]["unilab"])

    def relative(self, path: Path) -> str:
        """A path as messages show it."""
        return path.relative_to(self.root).as_posix()


def python_files(*folders: Path) -> Iterator[Path]:
    """Every Python file below some folders, in a stable order."""
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), filename=str(path))


def run(check: Callable[[Path], Iterable[str]]) -> None:
    """Print what a check finds in the workspace on the command line or in this one; exit 1 if anything."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    errors = list(check(root.resolve()))
    for error in errors:
        print(error)
    name = Path(sys.argv[0]).stem
    print(f"{name}: {len(errors)} error(s)" if errors else f"{name}: nothing to report")
    raise SystemExit(bool(errors))
