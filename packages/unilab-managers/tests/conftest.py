"""Makes the tests' own support module importable, and makes environments that are closed afterwards."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

if TYPE_CHECKING:
    from manager_support import MakeEnv, Run

    from unilab_managers import ManagerBasedRlEnv


@pytest.fixture(autouse=True)
def _forget_calls() -> None:
    """Terms that note how they were called start each test with an empty list."""
    import manager_support

    manager_support.calls.clear()


@pytest.fixture
def make_env() -> Iterator["MakeEnv"]:
    """Returns `manager_support.fake_env`; what it made is closed after the test."""
    import manager_support

    made: list[ManagerBasedRlEnv] = []

    def make(num_envs: int = 3, **options: Any) -> "ManagerBasedRlEnv":
        env = manager_support.fake_env(num_envs, **options)
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


@pytest.fixture
def unilab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Run":
    """Runs the command line in an empty folder, which it leaves empty."""
    from unilab_core.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        code = main(list(args))
        shown = capsys.readouterr()
        assert list(tmp_path.iterdir()) == []
        return code, shown.out, shown.err

    return call
