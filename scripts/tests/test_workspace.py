"""What the checks do not say but every release needs of this workspace."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_package_carries_the_licence_its_types_and_a_readme(package):
    module = package / "src" / package.name.replace("-", "_")
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (module / "py.typed").is_file()
    assert (package / "README.md").read_text().startswith(f"# {package.name}\n")


def test_ci_runs_the_test_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"^(python3 dev\.py run --locked nox)$", readme, re.MULTILINE)[1]
    assert (ROOT / ".ci/run").read_text().rstrip().endswith(f"exec {command}")


def test_nox_tests_every_package_of_the_workspace():
    declared = re.search(r"^PACKAGES = (\[.*\])$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)[1]
    assert sorted(ast.literal_eval(declared)) == [package.name for package in PACKAGES]


def test_every_package_is_a_workspace_source_of_the_root():
    sources = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["sources"]
    assert sources == {package.name: {"workspace": True} for package in PACKAGES}


@pytest.mark.parametrize("check", ["imports", "lock", "names", "versions"])
def test_a_check_fails_with_the_number_of_its_errors(tree, check):
    tree.write("uv.lock", 'x = "/srv/cache"\n')
    tree.write("packages/top/src/top/bad.py", "import scipy\n")
    tree.write("packages/top/src/top/worse.py", "fast = name == 'fast'\n")
    (tree.root / "packages/top/CHANGELOG.md").unlink()
    script = ROOT / "scripts" / f"check_{check}.py"
    result = subprocess.run([sys.executable, script, tree.root], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.splitlines()[1:] == [f"check_{check}: 1 error(s)"]


def test_a_check_of_a_sound_workspace_says_so(tree):
    script = ROOT / "scripts" / "check_imports.py"
    result = subprocess.run([sys.executable, script, tree.root], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "check_imports: nothing to report\n")
