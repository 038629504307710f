"""Makes the tests' own support module importable, here and in the processes that tests start."""

import os
import sys
from multiprocessing.synchronize import SemLock
from pathlib import Path
from typing import Any

import pytest

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)


@pytest.fixture(scope="session", autouse=True)
def _register() -> None:
    """Registers the scripted task and the counting algorithm."""
    import rl_support

    rl_support.register()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The environments that evaluators make."""
    from unilab_rl.runtime import evaluator

    found = []

    def make_env(*args: Any, make_env: Any = evaluator.make_env, **settings: Any) -> Any:
        found.append(make_env(*args, **settings))
        return found[-1]

    monkeypatch.setattr(evaluator, "make_env", make_env)
    return found


@pytest.fixture
def left_in_shared_memory(monkeypatch):
    """Returns a function: the entries of /dev/shm that this process has made and that are still there.

    Those of other processes are not counted: tests run beside each other.
    """
    made, make_name = [], SemLock._make_name

    def noted():
        made.append(make_name())
        return made[-1]

    monkeypatch.setattr(SemLock, "_make_name", staticmethod(noted))

    def left():
        assert made, "nothing was made, so nothing can be left"
        own = {f"sem.{name.removeprefix('/')}" for name in made}
        return {
            entry.name
            for entry in Path("/dev/shm").iterdir()
            if entry.name in own or entry.name.startswith(f"torch_{os.getpid()}_")
        }

    return left
