"""The watch over Warp's kernel cache: counts, progress, and the refusal to compile."""

from __future__ import annotations

import json
import logging
import os

import pytest

warp = pytest.importorskip("warp")

from unisim.backends.mujoco_warp.kernel_cache import (  # noqa: E402 - it imports warp
    CacheContents,
    cache_contents,
    compilation_progress,
    start_warp,
    without_compiling,
)
from unisim.doctor import CompilationRefused, KernelReport  # noqa: E402


class _Recorder:
    """A Warp logger that keeps what it is told."""

    def __init__(self):
        self.heard = []

    def debug(self, message):
        self.heard.append(("debug", message))

    def info(self, message):
        self.heard.append(("info", message))

    def warning(self, message, category=None, stacklevel=1):
        self.heard.append(("warning", message))

    def error(self, message):
        self.heard.append(("error", message))


@pytest.fixture
def heard(monkeypatch, tmp_path):
    """What Warp's logger from before is told, at the level that `unisim` sets; the cache is an empty folder."""
    before, recorder = warp.get_logger(), _Recorder()
    monkeypatch.setattr(warp.config, "log_level", warp.LOG_WARNING)
    monkeypatch.setattr(warp.config, "kernel_cache_dir", str(tmp_path))
    warp.set_logger(recorder)
    yield recorder.heard
    warp.set_logger(before)


def loaded(name: str, seconds: float, how: str) -> None:
    """Says what Warp says when a module has been loaded."""
    line = f"Module {name} 0123abc load on device 'cuda:0' took {1000 * seconds:.2f} ms  ({how})"
    warp.get_logger().info(line)


# ---------------------------------------------------------------- progress, on scripted messages


def test_modules_are_counted_by_where_they_came_from(heard):
    with compilation_progress("backend 'x'") as report:
        loaded("a", 0.01, "cached")
        loaded("b", 1.5, "compiled")
        loaded("c", 2.25, "compiled")
        loaded("d", 9.0, "error")
    assert report == KernelReport(cached=1, compiled=2, compile_s=3.75)


def test_what_comes_from_the_cache_is_silent(heard, caplog):
    caplog.set_level(logging.DEBUG)
    with compilation_progress("backend 'x'"):
        loaded("a", 30.0, "cached")
    assert caplog.records == []
    assert heard == []


def test_progress_is_told_at_the_start_every_ten_seconds_and_at_the_end(heard, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    with compilation_progress("backend 'x'"):
        for name, seconds in (("a", 4.0), ("b", 9.0), ("c", 1.0), ("d", 12.0)):
            loaded(name, seconds, "compiled")
        loaded("e", 0.1, "cached")
    start = f"backend 'x': compiling kernels, once for this model and device; they are kept in {tmp_path}"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", start),
        ("INFO", "backend 'x': module 1 compiled: a, 4.0 s"),
        ("INFO", "backend 'x': module 2 compiled: b, 9.0 s"),
        ("INFO", "backend 'x': module 3 compiled: c, 1.0 s"),
        ("WARNING", "backend 'x': 3 modules compiled so far, 14 s"),
        ("INFO", "backend 'x': module 4 compiled: d, 12.0 s"),
        ("WARNING", "backend 'x': 4 modules compiled so far, 26 s"),
        ("WARNING", "backend 'x': modules compiled: 4, 26 s; from the cache: 1"),
    ]
    assert {record.name for record in caplog.records} == {"unisim.backends.mujoco_warp.kernel_cache"}


def test_an_inner_watch_counts_and_leaves_the_telling_to_the_outer_one(heard, caplog):
    with compilation_progress("outer") as outer:
        loaded("a", 1.0, "compiled")
        with compilation_progress("inner") as inner:
            loaded("b", 2.0, "compiled")
    assert (outer.compiled, inner.compiled) == (2, 1)
    assert all(record.getMessage().startswith("outer: ") for record in caplog.records)
    assert caplog.records[-1].getMessage() == "outer: modules compiled: 2, 3 s; from the cache: 0"


def test_what_else_warp_says_goes_on_at_the_level_from_before(heard):
    with compilation_progress("x"):
        warp.get_logger().debug("a detail")
        warp.get_logger().info("a greeting")
        warp.get_logger().warning("a warning")
        warp.get_logger().error("an error")
    assert heard == [("warning", "a warning"), ("error", "an error")]


def test_logger_and_level_are_as_before_even_after_a_failure(heard):
    before, inside = warp.get_logger(), []
    with pytest.raises(ZeroDivisionError), compilation_progress("x"):
        inside.append(warp.get_logger() is before or 1 / 0)
    assert inside == []
    assert (warp.get_logger(), warp.config.log_level) == (before, warp.LOG_WARNING)


@pytest.mark.parametrize("how", ["level", "logger"])
def test_a_watch_that_was_blinded_says_so_instead_of_counting_wrong(heard, how):
    blind = {
        "level": lambda: setattr(warp.config, "log_level", warp.LOG_WARNING),
        "logger": lambda: warp.set_logger(_Recorder()),
    }
    message = "x: Warp's logger or log_level was changed while kernels were watched"
    with pytest.raises(RuntimeError, match=message), compilation_progress("x"):
        blind[how]()


