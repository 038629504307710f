"""What `unilab new my_robot` makes is examples/downstream, to the letter.

The template of `unilab new` is package data of unilab-core, and no tool looks into it. The example is the same files
where they are linted, typed and tested: change them there, then `python scripts/check_template.py --write`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from _workspace import run

EXAMPLE = "examples/downstream"
TEMPLATE = "packages/unilab-core/src/unilab_core/cli/new_template"
SUFFIX = ".template"


def _files(folder: Path, *, suffix: str = "", skip: frozenset[str] = frozenset()) -> dict[str, bytes]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = {path.relative_to(folder): path for path in found}
    return {
        name.as_posix().removesuffix(suffix): path.read_bytes()
        for name, path in paths.items()
        if not skip & set(name.parts)
    }


def example(root: Path) -> dict[str, bytes]:
    """The files of the example by path, without what its own .gitignore names."""
    ignored = (root / EXAMPLE / ".gitignore").read_text().splitlines()
    return _files(root / EXAMPLE, skip=frozenset(name.rstrip("/") for name in ignored))


def check(root: Path) -> Iterator[str]:
    """The differences, one line each."""
    wanted, found = example(root), _files(root / TEMPLATE, suffix=SUFFIX)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            problem = "is missing"
        elif name not in wanted:
            problem = f"has no counterpart in {EXAMPLE}"
        elif wanted[name] != found[name]:
            problem = f"differs from {EXAMPLE}/{name}"
        else:
            continue
        yield f"{TEMPLATE}/{name}{SUFFIX} {problem}; run scripts/check_template.py --write"


def write(root: Path) -> None:
    """Make the template what the example is."""
    shutil.rmtree(root / TEMPLATE, ignore_errors=True)
    for name, content in example(root).items():
        path = root / TEMPLATE / f"{name}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    if "--write" in sys.argv:
        sys.argv.remove("--write")
        write(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parent.parent).resolve())
    run(check)
