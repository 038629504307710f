"""The checks of `unilab doctor` that concern no backend: Python, the installed layers, Torch, CUDA, threads."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement

from unisim.doctor import Finding

__all__ = [
    "LAYERS",
    "check_cuda",
    "check_layer",
    "check_layers",
    "check_python",
    "check_threads",
    "check_torch",
]

LAYERS = ("unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks")
_OVERWRITES = "unisim-core"
"""Another project's distribution that installs its files over those of our `unisim`."""
_NVIDIA = Path("/proc/driver/nvidia/version")
_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")


def check_python() -> Finding:
    """The interpreter, against what this package asks for."""
    wanted = distribution("unilab-core").metadata["Requires-Python"]
    text = f"Python {platform.python_version()} ({platform.system()} {platform.machine()}), {sys.executable}"
    if not Requirement(f"python{wanted}").specifier.contains(platform.python_version(), prereleases=True):
        return Finding("Python", "broken", f"{text}; unilab-core needs {wanted}", f"install Python {wanted}")
    return Finding("Python", "ok", text)


def check_layers() -> list[Finding]:
    """Every layer of the workspace, and whether what it asks for is installed."""
    return [check_layer(name) for name in LAYERS]


def check_layer(name: str) -> Finding:
    """One layer: its version, and whether its dependencies are there in the range that it names.

    What only an extra asks for may be missing; where it is installed in a version out of range, that is a note, since
    nobody need have asked for the extra.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return Finding(
            name, "missing", "not installed", f"install {name} from the source of the other layers"
        )
    if name == "unisim" and _installed(_OVERWRITES):
        return Finding(
            name,
            "broken",
            f"{found.version}, and {_OVERWRITES} {version(_OVERWRITES)}, which overwrites its files",
            f"pip uninstall {_OVERWRITES}, then install unisim again",
        )
    wrong: list[str] = []
    unfit: list[str] = []
    for line in found.requires or []:
        requirement = Requirement(line)
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        have = _installed(requirement.name)
        if have is None:
            if needed:
                wrong.append(f"{requirement.name}{requirement.specifier} is missing")
        elif not requirement.specifier.contains(have, prereleases=True):
            (wrong if needed else unfit).append(f"{requirement.name} is {have}, not {requirement.specifier}")
    if wrong:
        return Finding(
            name,
            "broken",
            f"{found.version}; {'; '.join(wrong)}",
            f"install {name} again, with what it needs",
        )
    if unfit:
        return Finding(name, "note", f"{found.version}; for its extras {'; '.join(sorted(set(unfit)))}")
    return Finding(name, "ok", found.version)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_torch() -> Finding:
    """Torch, and for what it was built."""
    import torch

    if torch.version.hip:
        text = f"Torch {torch.__version__}, built for ROCm {torch.version.hip}"
        return Finding("torch", "note", text, "devices of ROCm are not supported; the CPU is")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    torch.ones(3).sum().item()
    return Finding("torch", "ok", f"Torch {torch.__version__}, built for {build}")


def check_cuda() -> Finding:
    """CUDA devices as Torch sees them; each one computes something."""
    import torch

    driver = _driver()
    if torch.version.cuda is None:
        if not driver:
            return Finding("CUDA", "missing", "no NVIDIA driver, and Torch is a build for the CPU")
        text = f"{driver} is there, but Torch is a build without CUDA"
        return Finding("CUDA", "missing", text, "uv pip install --torch-backend=auto --reinstall torch")
    if not torch.cuda.is_available():
        if not driver or "CUDA_VISIBLE_DEVICES" in os.environ:
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            text = "no NVIDIA driver" if not driver else f"{driver}; CUDA_VISIBLE_DEVICES={hidden!r}"
            return Finding("CUDA", "missing", f"no device: {text}")
        text = f"{driver} is there, but Torch, built for CUDA {torch.version.cuda}, finds no device"
        return Finding(
            "CUDA", "broken", text, "update NVIDIA's driver, or install a Torch of its CUDA version"
        )
    devices = []
    for index in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(index)
        torch.ones(3, device=f"cuda:{index}").sum().item()
        devices.append(f"cuda:{index} {of.name} (sm_{of.major}{of.minor}, {of.total_memory / 2**30:.0f} GiB)")
    return Finding("CUDA", "ok", f"{', '.join(devices)}; {driver or 'driver unknown'}")


def _driver() -> str:
    """Returns the version of NVIDIA's driver and of the CUDA that it supports, or an empty text: there is none."""
    parts = []
    try:
        number = re.search(r"\b\d+\.\d+(\.\d+)?\b", _NVIDIA.read_text())
        parts.append(f"NVIDIA driver {number[0]}" if number else "NVIDIA driver")
    except OSError:
        pass  # elsewhere the library below is all there is
    try:
        library, supported = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(supported)) == 0 and supported.value:
            parts.append(f"CUDA {supported.value // 1000}.{supported.value % 1000 // 10}")
    except (OSError, AttributeError):
        pass  # no such library: no driver
    return ", ".join(parts)


def check_threads() -> Finding:
    """Cores, Torch's threads, and the two variables that decide how they share cores with physics."""
    import torch

    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    allowed = _allowed_cores()
    limit = usable if allowed is None else min(usable, max(1, int(allowed)))
    threads, policy = torch.get_num_threads(), os.environ.get("OMP_WAIT_POLICY", "")
    parts = [f"{cores} cores", f"{usable} for this process"]
    if allowed is not None:
        parts.append(f"time on {allowed:g} of them")
    parts += [f"Torch computes on {threads}", f"OMP_WAIT_POLICY={policy or 'not set'}"]
    parts.append(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS') or 'not set'}")
    advice = []
    if policy.upper() != "PASSIVE":
        advice.append(
            "set OMP_WAIT_POLICY=PASSIVE before Torch is imported: threads that spin take cores from physics"
        )
    if threads > limit:
        advice.append(f"set OMP_NUM_THREADS={limit}")
    if allowed is not None and allowed < usable:
        advice.append(f"give SimCfg.num_threads={limit}: physics counts cores, not what may be used of them")
    return Finding("threads", "note" if advice else "ok", "; ".join(parts), "; ".join(advice))


def _allowed_cores() -> float | None:
    """Returns how many cores' time a container may use, or None: as many as there are."""
    try:
        quota, period = _CGROUP_CPU.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)
