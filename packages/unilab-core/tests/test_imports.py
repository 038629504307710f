"""Importing the package is cheap and silent."""

from __future__ import annotations

import pytest

import unilab_core
import unisim


@pytest.mark.parametrize(
    "module",
    [
        "unilab_core",
        "unilab_core.config",
        "unilab_core.env_cfg",
        "unilab_core.evidence",
        "unilab_core.factory",
        "unilab_core.registry",
        "unilab_core.cli",
        "unilab_core.cli.list",
    ],
)
def test_importing_it_imports_neither_torch_nor_an_engine_and_prints_nothing(program, module):
    finished = program(f"""
import sys, {module}
heavy = {{"torch", "mujoco", "numpy", "warp"}} & set(sys.modules)
assert not heavy, heavy
""")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_registering_and_naming_tasks_imports_no_torch(program):
    finished = program("""
import sys, unilab_core
unilab_core.register_task(unilab_core.TaskSpec("a-task", "m:f"))
assert unilab_core.get_task("a-task").env_cfg == "m:f"
assert "torch" not in sys.modules
""")
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("module", [unilab_core, unisim])
def test_every_public_name_can_be_imported(module):
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_the_error_vocabulary_is_that_of_the_backend_layer():
    for name in ("CapabilityError", "ConfigError", "NonFiniteError", "ResetRejectedError"):
        assert getattr(unilab_core, name) is getattr(unisim, name)
