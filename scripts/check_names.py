"""Names that nobody may write: retired ones, private ones of other packages, a backend's in a comparison.

- Retired names appear nowhere in sources, docs and configuration. What the migration page explains may be
  named there, and in tests that assert that it is refused.
- A name with a leading underscore belongs to its package: others neither import it nor read it as attribute.
- Nobody decides anything by comparing with a backend's name; capabilities say what a backend can do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from _workspace import Member, Workspace, parse, python_files, run

# Joined here, so that this file names none of them.
RETIRED = tuple("".join(parts) for parts in (("Np", "Env"), ("tensor", "_runtime"), ("_cpu", "_env")))
HOOK, KEYWORD = ("".join((verb, mask)) for verb, mask in (("dispatch", "_reset"), ("reset", "_mask=")))
MIGRATED = {HOOK: re.compile(rf"\b{HOOK}"), KEYWORD: re.compile(rf"\b{KEYWORD}(?!=)")}
SUFFIXES = {".cfg", ".ini", ".md", ".py", ".rst", ".toml", ".yaml", ".yml"}
FOLDERS = ("packages", "docs", "examples", "benchmarks", "scripts", ".ci")
# Public in spite of their underscore: a named tuple's, and the version counter of a tensor.
FOREIGN = {"_asdict", "_fields", "_make", "_replace", "_version"}


def text_files(root: Path) -> Iterator[Path]:
    """Sources, docs and configuration."""
    yield from sorted(path for path in root.iterdir() if path.is_file() and path.suffix in SUFFIXES)
    for folder in FOLDERS:
        found = (path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file())
        yield from sorted(
            path for path in found if not {"__pycache__", "_build", "node_modules"} & set(path.parts)
        )


def _is_test(path: Path, root: Path) -> bool:
    return "tests" in path.relative_to(root).parts


def _refused_lines(path: Path) -> set[int]:
    """The lines of a test that assert something: `with pytest.raises(...)` blocks and assert statements."""
    lines: set[int] = set()
    for node in ast.walk(parse(path)):
        if not isinstance(node, (ast.With, ast.Assert)):
            continue
        contexts = (
            [ast.unparse(item.context_expr) for item in node.items] if isinstance(node, ast.With) else []
        )
        if isinstance(node, ast.Assert) or any("raises" in context for context in contexts):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _retired_errors(workspace: Workspace) -> Iterator[str]:
    for path in text_files(workspace.root):
        where = workspace.relative(path)
        migration = "migrat" in path.name.lower()
        refused: set[int] | None = None
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for name in RETIRED:
                if name in line:
                    yield f"{where}:{number}: {name} is retired: nothing may name it"
            for name, pattern in MIGRATED.items():
                if migration or not pattern.search(line):
                    continue
                if path.suffix == ".py" and _is_test(path, workspace.root):
                    refused = _refused_lines(path) if refused is None else refused
                    if number in refused:
                        continue
                yield f"{where}:{number}: {name} is retired: only the migration page and its tests name it"


def _private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _own_private_names(member: Member) -> set[str]:
    """The private names that a package gives to its functions, classes, attributes, variables and modules."""
    names: set[str] = set()
    for path in python_files(member.source):
        names.add(path.stem)
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return {name for name in names if _private(name)}


def _private_errors(workspace: Workspace) -> Iterator[str]:
    private = {member.module: _own_private_names(member) for member in workspace.members}
    for member in workspace.members:
        others = {
            name: module for module, names in private.items() if module != member.module for name in names
        }
        for path in python_files(member.source, member.folder / "tests"):
            nodes = sorted(ast.walk(parse(path)), key=lambda node: getattr(node, "lineno", 0))
            for node in nodes:
                for name, owner in _reached(node, member, others, private):
                    line = getattr(node, "lineno", 0)
                    yield f"{workspace.relative(path)}:{line}: {name} is private to {owner}"


def _reached(
    node: ast.AST, member: Member, others: dict[str, str], private: dict[str, set[str]]
) -> Iterator[tuple[str, str]]:
    """The private names of other packages that one node imports or reads."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.level == 0 else ""
        for alias in node.names:
            top, *parts = f"{prefix}{alias.name}".split(".")
            if top in private and top != member.module:
                yield from ((part, top) for part in parts if _private(part))
    elif isinstance(node, ast.Attribute) and node.attr in others and node.attr not in private[member.module]:
        receiver = node.value.id if isinstance(node.value, ast.Name) else ""
        if receiver not in {"self", "cls"} and node.attr not in FOREIGN:
            yield node.attr, others[node.attr]


def _backend_errors(workspace: Workspace) -> Iterator[str]:
    points = [point for member in workspace.members for point in member.entry_points]
    backends = {name for group, name, _ in points if group == "unisim.backends"}
    for member in workspace.members:
        for path in python_files(member.source):
            if member.module_of(path).startswith("unisim.backends."):  # a backend may know its own name
                continue
            for node in ast.walk(parse(path)):
                if isinstance(node, (ast.Compare, ast.MatchValue)):
                    named = {item.value for item in ast.walk(node) if isinstance(item, ast.Constant)}
                    for name in sorted(backends & {value for value in named if isinstance(value, str)}):
                        where = f"{workspace.relative(path)}:{node.lineno}"
                        yield f"{where}: compares with the backend's name {name!r}; ask its capabilities"


def check(root: Path) -> list[str]:
    """The errors of a workspace, one line each."""
    workspace = Workspace(root)
    return [*_retired_errors(workspace), *_private_errors(workspace), *_backend_errors(workspace)]


if __name__ == "__main__":
    run(check)
