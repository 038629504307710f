"""The package as installed: light to import, no engine, and no name that was retired."""

import subprocess
import sys

import unilab_managers
from unilab_managers import managers, mdp

HEAVY = ("torch", "pydantic", "mujoco", "unisim.backends", "unilab_core.env", "unilab_rl", "unilab_tasks")


def modules_after(*statements: str) -> set[str]:
    """Returns which of the heavy modules an interpreter holds after some statements."""
    program = "; ".join([*statements, "import sys", f"print(*[m for m in {HEAVY!r} if m in sys.modules])"])
    reply = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert reply.stderr == ""
    return set(reply.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_after("import unilab_managers", "dir(unilab_managers)") == set()


def test_no_module_of_the_package_imports_an_engine_or_a_layer_beside_it() -> None:
    walk = "import importlib, pkgutil, unilab_managers as m"
    every = "[importlib.import_module(f.name) for f in pkgutil.walk_packages(m.__path__, 'unilab_managers.')]"
    assert modules_after(walk, every) == {"torch", "pydantic", "unilab_core.env"}


def test_every_public_name_is_there() -> None:
    for module in (unilab_managers, managers, mdp):
        for name in vars(module)["__all__"]:
            assert getattr(module, name) is not None
    assert {"ManagerBasedRlEnv", "ManagerBasedRlEnvCfg", "mdp"} <= set(dir(unilab_managers))


def test_names_of_earlier_versions_do_not_exist() -> None:
    for name in managers.__all__:
        assert not hasattr(getattr(managers, name), "dispatch_reset")
