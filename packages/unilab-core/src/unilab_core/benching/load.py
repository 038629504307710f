"""What else a machine is doing while something is measured on it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUSY", "MachineLoad", "OtherLoad", "usable_cores"]

BUSY = 0.1
"""Share of the cores that others may use before a measurement is not to be trusted."""
_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""Columns of a processor's line in which nobody works: idle, waiting for a disk."""
_COUNTED = 8
"""The columns after these repeat what is in others."""


@dataclass(frozen=True)
class OtherLoad:
    """What others did on the CPU during a measurement; of a GPU nothing is known.

    Attributes:
        cores: Processors that this process may use.
        others: Share of their time that other processes used, 0 to 1; None where the system does not say.
        loadavg: Load average over a minute, before and after; None where the system has none.
    """

    cores: int
    others: float | None
    loadavg: tuple[float, float] | None

    @property
    def warning(self) -> str:
        """What is to be said about it; nothing where the machine was quiet."""
        if self.others is None:
            return "what other processes used is not known on this system"
        if self.others <= BUSY:
            return ""
        return (
            f"other processes used {self.others:.0%} of {self.cores} CPU cores: repeat it on a quiet machine"
        )


class MachineLoad:
    """Watches the processors that this process may use, from when it is made on."""

    def __init__(self, stat: Path = _STAT) -> None:
        """Begins to watch; `stat` is where the system counts the time of its processors."""
        self._stat = stat
        self._processors = usable_cores()
        self._busy = self._read()
        self._own = _own_s()
        self._loadavg = _loadavg()
        self._began = time.monotonic()

    def so_far(self) -> OtherLoad:
        """Returns what others did since it was made."""
        others, after = None, self._read()
        if self._busy is not None and after is not None:
            whole = (time.monotonic() - self._began) * len(self._processors)
            used = after - self._busy - (_own_s() - self._own)
            others = min(1.0, max(0.0, used / whole)) if whole > 0.0 else 0.0
        loads = self._loadavg, _loadavg()
        return OtherLoad(
            len(self._processors), others, None if None in loads else (loads[0] or 0.0, loads[1] or 0.0)
        )

    def _read(self) -> float | None:
        """Returns the seconds that all processes have used of these processors."""
        try:
            lines = [line.split() for line in self._stat.read_text().splitlines()]
        except OSError:
            return None
        ticks = 0
        for name, *columns in (line for line in lines if line):
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._processors:
                ticks += sum(int(c) for i, c in enumerate(columns[:_COUNTED]) if i not in _IDLE)
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else None


def usable_cores() -> frozenset[int]:
    """Returns the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _own_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _loadavg() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
