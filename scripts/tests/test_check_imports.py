"""Each fault that check_imports finds, seeded alone, with the line that it prints."""

from __future__ import annotations

import pytest

from check_imports import check

MAY_NOT = "ground must not import middle; it may import []"


def test_a_workspace_without_a_fault_passes(tree):
    assert check(tree.root) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import middle\n", 1),
        ("from middle.use import fast\n", 1),
        ("def late():\n    import middle\n", 2),
        ("try:\n    import middle\nexcept ImportError:\n    pass\n", 2),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from middle import use\n", 3),
        ("import importlib\nuse = importlib.import_module('middle.use')\n", 2),
        ("from importlib import import_module\nimport_module('middle')\n", 2),
        ("use = __import__('middle')\n", 1),
        ("TARGET = 'middle.use:fast'\n", 1),
        ("LAZY = {'fast': 'middle.use'}\n", 1),
    ],
)
def test_an_import_of_a_layer_above_is_found_in_every_form(tree, text, line):
    tree.write("packages/ground/src/ground/bad.py", text)
    assert check(tree.root) == [f"packages/ground/src/ground/bad.py:{line}: {MAY_NOT}"]


def test_a_sentence_that_names_a_layer_above_is_no_import(tree):
    tree.write("packages/ground/src/ground/good.py", '"""Used by middle: see middle.use for more."""\n')
    assert check(tree.root) == []


def test_relative_imports_stay_inside_the_package(tree):
    tree.write(
        "packages/ground/src/ground/good.py", "from . import middle\nfrom .backends.fast import create\n"
    )
    assert check(tree.root) == []


def test_a_test_may_not_import_a_layer_above_either(tree):
    tree.write("packages/middle/tests/unit/test_it.py", "def test_it():\n    import top\n")
    assert check(tree.root) == [
        "packages/middle/tests/unit/test_it.py:2: middle must not import top; it may import ['ground']"
    ]


def test_a_test_imports_only_what_its_environment_holds(tree):
    tree.write("packages/middle/tests/test_it.py", "import helpers\nimport pytest\nimport scipy\n")
    tree.write("packages/middle/tests/helpers.py", "")
    assert check(tree.root) == [
        "packages/middle/tests/test_it.py:3: a test of middle imports scipy, but middle does not declare scipy"
    ]


def test_a_package_that_tests_install_declares_for_itself(tree):
    tree.write("packages/middle/tests/plugin/pyproject.toml", '[project]\nname = "plugin"\n')
    tree.write("packages/middle/tests/plugin/src/plugin/it.py", "import scipy\n")
    assert check(tree.root) == []
    tree.write("packages/middle/tests/beside/it.py", "import scipy\n")
    assert len(check(tree.root)) == 1


def test_what_the_isolated_test_environment_adds_may_be_imported_by_tests_only(tree):
    tree.replace(
        "packages/middle/pyproject.toml", "dependencies =", "optional-dependencies = {}\ndependencies ="
    )
    text = (tree.root / "packages/middle/pyproject.toml").read_text()
    tree.write("packages/middle/pyproject.toml", text + '\n[dependency-groups]\nlayers = ["scipy>=1"]\n')
    tree.write("packages/middle/tests/test_it.py", "import scipy\n")
    tree.write("packages/middle/src/middle/bad.py", "import scipy\n")
    assert check(tree.root) == [
        "packages/middle/src/middle/bad.py:1: middle imports scipy, but middle does not declare scipy"
    ]


def test_a_layer_must_be_declared_even_where_another_layer_brings_it(tree):
    tree.replace("packages/top/pyproject.toml", '"ground>=2.0,<3", ', "")
    tree.write("packages/top/src/top/bad.py", "import ground\n")
    tree.write("packages/top/tests/test_top.py", "import top\n")
    assert check(tree.root) == [
        "packages/top/src/top/bad.py:1: top imports ground, but top does not declare ground"
    ]


