"""Every import points to a layer below and to something that the package declares.

Import-linter sees the imports between modules that are installed. This check reads the files, so it also sees
imports in tests, names in strings (`import_module("...")`, `"package.module:function"`, entry points), and
whether what is imported is a dependency of the package. Three tables of the root pyproject.toml steer it:

- `[tool.unilab.layers]`: the packages that a package may import;
- `[tool.unilab.extras]`: the modules that may import an extra's distributions at their top; any other module
  of the package imports them inside a function or for type checking only;
- `[tool.unilab.import-names]`: the distribution of an import whose name differs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from _workspace import Member, Workspace, normalised, parse, python_files, requirement_name, run

DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
IMPORTERS = {"import_module", "__import__", "find_spec"}


@dataclass(frozen=True)
class Import:
    """A name that a file imports, and whether importing the file already does so."""

    line: int
    name: str
    immediate: bool
    text: bool = False  # a string that names a module, not a call that imports it

    @property
    def top(self) -> str:
        """The first part of the name."""
        return self.name.split(".")[0]


class _Imports(ast.NodeVisitor):
    """Collects the absolute imports of a file; functions and TYPE_CHECKING blocks make them not immediate."""

    def __init__(self) -> None:
        self.found: list[Import] = []
        self._deferred = 0

    def _add(self, node: ast.expr | ast.stmt, name: str, *, text: bool = False) -> None:
        self.found.append(Import(node.lineno, name, immediate=not self._deferred and not text, text=text))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module:
            self._add(node, node.module)

    def _visit_deferred(self, node: ast.AST) -> None:
        self._deferred += 1
        self.generic_visit(node)
        self._deferred -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_deferred

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.generic_visit(node)
            return
        self._deferred += 1
        for child in node.body:
            self.visit(child)
        self._deferred -= 1
        for child in node.orelse:
            self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0] if node.args else None
        if called in IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            self._add(node, first.value)
            for child in [*node.args[1:], *node.keywords]:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and (DOTTED.fullmatch(node.value) or TARGET.fullmatch(node.value)):
            self._add(node, node.value.split(":")[0], text=True)


def imports_of(path: Path) -> list[Import]:
    """What a file imports or names in a string, in the order of its lines."""
    visitor = _Imports()
    visitor.visit(parse(path))
    return sorted(visitor.found, key=lambda found: found.line)


class _Rules:
    """What one package may import."""

    def __init__(self, workspace: Workspace, member: Member) -> None:
        settings = workspace.settings
        self.member = member
        self.layers: list[str] = settings["layers"][member.name]
        self.modules = {other.module: other.name for other in workspace.members}
        self._names: dict[str, str] = settings.get("import-names", {})
        self._extra_modules: dict[str, list[str]] = settings.get("extras", {})
        self._test_tools = workspace.data.get("dependency-groups", {}).get("test", [])

    def distribution(self, top: str) -> str:
        return normalised(self.modules.get(top) or self._names.get(top, top))

    def upward(self, found: Import) -> str | None:
        """Why a package of the workspace may not be named here."""
        layer = self.modules.get(found.top)
        if layer is None or layer == self.member.name or layer in self.layers:
            return None
        may = [name.replace("-", "_") for name in self.layers]
        return f"{self.member.module} must not import {found.top}; it may import {may}"

    def undeclared(self, found: Import, module: str) -> str | None:
        """Why something that is imported is not sure to be installed."""
        if found.text or found.top in sys.stdlib_module_names or found.top == self.member.module:
            return None
        wanted = self.distribution(found.top)
        if wanted in map(requirement_name, self.member.requirements):
            return None
        extras = [name for name, what in self.member.extras.items() if wanted in map(requirement_name, what)]
        if not extras:
            return (
                f"{self.member.module} imports {found.top}, but {self.member.name} does not declare {wanted}"
            )
        if not found.immediate or any(self._belongs(module, extra) for extra in extras):
            return None
        extra = f"{self.member.name}[{extras[0]}]"
        return f"{module} imports {found.top} at its top, but only the extra {extra} declares {wanted}"

    def undeclared_in_test(self, found: Import, helpers: set[str]) -> str | None:
        """Why something that a test imports is not in the package's isolated test environment."""
        if found.text or found.top in sys.stdlib_module_names or found.top in {self.member.module, *helpers}:
            return None
        wanted = self.distribution(found.top)
        own = self.member
        everything: list[Iterable[str]] = [
            own.requirements,
            *own.extras.values(),
            own.groups.get("layers", []),
        ]
        declared = {requirement_name(item) for items in [*everything, self._test_tools] for item in items}
        if wanted in declared:
            return None
        return f"a test of {own.module} imports {found.top}, but {own.name} does not declare {wanted}"

    def _belongs(self, module: str, extra: str) -> bool:
        owners = self._extra_modules.get(f"{self.member.name}[{extra}]", [])
        return any(module == owner or module.startswith(f"{owner}.") for owner in owners)


