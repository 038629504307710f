"""What the MuJoCo-Warp backend finds on this machine: engine, CUDA devices, kernel cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from unisim.doctor import BackendDoctor, Finding, KernelReport

__all__ = ["MuJoCoWarpDoctor"]

_INSTALL = "pip install 'unisim[mujoco-warp]>=2.0'"
_PARTS = (("mujoco", "mujoco"), ("mujoco_warp", "mujoco-warp"), ("warp", "warp-lang"))
"""Name of the import and of the distribution."""


class MuJoCoWarpDoctor(BackendDoctor):
    """Looks at MuJoCo-Warp, at Warp's devices and at its kernel cache."""

    def checks(self) -> Mapping[str, Callable[[], Finding]]:
        """The engine, its devices, its cache."""
        return {"engine": _engine, "device": _device, "kernel cache": _cache}

    def kernels(self, label: str, *, allow_compiling: bool) -> AbstractContextManager[KernelReport]:
        """Returns a watch over Warp's kernel modules; see `BackendDoctor.kernels`."""
        from unisim.backends.mujoco_warp.kernel_cache import (
            compilation_progress,
            start_warp,
            without_compiling,
        )

        start_warp()
        return compilation_progress(label) if allow_compiling else without_compiling(label)


def _engine() -> Finding:
    missing = [name for module, name in _PARTS if importlib.util.find_spec(module) is None]
    if missing:
        return Finding("engine", "missing", f"{', '.join(missing)} not installed", _INSTALL)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for _, name in _PARTS)
    try:
        import mujoco_warp  # noqa: F401 - that it can be imported is the finding
    except Exception as error:  # noqa: BLE001 - an import of a binary may fail in any way
        text = f"cannot be imported ({type(error).__name__}: {error}); installed are {versions}"
        return Finding("engine", "broken", text, _INSTALL)
    return Finding("engine", "ok", versions)


def _device() -> Finding:
    import warp

    from unisim.backends.mujoco_warp.kernel_cache import start_warp

    start_warp()
    devices = warp.get_cuda_devices()
    found = warp.get_cuda_driver_version()
    toolkit = ".".join(map(str, warp.get_cuda_toolkit_version() or ("?",)))
    if not devices and found is not None and "CUDA_VISIBLE_DEVICES" not in os.environ:
        text = (
            f"the driver is for CUDA {found[0]}.{found[1]} and Warp, built by CUDA {toolkit}, finds no device"
        )
        return Finding("device", "broken", text, "update NVIDIA's driver")
    if not devices:
        text = "Warp finds no CUDA device; the CPU is used only where device='cpu' is asked for, for tests"
        return Finding("device", "note", text, "install NVIDIA's driver on a machine with a CUDA device")
    driver = ".".join(map(str, found or ("?",)))
    names = ", ".join(
        f"{device.alias} {device.name} (sm_{device.arch}, {device.total_memory / 2**30:.0f} GiB)"
        for device in devices
    )
    return Finding("device", "ok", f"{names}; driver for CUDA {driver}, kernels built by CUDA {toolkit}")


def _cache() -> Finding:
    from unisim.backends.mujoco_warp.kernel_cache import cache_contents, cache_folder

    folder = cache_folder()
    contents = cache_contents(folder)
    text = f"{folder}: {contents.modules} kernel modules, {contents.size_mib:.1f} MiB"
    if not os.access(folder, os.W_OK):
        return Finding("kernel cache", "broken", f"{text}; cannot be written to", "set WARP_CACHE_PATH")
    return Finding("kernel cache", "ok", text)
