"""Warp's kernel cache: what lies in it, what is compiled into it, and a watch that refuses to compile.

What a backend needs is known only to Warp, which hashes each kernel module with the static values that the model gave
it. So nothing here guesses: a watch listens to Warp while the backend runs, and counts what came from the cache.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import warp

from unisim.doctor import CompilationRefused, KernelReport

__all__ = [
    "CacheContents",
    "cache_contents",
    "cache_folder",
    "compilation_progress",
    "start_warp",
    "without_compiling",
]

_LOGGER = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0
"""Seconds of compilation between two lines that everybody sees."""

# What Warp says of a module, before and after it is loaded. The hash is missing where a module asked for that.
_STARTED = re.compile(r"\s*Module (\S+)(?: ([0-9a-f]{7}))? load on device '[^']*'.* \.\.\.")
_LOADED = re.compile(
    r"\s*Module (\S+)(?: [0-9a-f]{7})? load on device '[^']*'.* took ([0-9.]+) ms +\((\w+)\)"
)
_COMPILING = re.compile(r"\s*Compile (?:x86|CUDA)\b.* \.\.\.")


def start_warp() -> None:
    """Starts Warp without its greeting and its line per module, which would mix with what a program prints.

    Another log level than Warp's default is somebody's wish and stays.
    """
    if not isinstance(warp.get_logger(), _Watch) and warp.config.log_level == warp.LOG_INFO:
        warp.config.log_level = warp.LOG_WARNING
    warp.init()


def cache_folder() -> Path:
    """Returns the folder that holds this version of Warp's compiled kernels; WARP_CACHE_PATH moves it."""
    start_warp()
    return _folder()


def _folder() -> Path:
    return Path(str(warp.config.kernel_cache_dir))  # a text once Warp has started


@dataclass(frozen=True)
class CacheContents:
    """How full a cache is.

    Attributes:
        modules: Kernel modules, of whatever model and device.
        size_mib: Their size, MiB.
    """

    modules: int
    size_mib: float


def cache_contents(folder: Path) -> CacheContents:
    """Returns how much lies in a cache folder."""
    modules = [path for path in folder.glob("wp_*") if path.is_dir() and any(path.glob("*.meta"))]
    size = sum(file.stat().st_size for module in modules for file in module.rglob("*") if file.is_file())
    return CacheContents(len(modules), size / 2**20)


