"""Makes the tests' own support module importable, here and in the processes that tests start."""

import sys
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
