"""The import-linter contracts of the root pyproject.toml: each breaks where it should, and only there.

They are run on a skeleton: empty modules of the names that the contracts mention.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS = "Layers point downwards"
PLACES = "Inside unilab_rl every module has its place"
ADAPTERS = "Inside unilab_rl only the command line knows the adapters"
RSL_RL = "Only the rsl-rl adapter knows rsl-rl"
MUJOCO = "Only the MuJoCo backend, scene composition, rendering and robot builders know MuJoCo"
WARP = "Only the MuJoCo-Warp backend knows Warp"
LOGGERS = "No trainer, logger or viewer below the learners"
CYCLES = "No cycles inside a package"


def named_modules() -> set[str]:
    """Every module of the workspace that a contract mentions."""
    names: set[str] = set(CONFIG["root_packages"])
    for contract in CONFIG["contracts"]:
        for container in contract.get("containers", []):
            layers = [name for layer in contract["layers"] for name in re.findall(r"\w+", layer)]
            names.update(f"{container}.{name}" for name in layers)
        mentioned = [*contract.get("source_modules", []), *contract.get("forbidden_modules", [])]
        mentioned += [
            line.split(" -> ")[0].removesuffix(".**") for line in contract.get("ignore_imports", [])
        ]
        names.update(name for name in mentioned if name.split(".")[0] in CONFIG["root_packages"])
    return {name for name in names if "*" not in name}


@pytest.fixture
def lint(tmp_path: Path) -> Callable[[dict[str, str]], set[str]]:
    """A function that adds modules to the skeleton and returns the names of the contracts that broke."""
    for name in named_modules():
        folder = tmp_path / name.replace(".", "/")
        for part in (folder, *folder.parents):
            if part != tmp_path and tmp_path in part.parents:
                part.mkdir(parents=True, exist_ok=True)
                (part / "__init__.py").touch()

    def run(modules: dict[str, str]) -> set[str]:
        for name, text in modules.items():
            path = tmp_path / f"{name.replace('.', '/')}.py"
            package = path.with_suffix("") / "__init__.py"
            (package if package.exists() else path).write_text(text)
        program = Path(sys.executable).with_name("lint-imports")
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
        result = subprocess.run(
            [program, "--no-cache", "--no-logo", ROOT / "pyproject.toml"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        states = re.findall(r"^(.+) (KEPT|BROKEN)\b", result.stdout, re.MULTILINE)
        assert {name for name, _ in states} == {contract["name"] for contract in CONFIG["contracts"]}, result
        broken = {name for name, state in states if state == "BROKEN"}
        assert (result.returncode != 0) == bool(broken), result
        return broken

    return run


def test_the_skeleton_breaks_nothing(lint):
    assert lint({}) == set()


@pytest.mark.parametrize(
    ("module", "text", "contract"),
    [
        ("unilab_rl.contracts", "import unilab_managers", LAYERS),
        ("unilab_rl.contracts", "def late():\n    import unilab_managers.env", LAYERS),
        (
            "unilab_managers.env",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import unilab_rl",
            LAYERS,
        ),
        ("unisim.scene", "try:\n    import unilab_core\nexcept ImportError:\n    pass", LAYERS),
        ("unilab_core.env", "import unilab_tasks", LAYERS),
        ("unilab_core.env", "def late():\n    import rsl_rl.runners", RSL_RL),
        ("unilab_rl.runtime", "import rsl_rl", RSL_RL),
        ("unilab_rl.contracts", "import tensordict", RSL_RL),
        ("unilab_core.env", "import mujoco", MUJOCO),
        ("unilab_managers.env", "def late():\n    import mujoco.viewer", MUJOCO),
        ("unisim.contract", "import mujoco", MUJOCO),
        ("unilab_tasks.cartpole", "import mujoco", MUJOCO),
        ("unisim.backends.mujoco", "import warp", WARP),
        ("unilab_core.env", "def late():\n    import mujoco_warp", WARP),
        ("unisim.scene", "def late():\n    import viser", LOGGERS),
        ("unilab_managers.env", "import wandb", LOGGERS),
        ("unilab_core.env", "from tensorboard import program", LOGGERS),
        ("unilab_rl.contracts", "import unilab_rl.checkpoint", PLACES),
        ("unilab_rl.adapters", "def late():\n    import unilab_rl.runtime", PLACES),
        ("unilab_rl.runtime", "import unilab_rl.adapters", ADAPTERS),
        ("unilab_rl.replay", "import unilab_rl.algorithms", PLACES),
        ("unilab_rl.checkpoint", "import unilab_rl.cli", PLACES),
        ("unilab_rl.newcomer", "", PLACES),
        ("unilab_rl.adapters.rsl_rl", "import unilab_rl.replay", PLACES),
        ("unilab_rl.replay", "def late():\n    import unilab_rl.adapters.rsl_rl", ADAPTERS),
    ],
)
def test_a_violation_breaks_its_contract_and_no_other(lint, module, text, contract):
    support = {"unilab_managers.env": "", module: f"{text}\n"}
    assert lint(support) == {contract}


def test_a_cycle_through_a_late_import_is_found(lint):
    modules = {
        "unilab_core.env": "import unilab_core.state\n",
        "unilab_core.state": "def late():\n    import unilab_core.env\n",
    }
    assert lint(modules) == {CYCLES}


def test_what_the_contracts_allow_breaks_nothing(lint):
    modules = {
        "unilab_tasks.cartpole": "import unilab_managers, unilab_rl, unilab_core, unisim\n",
        "unilab_rl.adapters.rsl_rl": "import rsl_rl, tensordict\nimport unilab_rl.contracts\n",
        "unilab_rl.cli": "import unilab_rl.adapters, unilab_rl.runtime, unilab_rl.checkpoint\n",
        "unilab_rl.runtime": "import unilab_rl.algorithms, unilab_rl.replay, unilab_rl.targets\n",
        "unisim.backends.mujoco": "import mujoco\n",
        "unisim.backends.mujoco_warp": "import warp, mujoco_warp\n",
        "unilab_tasks.robots": "import mujoco\n",
    }
    assert lint(modules) == set()
