"""What the MuJoCo-Warp backend finds on a machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from types import SimpleNamespace

import pytest

warp = pytest.importorskip("warp")

from unisim.backends.mujoco_warp import kernel_cache  # noqa: E402 - it imports warp
from unisim.backends.mujoco_warp.doctor import MuJoCoWarpDoctor  # noqa: E402
from unisim.backends.mujoco_warp.kernel_cache import CacheContents  # noqa: E402
from unisim.doctor import BackendDoctor, CompilationRefused, Finding  # noqa: E402

INSTALL = "pip install 'unisim[mujoco-warp]>=2.0'"


def check(name: str) -> Finding:
    return MuJoCoWarpDoctor().checks()[name]()


def test_it_looks_at_the_engine_first():
    assert list(MuJoCoWarpDoctor().checks()) == ["engine", "device", "kernel cache"]


def test_the_engine_is_named_with_the_versions_of_its_parts():
    parts = [f"{name} {importlib.metadata.version(name)}" for name in ("mujoco", "mujoco-warp", "warp-lang")]
    assert check("engine") == Finding("engine", "ok", ", ".join(parts))


def test_parts_that_are_not_there_are_missing_with_the_extra_to_install(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("warp", "mujoco_warp") else found(name)
    )
    text = "mujoco-warp, warp-lang not installed"
    assert check("engine") == Finding("engine", "missing", text, INSTALL)


def _cuda(monkeypatch, devices, driver):
    monkeypatch.setattr(warp, "get_cuda_devices", lambda: devices)
    monkeypatch.setattr(warp, "get_cuda_driver_version", lambda: driver)
    monkeypatch.setattr(warp, "get_cuda_toolkit_version", lambda: (13, 4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_cuda_devices_are_named_with_their_driver(monkeypatch):
    device = SimpleNamespace(alias="cuda:0", name="A Card", arch=90, total_memory=80 * 2**30)
    _cuda(monkeypatch, [device], (13, 2))
    text = "cuda:0 A Card (sm_90, 80 GiB); driver for CUDA 13.2, kernels built by CUDA 13.4"
    assert check("device") == Finding("device", "ok", text)


def test_no_device_and_no_driver_is_only_worth_a_note(monkeypatch):
    _cuda(monkeypatch, [], None)
    assert check("device").state == "note"
    assert "Warp finds no CUDA device" in check("device").text


def test_a_driver_without_a_device_is_broken_unless_devices_are_hidden(monkeypatch):
    _cuda(monkeypatch, [], (11, 4))
    text = "the driver is for CUDA 11.4 and Warp, built by CUDA 13.4, finds no device"
    assert check("device") == Finding("device", "broken", text, "update NVIDIA's driver")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert check("device").state == "note"


@pytest.mark.parametrize("writable", [True, False])
def test_the_cache_is_named_with_what_lies_in_it_and_must_be_writable(monkeypatch, tmp_path, writable):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_cache, "cache_contents", lambda folder: CacheContents(42, 6.25))
    monkeypatch.setattr(os, "access", lambda path, mode: writable)
    text = f"{tmp_path}: 42 kernel modules, 6.2 MiB"
    if writable:
        assert check("kernel cache") == Finding("kernel cache", "ok", text)
    else:
        assert check("kernel cache") == Finding(
            "kernel cache", "broken", f"{text}; cannot be written to", "set WARP_CACHE_PATH"
        )


def test_kernels_are_watched_and_refused_only_where_compiling_is_not_allowed():
    assert MuJoCoWarpDoctor.kernels is not BackendDoctor.kernels
    begins = "Module nobody.has.this 0000000 load on device 'cpu' ..."
    with MuJoCoWarpDoctor().kernels("x", allow_compiling=True):
        warp.get_logger().debug(begins)
    with pytest.raises(CompilationRefused), MuJoCoWarpDoctor().kernels("x", allow_compiling=False):
        warp.get_logger().debug(begins)
