"""Makes the tests' own support module importable, here and in the processes that tests start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

settings.register_profile("unilab", max_examples=200, derandomize=True, deadline=None, database=None)
settings.load_profile("unilab")

Program = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs Python source in a new interpreter, in an empty folder, and returns the finished process."""

    def run(source: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", source],
            cwd=tmp_path,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")]),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run
