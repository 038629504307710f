"""Makes the tests' own support module importable, here and in the processes that tests start."""

import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)


@pytest.fixture(scope="session", autouse=True)
def _register() -> None:
    """Registers the scripted task and the counting algorithm."""
    import rl_support

    rl_support.register()
