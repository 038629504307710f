"""Makes the tests' own support module importable, here and in the processes that tests start."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

if sys.platform == "linux":
    os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo reads it when it is imported

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

settings.register_profile("unilab", max_examples=200, derandomize=True, deadline=None, database=None)
settings.load_profile("unilab")

_COMPILED: list[str] = []


class _Compilations(logging.Handler):
    """Keeps what the MuJoCo-Warp backend says of kernels that it had to compile."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("MuJoCo-Warp on") and "modules compiled:" in record.getMessage():
            _COMPILED.append(record.getMessage())


logging.getLogger("unisim.backends.mujoco_warp.kernel_cache").addHandler(_Compilations())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how long kernels were compiled: nothing where the machine has kept them from an earlier run."""
    seconds = sum(float(match[1]) for text in _COMPILED if (match := re.search(r", (\d+) s;", text)))
    if _COMPILED:
        terminalreporter.write_line(f"kernels compiled for {len(_COMPILED)} backends, {seconds:.0f} s in all")


Program = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs Python source in a new interpreter, in an empty folder, and returns the finished process."""

    def run(source: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", source],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": SUPPORT},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


@pytest.fixture
def simulate() -> Iterator[Callable[..., Any]]:
    """Makes MuJoCo backends of one entity `robot` from a builder; closes them afterwards."""
    from unisim import EntityCfg, SceneCfg, SimCfg, make_backend

    made = []

    def make(build: Callable[..., Any], num_envs: int, *, sim: SimCfg | None = None, **entity: Any) -> Any:
        scene = SceneCfg(entities={"robot": EntityCfg(spec=build, **entity)})
        sim = sim or SimCfg(timestep=0.004, num_threads=1)
        made.append(make_backend("mujoco", scene, sim, num_envs=num_envs))
        return made[-1]

    yield make
    for backend in made:
        backend.close()