class _Watch:
    """A Warp logger that counts modules and hands on everything else, at the level that was set before."""

    def __init__(self, label: str, *, refuse: bool) -> None:
        self.report = KernelReport()
        self._label = label
        self._refuse = refuse
        self._told_s = 0.0
        self._starting = ("", "")
        self._lock = threading.Lock()  # Warp may compile modules on threads
        self._previous = warp.get_logger()
        self._level = warp.config.log_level
        # Warp says that a module starts to compile at its most talkative level, and that it has at the next.
        self._needed = min(self._level, warp.LOG_DEBUG if refuse else warp.LOG_INFO)
        warp.config.log_level = self._needed
        warp.set_logger(self)

    def restore(self) -> bool:
        """Puts back the logger and the level from before, and returns whether everything went by here meanwhile."""
        seen = warp.get_logger() is self and warp.config.log_level <= self._needed
        warp.set_logger(self._previous)
        warp.config.log_level = self._level
        return seen

    @property
    def _outermost(self) -> bool:
        return not isinstance(self._previous, _Watch)

    # ------------------------------------------------------------------ Warp's logger protocol

    def debug(self, message: str) -> None:
        """Refuses where Warp is about to compile."""
        if self._refuse:
            if started := _STARTED.fullmatch(message):
                self._starting = (started[1], started[2] or "")
                if not self._known():
                    raise CompilationRefused(started[1])
            elif _COMPILING.fullmatch(message):
                raise CompilationRefused(self._starting[0])
        if self._hand_on(warp.LOG_DEBUG):
            self._previous.debug(message)

    def info(self, message: str) -> None:
        """Counts a module that has been loaded."""
        loaded = _LOADED.fullmatch(message)
        if loaded:
            with self._lock:
                self._count(loaded[1], float(loaded[2]) / 1000, loaded[3])
        if self._hand_on(warp.LOG_INFO, own=loaded is not None):
            self._previous.info(message)

    def warning(self, message: str, category: type[Warning] | None = None, stacklevel: int = 1) -> None:
        """Hands on."""
        self._previous.warning(message, category, stacklevel + 1)

    def error(self, message: str) -> None:
        """Hands on."""
        self._previous.error(message)

    # ------------------------------------------------------------------

    def _hand_on(self, level: int, *, own: bool = False) -> bool:
        """Whether a message goes on: always to an enclosing watch, else what was wanted and is not told here."""
        return not self._outermost or (self._level <= level and not own)

    def _known(self) -> bool:
        """Whether anything of the starting module lies in the cache: for another device, perhaps."""
        name, digest = self._starting
        folder = f"wp_{name}_{digest}" if digest else f"wp_{name}"
        return (_folder() / folder).is_dir()

    def _count(self, name: str, seconds: float, how: str) -> None:
        report = self.report
        if how == "cached":
            report.cached += 1
        if how != "compiled":
            return
        report.compiled += 1
        report.compile_s += seconds
        if not self._outermost:
            return  # the enclosing watch tells it
        if report.compiled == 1:
            self._told_s = report.compile_s
            _LOGGER.warning(
                "%s: compiling kernels, once for this model and device; they are kept in %s",
                self._label,
                warp.config.kernel_cache_dir,
            )
        _LOGGER.info("%s: module %d compiled: %s, %.1f s", self._label, report.compiled, name, seconds)
        if report.compile_s - self._told_s >= _REPORT_EVERY_S:
            self._told_s = report.compile_s
            _LOGGER.warning(
                "%s: %d modules compiled so far, %.0f s", self._label, report.compiled, report.compile_s
            )

    def tell_end(self) -> None:
        """Says what was compiled, if anything was."""
        if self._outermost and self.report.compiled:
            _LOGGER.warning(
                "%s: modules compiled: %d, %.0f s; from the cache: %d",
                self._label,
                self.report.compiled,
                self.report.compile_s,
                self.report.cached,
            )


@contextmanager
def _watching(label: str, *, refuse: bool) -> Iterator[KernelReport]:
    watch = _Watch(label, refuse=refuse)
    try:
        yield watch.report
    except BaseException:
        watch.restore()
        watch.tell_end()
        raise
    seen = watch.restore()
    watch.tell_end()
    if not seen:
        raise RuntimeError(
            f"{label}: Warp's logger or log_level was changed while kernels were watched, so that some went by unseen; "
            "change it before or afterwards"
        )


def compilation_progress(label: str) -> AbstractContextManager[KernelReport]:
    """Watches kernels being loaded, and reports to the logger while they are compiled; silent if all are cached.

    The first compiled module, a sum every ten seconds and the end are warnings, because a minute of silence looks like
    a hang; each module is information. Inside another watch it only counts. Warp's own lines about modules are not
    shown while it watches; all else that Warp says, and what it raises, goes on as before.

    Args:
        label: What the kernels are for, at the start of each line.

    Returns:
        A context that gives the counts, which grow while its block runs. At its end it raises RuntimeError if the block
        changed Warp's logger or raised its log level.
    """
    return _watching(label, refuse=False)


@contextmanager
def without_compiling(label: str) -> Iterator[KernelReport]:
    """Watches kernels being loaded, and ends the block before the first one that would have to be compiled.

    Args:
        label: As of `compilation_progress`.

    Yields:
        The counts of what came from the cache. A module that the process had loaded before is not among them.

    Raises:
        CompilationRefused: A module is not in the cache; its name. The process can compile it later.
        RuntimeError: The block changed Warp's logger or raised its log level.
    """
    try:
        with _watching(label, refuse=True) as report:
            yield report
    except CompilationRefused:
        _remove_unfinished(_folder())
        raise


def _remove_unfinished(folder: Path) -> None:
    """Removes the source that Warp had written for the module that was refused."""
    for path in folder.glob(f"wp_*_p{os.getpid()}_t*"):
        shutil.rmtree(path, ignore_errors=True)
