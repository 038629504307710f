"""A workspace of three small packages that the checks accept, to be broken in one place by each test."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ROOT = """
[dependency-groups]
test = ["pytest>=8"]

[tool.unilab.layers]
ground = []
middle = ["ground"]
top = ["ground", "middle"]

[tool.unilab.extras]
"ground[engine]" = ["ground.backends.fast"]

[tool.unilab.import-names]
fast_engine = "fast-engine-lib"
"""

MEMBER = """
[project]
name = "{name}"
version = "{version}"
dependencies = [{requirements}]
"""


class Tree:
    """A workspace below a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        """Write one file, with the folders it needs."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def replace(self, name: str, old: str, new: str) -> None:
        """Change one place of one file."""
        text = (self.root / name).read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        (self.root / name).write_text(text.replace(old, new))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """The workspace, without a fault."""
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", ROOT)
    members = {
        "ground": ("2.1.0", '"numbers-lib>=1"'),
        "middle": ("0.3.0", '"ground>=2.0,<3"'),
        "top": ("1.0.0", '"ground>=2.0,<3", "middle>=0.3,<0.4"'),
    }
    for name, (version, requirements) in members.items():
        text = MEMBER.format(name=name, version=version, requirements=requirements)
        if name == "ground":
            text += '\n[project.optional-dependencies]\nengine = ["fast-engine-lib>=1"]\n'
            text += '\n[project.entry-points."unisim.backends"]\nfast = "ground.backends.fast:create"\n'
        tree.write(f"packages/{name}/pyproject.toml", text)
        tree.write(f"packages/{name}/src/{name}/__init__.py", f'"""The package {name}."""\n')
        tree.write(
            f"packages/{name}/CHANGELOG.md", f"# {name}\n\n## [Unreleased]\n\n## [{version}] - 2026-01-01\n"
        )
    tree.write("packages/ground/src/ground/backends/fast.py", "import fast_engine\n\ndef create(): ...\n")
    tree.write("packages/middle/src/middle/use.py", "import json\n\nfrom ground.backends import fast\n")
    tree.write(
        "packages/top/tests/test_top.py", "import pytest\n\nimport ground\nimport middle\nimport top\n"
    )
    return tree
