"""Each name that nobody may write, seeded alone, with the line that check_names prints."""

from __future__ import annotations

import pytest

from check_names import HOOK, KEYWORD, RETIRED, check

REFUSED = "is retired: only the migration page and its tests name it"


def test_a_workspace_without_a_fault_passes(tree):
    assert check(tree.root) == []


@pytest.mark.parametrize("name", RETIRED)
@pytest.mark.parametrize(
    "file",
    ["packages/top/src/top/bad.py", "packages/top/README.md", "docs/migration.md", "examples/a/run.yaml"],
)
def test_a_retired_name_is_found_in_sources_docs_and_configuration(tree, name, file):
    tree.write(file, f"one\ntwo {name}State\n")
    if file.endswith(".py"):
        tree.write(file, f"one = 1\ntwo = {name}State\n")
    assert check(tree.root) == [f"{file}:2: {name} is retired: nothing may name it"]


@pytest.mark.parametrize(
    ("name", "text"), [(HOOK, f"env.{HOOK}(ids)\n"), (KEYWORD, f"env.reset({KEYWORD}mask)\n")]
)
def test_what_the_migration_page_explains_is_refused_elsewhere(tree, name, text):
    tree.write("packages/top/src/top/bad.py", text)
    tree.write("packages/top/tests/test_bad.py", text)
    tree.write("docs/migrating.md", text)
    assert check(tree.root) == [
        f"packages/top/src/top/bad.py:1: {name} {REFUSED}",
        f"packages/top/tests/test_bad.py:1: {name} {REFUSED}",
    ]


def test_a_test_may_assert_that_a_retired_keyword_is_refused(tree):
    text = f"def test_it(env):\n    with pytest.raises(TypeError):\n        env.reset({KEYWORD}mask)\n"
    tree.write("packages/top/tests/test_good.py", f"{text}    assert not hasattr(env, '{HOOK}')\n")
    assert check(tree.root) == []


def test_a_variable_and_a_comparison_are_no_keyword(tree):
    variable = KEYWORD.rstrip("=")
    tree.write("packages/top/src/top/good.py", f"{variable} = 1\nequal = {variable}==1\n")
    assert check(tree.root) == []


def test_a_private_module_or_function_of_another_package_is_not_imported(tree):
    tree.write("packages/ground/src/ground/_inner.py", "def _helper(): ...\n")
    tree.write("packages/top/src/top/bad.py", "import ground._inner\nfrom ground._inner import _helper\n")
    assert check(tree.root) == [
        "packages/top/src/top/bad.py:1: _inner is private to ground",
        "packages/top/src/top/bad.py:2: _inner is private to ground",
        "packages/top/src/top/bad.py:2: _helper is private to ground",
    ]


def test_a_private_attribute_of_another_package_is_not_read(tree):
    text = "class Batch:\n    def __init__(self):\n        self._rows = 1\n"
    tree.write("packages/ground/src/ground/batch.py", text)
    tree.write("packages/top/src/top/bad.py", "def peek(batch):\n    return batch._rows\n")
    tree.write("packages/middle/tests/test_bad.py", "def test_it(batch):\n    assert batch._rows\n")
    assert check(tree.root) == [
        "packages/middle/tests/test_bad.py:2: _rows is private to ground",
        "packages/top/src/top/bad.py:2: _rows is private to ground",
    ]


def test_a_package_may_use_private_names_of_its_own(tree):
    tree.write("packages/ground/src/ground/batch.py", "class Batch:\n    _rows = 1\n")
    text = "class Row:\n    _rows = 2\n\ndef peek(row):\n    return row._rows\n"
    tree.write("packages/top/src/top/good.py", text)
    assert check(tree.root) == []


@pytest.mark.parametrize("text", ["fast = name == 'fast'\n", "fast = name in ('slow', 'fast')\n"])
def test_nothing_is_decided_by_the_name_of_a_backend(tree, text):
    tree.write("packages/middle/src/middle/bad.py", text)
    tree.write("packages/ground/src/ground/good.py", "name = 'fast'\n")
    assert check(tree.root) == [
        "packages/middle/src/middle/bad.py:1: compares with the backend's name 'fast'; ask its capabilities"
    ]