def test_starting_warp_is_quiet_unless_another_level_was_chosen(heard, monkeypatch):
    for level, then in ((warp.LOG_INFO, warp.LOG_WARNING), (warp.LOG_DEBUG, warp.LOG_DEBUG)):
        monkeypatch.setattr(warp.config, "log_level", level)
        start_warp()
        assert warp.config.log_level == then


def test_starting_warp_does_not_blind_a_watch(heard):
    with compilation_progress("x") as report:
        start_warp()
        loaded("a", 1.0, "compiled")
    assert report.compiled == 1


# ---------------------------------------------------------------- refusing, on scripted messages


def start(name: str, *then: str) -> None:
    """Says what Warp says when it starts to load a module, and more."""
    for line in (f"Module {name} 0123abc load on device 'cuda:0' (block_dim=256) ...", *then):
        warp.get_logger().debug(line)


def test_a_module_that_the_cache_does_not_hold_is_refused_when_it_starts_to_load(heard):
    with pytest.raises(CompilationRefused, match="^m.kernels$"), without_compiling("x"):
        start("m.kernels")


def test_a_module_that_is_there_for_another_device_is_refused_when_it_starts_to_compile(heard, tmp_path):
    (tmp_path / "wp_m.kernels_0123abc").mkdir()
    with pytest.raises(CompilationRefused, match="^m.kernels$"), without_compiling("x"):
        start("m.kernels", "    Compile CUDA (arch=90, mode=release, block_dim=256) ...")


def test_modules_that_are_there_are_counted(heard, tmp_path):
    (tmp_path / "wp_m.kernels_0123abc").mkdir()
    with without_compiling("x") as report:
        start("m.kernels")
        loaded("m.kernels", 0.01, "cached")
    assert report == KernelReport(cached=1)


def test_a_refusal_reaches_the_outer_watch_through_a_backend_that_shows_progress(heard):
    with pytest.raises(CompilationRefused), without_compiling("probe"), compilation_progress("backend"):
        start("m.kernels")
    assert warp.config.log_level == warp.LOG_WARNING


def test_no_handler_of_errors_swallows_a_refusal():
    assert not issubclass(CompilationRefused, Exception)


def test_the_contents_of_a_cache_are_modules_with_their_sizes(tmp_path):
    assert cache_contents(tmp_path) == CacheContents(0, 0.0)
    for name, files in (("wp_a_1", ("a.meta", "a.o")), ("wp_b_2", ("b.meta",)), ("wp_c_3_p1_t2", ("c.cpp",))):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_bytes(bytes(2**19))
    assert cache_contents(tmp_path) == CacheContents(2, 1.5)  # c was never finished


# ---------------------------------------------------------------- with a kernel of our own, in processes of their own


@pytest.fixture
def attempt(program, monkeypatch, tmp_path):
    """Runs the kernel under a watch in a new process, with the cache in an empty folder, and returns what it saw."""
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path / "cache"))

    def run(watch: str):
        finished = program(f"""
import json, os
from unisim.backends.mujoco_warp.kernel_cache import *
from unisim.doctor import CompilationRefused
import tiny_kernel
start_warp()
seen = dict(refused="", values=[])
try:
    with {watch}("tiny") as report:
        seen["values"] = tiny_kernel.doubled()
    seen.update(cached=report.cached, compiled=report.compiled)
except CompilationRefused as refused:
    seen["refused"] = str(refused)
folder = cache_folder()
seen["lies_there"] = sorted(path.name[:14] for path in folder.iterdir())
seen["modules"] = cache_contents(folder).modules
print("seen", json.dumps(seen))
""")
        assert finished.returncode == 0, finished.stderr
        lines = finished.stdout.splitlines()
        assert len(lines) == 1, lines  # neither Warp nor its compiler writes to stdout
        return json.loads(lines[0].removeprefix("seen ")), finished.stderr

    return run


def test_a_cold_cache_is_found_cold_filled_and_found_warm(attempt):
    seen, _ = attempt("without_compiling")
    assert seen == {"refused": "tiny_kernel", "values": [], "lies_there": [], "modules": 0}
    seen, stderr = attempt("compilation_progress")
    assert seen == {
        "refused": "",
        "values": [2.0, 2.0],
        "cached": 0,
        "compiled": 1,
        "lies_there": ["wp_tiny_kernel"],
        "modules": 1,
    }
    assert "tiny: compiling kernels, once for this model and device" in stderr
    seen, stderr = attempt("without_compiling")
    assert (seen["refused"], seen["values"], seen["cached"], seen["compiled"]) == ("", [2.0, 2.0], 1, 0)
    assert "tiny: " not in stderr


def test_a_source_that_warp_had_begun_is_removed_after_a_refusal(heard, tmp_path):
    (tmp_path / "wp_m.kernels_0123abc").mkdir()
    others = tmp_path / "wp_m.kernels_0123abc_p1_t2"
    ours = tmp_path / f"wp_m.kernels_0123abc_p{os.getpid()}_t5"
    for folder in (ours, others):
        folder.mkdir()
    with pytest.raises(CompilationRefused), without_compiling("x"):
        start("m.kernels", "    Compile x86 ...")
    assert (ours.exists(), others.exists()) == (False, True)
