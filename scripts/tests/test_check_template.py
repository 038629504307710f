"""Template and example are the same files; each way to differ, seeded alone, with the line that is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_template
from check_template import EXAMPLE, TEMPLATE, check, write

AGAIN = "run scripts/check_template.py --write"


@pytest.fixture
def template(tree):
    tree.write(f"{EXAMPLE}/.gitignore", ".venv/\n__pycache__/\n")
    tree.write(f"{EXAMPLE}/README.md", "# mine\n")
    tree.write(f"{EXAMPLE}/src/mine/__init__.py", '"""Mine."""\n')
    tree.write(f"{EXAMPLE}/src/mine/__pycache__/x.pyc", "of this machine")
    write(tree.root)
    return tree


def test_what_was_written_is_the_example_without_what_it_ignores(template):
    assert list(check(template.root)) == []
    folder = template.root / TEMPLATE
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        ".gitignore.template",
        "README.md.template",
        "src/mine/__init__.py.template",
    }


def test_a_changed_file_is_found(template):
    template.write(f"{EXAMPLE}/README.md", "# ours\n")
    assert list(check(template.root)) == [
        f"{TEMPLATE}/README.md.template differs from {EXAMPLE}/README.md; {AGAIN}"
    ]


def test_a_new_file_is_found(template):
    template.write(f"{EXAMPLE}/LICENSE", "free\n")
    assert list(check(template.root)) == [f"{TEMPLATE}/LICENSE.template is missing; {AGAIN}"]


def test_a_file_that_is_gone_is_found_and_removed(template):
    (template.root / EXAMPLE / "README.md").unlink()
    problem = f"{TEMPLATE}/README.md.template has no counterpart in {EXAMPLE}; {AGAIN}"
    assert list(check(template.root)) == [problem]
    write(template.root)
    assert list(check(template.root)) == []


def test_what_this_workspace_ships_is_its_example():
    assert list(check(Path(check_template.__file__).parents[1])) == []