def test_an_undeclared_distribution_is_found_inside_a_function_too(tree):
    tree.write("packages/ground/src/ground/bad.py", "def late():\n    import scipy.linalg\n")
    assert check(tree.root) == [
        "packages/ground/src/ground/bad.py:2: ground imports scipy, but ground does not declare scipy"
    ]


def test_an_import_name_that_differs_from_the_distribution_is_looked_up(tree):
    tree.replace("pyproject.toml", 'fast_engine = "fast-engine-lib"', 'fast_engine = "another-lib"')
    assert check(tree.root) == [
        "packages/ground/src/ground/backends/fast.py:1: "
        "ground imports fast_engine, but ground does not declare another-lib"
    ]


def test_an_extra_is_no_base_dependency_outside_its_modules(tree):
    tree.write("packages/ground/src/ground/bad.py", "import fast_engine\n")
    tree.write("packages/ground/src/ground/backends/faster.py", "import fast_engine\n")
    message = "at its top, but only the extra ground[engine] declares fast-engine-lib"
    assert check(tree.root) == [
        f"packages/ground/src/ground/backends/faster.py:1: ground.backends.faster imports fast_engine {message}",
        f"packages/ground/src/ground/bad.py:1: ground.bad imports fast_engine {message}",
    ]


def test_an_extra_may_be_imported_inside_a_function_or_for_types_anywhere(tree):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import fast_engine\nelse:\n    pass\n"
    tree.write("packages/ground/src/ground/good.py", text + "def late():\n    import fast_engine\n")
    assert check(tree.root) == []


def test_a_block_for_the_opposite_of_type_checking_is_imported_at_once(tree):
    text = "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import fast_engine\n"
    tree.write("packages/ground/src/ground/bad.py", text)
    assert [line.split(":")[1] for line in check(tree.root)] == ["3"]


def test_the_other_branch_of_a_type_checking_block_is_imported_at_once(tree):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import fast_engine\n"
    tree.write("packages/ground/src/ground/bad.py", text)
    assert check(tree.root) == [
        "packages/ground/src/ground/bad.py:5: ground.bad imports fast_engine at its top, "
        "but only the extra ground[engine] declares fast-engine-lib"
    ]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("middle.use:fast", "must name a module of ground, got 'middle.use:fast'"),
        ("ground.nowhere:create", "names a module that does not exist: 'ground.nowhere'"),
        ("ground.backends.fast:other", "names 'other', which ground.backends.fast does not define"),
    ],
)
def test_an_entry_point_names_something_of_its_own_package(tree, target, problem):
    tree.replace("packages/ground/pyproject.toml", "ground.backends.fast:create", target)
    assert check(tree.root) == [
        f"packages/ground/pyproject.toml: entry point 'fast' of 'unisim.backends' {problem}"
    ]


def test_an_entry_point_may_name_what_a_stub_exports_lazily(tree):
    tree.replace("packages/ground/pyproject.toml", "ground.backends.fast:create", "ground:create")
    tree.write("packages/ground/src/ground/__init__.pyi", "from .backends.fast import create as create\n")
    assert check(tree.root) == []


def test_every_package_is_in_the_table_of_layers(tree):
    tree.replace("pyproject.toml", 'middle = ["ground"]\n', "")
    assert check(tree.root) == ["pyproject.toml: [tool.unilab.layers] does not list middle"]


def test_the_tables_name_only_what_exists(tree):
    tree.replace("pyproject.toml", 'middle = ["ground"]', 'middle = ["ground", "cellar"]')
    tree.replace(
        "pyproject.toml", "[tool.unilab.import-names]", '"middle[gone]" = []\n[tool.unilab.import-names]'
    )
    assert check(tree.root) == [
        "pyproject.toml: [tool.unilab.layers] names cellar, which is no package here",
        "pyproject.toml: [tool.unilab.extras] names middle[gone], which no package declares",
    ]
