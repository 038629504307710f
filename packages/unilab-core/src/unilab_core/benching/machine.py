"""What a measurement ran on: processor, cores, threads, graphics device, versions."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from unilab_core.benching.load import usable_cores

__all__ = ["Machine", "describe_machine", "torch_threads"]

_PACKAGES = (
    *("unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks"),
    *("mujoco", "mujoco-warp", "warp-lang", "rsl-rl-lib"),
)


@dataclass(frozen=True)
class Machine:
    """Where it was measured.

    Attributes:
        processor: What the system calls it.
        cores: Those that this process may use.
        torch_threads: Of Torch on the CPU.
        gpu: Name of the graphics device, None where the CPU was measured.
        versions: Of Python, Torch and those packages that are installed.
    """

    processor: str
    cores: int
    torch_threads: int
    gpu: str | None
    versions: dict[str, str]


def describe_machine(device: str) -> Machine:
    """Returns what is known of this machine and of a Torch device of it."""
    measured = torch.device(device)
    on_gpu = measured.type == "cuda" and torch.cuda.is_available()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return Machine(
        processor=_processor(),
        cores=len(usable_cores()),
        torch_threads=torch.get_num_threads(),
        gpu=torch.cuda.get_device_name(measured) if on_gpu else None,
        versions=versions,
    )


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Gives Torch so many threads while the block lasts; None: as it has."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
