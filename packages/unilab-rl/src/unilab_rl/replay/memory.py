"""How much memory a device has left, asked before a large allocation."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from unilab_core import ConfigError

__all__ = ["available_bytes", "check_memory", "readable_bytes"]

_USABLE = 0.9
"""Of what is free, the part that one allocation may take; networks and the environment need the rest."""


def check_memory(owner: str, needed: int, device: torch.device, advice: str) -> None:
    """Checks that `needed` bytes can be allocated: an operating system hands out memory that it doesn't have.

    Raises:
        ConfigError: They can't; says how many are free and what to lower.
    """
    free = available_bytes(device)
    if needed > _USABLE * free:
        raise ConfigError(
            f"{owner}: needs {readable_bytes(needed)} on {device}, where {readable_bytes(free)} are free and "
            f"{readable_bytes(int(_USABLE * free))} may be used; {advice}"
        )


def available_bytes(device: torch.device) -> int:
    """Returns how many bytes can still be allocated on a device, as the system sees it now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch keeps for itself and doesn't use is given back when an allocation would fail otherwise.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(_system_bytes(), _container_bytes(Path("/sys/fs/cgroup")))


def _system_bytes() -> int:
    """Bytes that Linux calls available; elsewhere all that are built in, for want of a better number."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_bytes(folder: Path) -> int:
    """What the limit of a container (cgroup v2) leaves; without one, more than any machine has."""
    unlimited = 2**63
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return unlimited
    # Copies of files that nobody has read lately count as used, and are dropped when memory is needed.
    used -= int(statistics.get("inactive_file", "0"))
    return unlimited if limit == "max" else max(0, int(limit) - used)


def readable_bytes(count: int) -> str:
    """Returns for example `"1.50 GiB"`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"
