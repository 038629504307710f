"""Checks, backends and doctors for the tests of `unilab doctor`; checks run in processes of their own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unisim.doctor import BackendDoctor, CompilationRefused, Finding, KernelReport
from unisim.errors import CapabilityError, ConfigError

# ---------------------------------------------------------------- checks


def fine(word: str = "all") -> Finding:
    """Works, and says in which process."""
    return Finding("ignored", "ok", f"{word} is well in {os.getpid()}", "nothing")


def abort() -> Finding:
    """Ends the process as a fault in a library does."""
    print("first line\nlast words of a library\n", file=sys.stderr, flush=True)
    os.abort()


def leave() -> Finding:
    """Ends the process without a word."""
    os._exit(3)


def hang() -> Finding:
    """Waits for what never comes."""
    print("still waiting", flush=True)
    threading.Event().wait()
    raise AssertionError


def fail() -> Finding:
    """Raises."""
    raise OSError("no such library")


def forget() -> Any:
    """Returns no finding."""
    return {"state": "ok"}


# ---------------------------------------------------------------- backends


def create(scene: Any, sim: Any, *, num_envs: int, device: str = "cpu", declared: Any = None) -> Any:
    """A backend that works: the fake."""
    from unisim.testing import FakeBackend, make_layout

    del scene, sim
    return FakeBackend(make_layout(), num_envs, device=device, declared=declared)


def create_incapable(scene: Any, sim: Any, **_: Any) -> Any:
    """A backend whose engine is not there."""
    raise CapabilityError("backend 'incapable' needs Engine X: pip install x")


def create_foreign(scene: Any, sim: Any, *, num_envs: int, **options: Any) -> Any:
    """A backend with a format of its own: takes what has no entities."""
    if scene.entities:
        raise ConfigError("entity 'hopper': expected Springs")
    return create(scene, sim, num_envs=num_envs, **options)


def create_crashing(scene: Any, sim: Any, **_: Any) -> Any:
    """A backend that takes its process with it."""
    abort()


class HealthyDoctor(BackendDoctor):
    """Two checks that find what they look for."""

    def checks(self) -> Any:
        """An engine and a screen."""
        return {
            "engine": lambda: Finding("x", "ok", "Engine 3"),
            "screen": lambda: Finding("x", "note", "dim", "dust"),
        }


class ForeignDoctor(HealthyDoctor):
    """Says that its backend takes no MuJoCo model."""

    runs_sample_scene = False


class LeavingDoctor(BackendDoctor):
    """Ends whatever process makes it."""

    def __init__(self) -> None:
        """Leaves."""
        sys.exit("no licence")

    def checks(self) -> Any:
        """Never asked."""
        raise AssertionError


class MissingDoctor(BackendDoctor):
    """Its engine is not installed."""

    def checks(self) -> Any:
        """An engine that is not there, and a check that must not be made."""
        return {"engine": lambda: Finding("x", "missing", "no Engine", "pip install engine"), "later": abort}


class CrashingDoctor(BackendDoctor):
    """Its second check is the end of its process."""

    def checks(self) -> Any:
        """One good, one that crashes, one good."""
        return {"engine": lambda: Finding("x", "ok", "Engine 3"), "GL": abort, "after": fine}


class UnmadeDoctor(BackendDoctor):
    """Cannot be made."""

    def __init__(self) -> None:
        """Fails."""
        raise OSError("no licence")

    def checks(self) -> Any:
        """Never asked."""
        raise AssertionError


class KernelDoctor(HealthyDoctor):
    """Its kernels lie in a file: once compiled, they are there."""

    def kernels(self, label: str, *, allow_compiling: bool) -> Any:
        """Watches one kernel module."""
        return self._watch(label, allow_compiling)

    @contextmanager
    def _watch(self, label: str, allow_compiling: bool) -> Iterator[KernelReport]:
        import logging

        cache = Path(os.environ["KERNELS_OF_TESTS"])
        report = KernelReport(cached=int(cache.exists()))
        if not cache.exists():
            if not allow_compiling:
                raise CompilationRefused("a_kernel")
            logging.getLogger("unisim.backends.kernels").info("%s: module 1 compiled", label)
            cache.write_text("machine code")
            report.compiled, report.compile_s = 1, 61.4
        yield report


class SilentDoctor(HealthyDoctor):
    """Its watch sees nothing."""

    @contextmanager
    def kernels(self, label: str, *, allow_compiling: bool) -> Any:
        """Counts nothing."""
        yield KernelReport()


# ---------------------------------------------------------------- tasks


def register() -> None:
    """Adds one task, on the fake."""
    from unilab_core import TaskSpec, register_task

    register_task(TaskSpec("scripted-task", "core_support:ScriptedCfg"))
