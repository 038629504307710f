"""What the documentation says is so: examples run, commands, tests, files and anchors exist.

- Every Python block of a page or README parses. Those of a page below docs/ also run, in a process for each page;
  the READMEs' run in scripts/smoke.py.
- Every line `unilab ...` names a command that is installed, options that it has, and a task that is registered: here,
  by the page itself or by an example.
- Every test that a page cites exists. The table of docs/faults.md has a row for each test named after a fault.
- docs/support.md is what the recorded evidence says, and the evidence what docs/results/ says.
- docs/terms.md is what the term library says and does.
- Every link inside the workspace leads to a file and, with `#...`, to a heading.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import term_table
from _pages import Page
from _support import PAGE, Support
from _workspace import Workspace, parse, python_files, run

if TYPE_CHECKING:
    import click

RUNNER = Path(__file__).resolve().parent / "_run_page.py"
SHELLS = {"", "bash", "console", "sh", "shell", "text"}
_COMMAND = re.compile(r"\s*(?:\$ )?(?:python3 dev\.py run --locked |uv run )?unilab(?: +(?P<words>.*))?")
_PLACEHOLDER = re.compile(r"<.*>|[A-Z_]+|\.\.\.|…")
_REGISTERED = re.compile(r"TaskSpec\(\s*name=\"([\w-]+)\"")
_TEST = re.compile(r"(?P<file>[\w./-]+\.py)::(?P<test>\w+)")
_FAULT = re.compile(r"(?:^|_)qa_(\d{3})_")
_ROW = re.compile(r"\| (?P<id>QA-\d{3}) \|(?P<cells>.*)\|")


@dataclass(frozen=True)
class CommandLine:
    """What `unilab` offers: its commands by name, each to be imported, and the tasks they know."""

    commands: Mapping[str, Callable[[], click.Command]]
    tasks: frozenset[str]

    @classmethod
    def installed(cls) -> CommandLine:
        """That of this environment."""
        from unilab_core.registry import list_tasks

        commands = {entry.name: entry.load for entry in entry_points(group="unilab.commands")}
        return cls(commands, frozenset(task.name for task in list_tasks()))


def pages(root: Path) -> Iterator[Page]:
    """The pages below docs/ that people write, then the READMEs and what else lies beside them."""
    found = [
        *root.glob("docs/*.md"),
        *root.glob("*.md"),
        *root.glob("packages/*/*.md"),
        *root.glob("examples/*/*.md"),
    ]
    yield from map(Page.read, sorted(found))


# ---------------------------------------------------------------- examples


def _syntax_errors(page: Page, where: str) -> Iterator[str]:
    for block in page.blocks:
        if block.language == "python":
            try:
                ast.parse(block.text)
            except SyntaxError as error:
                yield f"{where}:{block.line + (error.lineno or 1) - 1}: {error.msg}"


def _example_errors(page: Page, where: str) -> list[str]:
    if not any(block.language in {"python", "pycon"} for block in page.blocks):
        return []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(RUNNER), str(page.path)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
    return [f"{where}: its examples fail:\n{done.stdout}{done.stderr}".rstrip()] if done.returncode else []


# ---------------------------------------------------------------- commands


def _tasks_of_examples(root: Path) -> frozenset[str]:
    """The tasks that the packages among the examples register."""
    texts = [path.read_text() for path in python_files(*sorted(root.glob("examples/*/src")))]
    return frozenset(name for text in texts for name in _REGISTERED.findall(text))


def _command_errors(page: Page, where: str, line: CommandLine) -> Iterator[str]:
    lines = [
        (block.line + offset, text, True)
        for block in page.blocks
        if block.language in SHELLS
        for offset, text in enumerate(block.text.splitlines())
    ]
    tasks = line.tasks | set(_REGISTERED.findall(page.text))
    for number, text, complete in [*lines, *((number, text, False) for number, text in page.spans)]:
        if match := _COMMAND.fullmatch(text):
            words = shlex.split(match["words"] or "", comments=True)
            if words and (error := _wrong(words, line, tasks, complete=complete)):
                yield f"{where}:{number}: unilab {' '.join(words)}: {error}"


def _wrong(
    words: list[str], line: CommandLine, tasks: set[str] | frozenset[str], *, complete: bool
) -> str | None:
    """What is wrong with the words after `unilab`; in running text, arguments may be left out."""
    import click

    name, *rest = words
    if _PLACEHOLDER.fullmatch(name) or {"-h", "--help", "--debug"} & set(words):
        return None
    if name not in line.commands:
        return f"there is no command {name!r}, only {', '.join(sorted(line.commands))}"
    command = line.commands[name]()
    try:
        context = command.make_context(name, rest)
    except click.MissingParameter as error:
        return error.format_message() if complete else None
    except click.BadParameter as error:
        # A file of the example need not be here.
        return None if error.param and isinstance(error.param.type, click.Path) else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    given = [context.params.get(item.name or "") for item in arguments if "TASK" in item.human_readable_name]
    named = [task for value in given for task in (value if isinstance(value, tuple) else (value,))]
    for task in map(str, filter(None, named)):  # a run, by its folder or as the latest, is no task
        if not (_PLACEHOLDER.fullmatch(task) or "/" in task or task == "latest" or task.lower() in tasks):
            return f"there is no task {task!r}, only {', '.join(sorted(tasks))}"
    return None


# ---------------------------------------------------------------- tests


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef))


def _test_errors(page: Page, where: str, root: Path) -> Iterator[str]:
    for number, text in page.spans:
        for cited in _TEST.finditer(text):
            path = root / cited["file"]
            if not path.is_file():
                yield f"{where}:{number}: there is no file {cited['file']}"
            elif cited["test"] not in _functions(path):
                yield f"{where}:{number}: {cited['file']} has no test {cited['test']}"


def _fault_errors(page: Page, where: str, root: Path) -> Iterator[str]:
    rows: dict[str, int] = {}
    for number, line in enumerate(page.text.splitlines(), 1):
        if not (row := _ROW.fullmatch(line)):
            continue
        if row["id"] in rows:
            yield f"{where}:{number}: {row['id']} has a row in line {rows[row['id']]} already"
        rows[row["id"]] = number
        if not row["cells"].rsplit("|", 1)[-1].strip():
            yield f"{where}:{number}: {row['id']} has neither a test nor a reason why there is none"
        for cited in _TEST.finditer(row["cells"]):
            for fault in _FAULT.findall(cited["test"]):
                if row["id"] != f"QA-{fault}":
                    yield f"{where}:{number}: {row['id']} cites a test of QA-{fault}"
    for path in python_files(*sorted(root.glob("packages/*/tests"))):
        for fault in sorted({fault for name in _functions(path) for fault in _FAULT.findall(name)}):
            if f"QA-{fault}" not in rows:
                yield f"{where}: {Workspace(root).relative(path)} tests QA-{fault}, which has no row"


# ---------------------------------------------------------------- links


def _link_errors(page: Page, where: str, root: Path) -> Iterator[str]:
    for number, target in page.links:
        if re.match(r"[a-z][a-z0-9+.-]*:", target):  # another place; nothing here asks the network
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.is_relative_to(root) or not path.exists():
            yield f"{where}:{number}: the link {target} leads nowhere"
        elif anchor and (path.suffix != ".md" or anchor not in Page.read(path).anchors):
            yield f"{where}:{number}: {name or 'this page'} has no heading #{anchor}"


def _page_errors(page: Page, where: str, root: Path, line: CommandLine) -> Iterator[str]:
    yield from _syntax_errors(page, where)
    yield from _link_errors(page, where, root)
    yield from _test_errors(page, where, root)
    yield from _command_errors(page, where, line)
    if page.path == root / "docs" / "faults.md":
        yield from _fault_errors(page, where, root)
    if page.path == root / PAGE:
        yield from Support(root).errors()
    if page.path == root / term_table.PAGE:
        yield from term_table.errors(root)


def check(root: Path, line: CommandLine | None = None) -> Iterator[str]:
    """The errors of all pages; `line` is what `unilab` offers, by default what is installed."""
    line = line or CommandLine.installed()
    line = replace(line, tasks=line.tasks | _tasks_of_examples(root))
    found = [(page, Workspace(root).relative(page.path)) for page in pages(root)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # which waits for processes of one thread each
        examples = {
            page.path: pool.submit(_example_errors, page, where)
            for page, where in found
            if page.path.parent == root / "docs" and not any(_syntax_errors(page, where))
        }
        for page, where in found:
            yield from _page_errors(page, where, root, line)
            if page.path in examples:
                yield from examples[page.path].result()


if __name__ == "__main__":
    run(check)
