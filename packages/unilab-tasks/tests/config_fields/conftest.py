"""Makes the task with everything importable by the name that its terms' import strings have, in an empty folder."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts each test in a folder of its own: `seen` reads and empties it."""
    monkeypatch.chdir(tmp_path)
