"""The ranges that packages and examples of this workspace declare hold; changelogs tell the version.

uv takes every member from the workspace whatever a range says: only this check and the session `wheels` see
that a package forbids the version of a layer below it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from _workspace import Member, Workspace, normalised, run

# Other people's distributions of these names exist below this version.
FLOORS = {"unilab-rl": Version("2.0"), "unisim": Version("2.0")}
HEADING = re.compile(r"^## \[?(?P<version>[^\s\]]+)\]?(?: - (?P<date>\S+))?\s*$", re.MULTILINE)


def _requirements(member: Member) -> Iterator[Requirement]:
    for requirement in [*member.requirements, *(item for extra in member.extras.values() for item in extra)]:
        yield Requirement(requirement)


def _range_errors(workspace: Workspace, member: Member) -> Iterator[str]:
    versions = {other.name: other.version for other in workspace.members}
    file = workspace.relative(member.folder / "pyproject.toml")
    for requirement in _requirements(member):
        name = normalised(requirement.name)
        if name not in versions:
            continue
        lower = [
            Version(item.version)
            for item in requirement.specifier
            if item.operator in {">=", "==", "~=", ">"}
        ]
        upper = [item for item in requirement.specifier if item.operator in {"<", "<=", "==", "~="}]
        if versions[name] not in requirement.specifier:
            yield f"{file}: {requirement} excludes {name} {versions[name]} of this workspace"
        if not lower or not upper:
            yield f"{file}: {requirement} needs a lower and an upper bound"
        elif name in FLOORS and max(lower) < FLOORS[name]:
            yield f"{file}: {requirement} admits another project's {name}; its floor is {FLOORS[name]}"


def _changelog_errors(workspace: Workspace, member: Member) -> Iterator[str]:
    path = member.folder / "CHANGELOG.md"
    if not path.is_file():
        yield f"{workspace.relative(member.folder)}: has no CHANGELOG.md"
        return
    headings = [match for match in HEADING.finditer(path.read_text()) if match["version"] != "Unreleased"]
    newest = headings[0]["version"] if headings else "none"
    if newest != member.version:
        yield f"{workspace.relative(path)}: newest version is {newest}, but {member.name} is {member.version}"


def _examples(root: Path) -> Iterator[Member]:
    """The examples that are packages, and depend on those of the workspace as a stranger's would."""
    for file in sorted(root.glob("examples/*/pyproject.toml")):
        yield Member(file.parent, tomllib.loads(file.read_text()))


def check(root: Path) -> list[str]:
    """The errors of a workspace, one line each."""
    workspace = Workspace(root)
    errors = [error for example in _examples(root) for error in _range_errors(workspace, example)]
    for member in workspace.members:
        errors += _range_errors(workspace, member)
        errors += _changelog_errors(workspace, member)
        floor = FLOORS.get(member.name)
        if floor and Version(member.version) < floor:
            errors.append(
                f"{member.name} {member.version} is below {floor}: another project holds the older ones"
            )
    return errors


if __name__ == "__main__":
    run(check)