def _source_errors(workspace: Workspace, rules: _Rules) -> Iterator[str]:
    for path in python_files(rules.member.source):
        module = rules.member.module_of(path)
        for found in imports_of(path):
            problem = rules.upward(found) or rules.undeclared(found, module)
            if problem:
                yield f"{workspace.relative(path)}:{found.line}: {problem}"


def _test_errors(workspace: Workspace, rules: _Rules) -> Iterator[str]:
    folder = rules.member.folder / "tests"
    helpers = {path.stem for path in python_files(folder)} | {"tests"}
    # A package of its own, which a test installs, declares what it imports by itself.
    installed = [file.parent for file in folder.rglob("pyproject.toml")]
    for path in python_files(folder):
        if any(path.is_relative_to(package) for package in installed):
            continue
        for found in imports_of(path):
            problem = rules.upward(found) or rules.undeclared_in_test(found, helpers)
            if problem:
                yield f"{workspace.relative(path)}:{found.line}: {problem}"


def _entry_point_errors(workspace: Workspace, member: Member) -> Iterator[str]:
    file = workspace.relative(member.folder / "pyproject.toml")
    for group, name, target in member.entry_points:
        where = f"{file}: entry point {name!r} of {group!r}"
        module, _, attribute = target.partition(":")
        base = member.folder / "src" / Path(*module.split("."))
        source = next(
            (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None
        )
        if module.split(".")[0] != member.module:
            yield f"{where} must name a module of {member.module}, got {target!r}"
        elif source is None:
            yield f"{where} names a module that does not exist: {module!r}"
        elif attribute.split(".")[0] not in _top_level_names(source, source.with_suffix(".pyi")):
            yield f"{where} names {attribute!r}, which {module} does not define"


def _top_level_names(*paths: Path) -> set[str]:
    """The names that a module or its stub defines or imports, and the strings it assigns (__all__)."""
    names: set[str] = set()
    for node in (node for path in paths if path.is_file() for node in parse(path).body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names.update(item.id for item in ast.walk(node) if isinstance(item, ast.Name))
            constants = [item.value for item in ast.walk(node) if isinstance(item, ast.Constant)]
            names.update(value for value in constants if isinstance(value, str))
    return names


def _table_errors(workspace: Workspace) -> Iterator[str]:
    """Settings that name nothing, and members that the settings forgot."""
    layers = workspace.settings["layers"]
    members = {member.name: member for member in workspace.members}
    for name in sorted(set(members) - set(layers)):
        yield f"pyproject.toml: [tool.unilab.layers] does not list {name}"
    for name in sorted({*layers, *(item for may in layers.values() for item in may)} - set(members)):
        yield f"pyproject.toml: [tool.unilab.layers] names {name}, which is no package here"
    for key in workspace.settings.get("extras", {}):
        package, _, extra = key.rstrip("]").partition("[")
        if package not in members or extra not in members[package].extras:
            yield f"pyproject.toml: [tool.unilab.extras] names {key}, which no package declares"


def check(root: Path) -> list[str]:
    """The errors of a workspace, one line each."""
    workspace = Workspace(root)
    errors = list(_table_errors(workspace))
    for member in workspace.members:
        if member.name in workspace.settings["layers"]:
            rules = _Rules(workspace, member)
            errors += _source_errors(workspace, rules)
            errors += _test_errors(workspace, rules)
        errors += _entry_point_errors(workspace, member)
    return errors


if __name__ == "__main__":
    run(check)
