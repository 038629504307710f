"""What a check says while it runs, as lines of a file: whatever ends it, what it had found by then is there.

Nothing here imports torch: the runner reads these lines on machines that have none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Findings", "Report", "read_findings"]

T = TypeVar("T")


class Report:
    """What a check is given: the device, sizes that fit a dry run, and the ways to say what was found.

    Attributes:
        device: Torch device to check, for example `"cuda:0"`; `"cpu"` in a dry run.
        dry: Whether this is a dry run: every line of code runs, nothing is shown about a GPU.
        folder: A folder of the check's own.
    """

    def __init__(self, device: str, *, dry: bool, lines: Path, folder: Path) -> None:
        """Appends to the file `lines`."""
        self.device, self.dry, self.folder = device, dry, folder
        self._lines = lines

    def pick(self, full: T, dry: T) -> T:
        """Returns the first of two sizes, or the second in a dry run."""
        return dry if self.dry else full

    def figure(self, name: str, value: object) -> None:
        """Records a measurement or a fact; plain data."""
        self._write({"figure": name, "value": value})

    def expect(self, holds: bool, message: str) -> None:
        """Records a fault unless `holds`; the check goes on, so that one run finds all faults."""
        if not holds:
            self._write({"fault": message})

    def expect_on_gpu(self, holds: bool, message: str) -> None:
        """As `expect`, for what only a GPU can show: a dry run records it as not shown, whatever it is."""
        if self.dry:
            self.not_shown(message)
        else:
            self.expect(holds, message)

    def not_shown(self, message: str) -> None:
        """Records that it stays open whether there is this fault."""
        self._write({"not_shown": message})

    def at_most(self, name: str, value: float, limit: float) -> None:
        """Records a figure, and a fault unless it is a number of at most `limit`."""
        self.figure(name, value)
        self.expect(value <= limit, f"{name} is {value:.3g}, expected at most {limit:.3g}")

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Records how many seconds the block takes."""
        began = time.perf_counter()
        yield
        self.figure(name, round(time.perf_counter() - began, 3))

    def raised(self, trace: str) -> None:
        """Records the traceback of what ended the check."""
        self._write({"raised": trace})

    def ended(self) -> None:
        """Records that the check came to its end."""
        self._write({"ended": True})

    def _write(self, entry: dict[str, object]) -> None:
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, default=str) + "\n")


@dataclass
class Findings:
    """What the lines of a check hold so far."""

    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    """Faults of which it stays open whether they are there."""
    raised: str = ""
    ended: bool = False


def read_findings(lines: Path) -> Findings:
    """Returns what a check has said; a last line that was cut off is left out."""
    found = Findings()
    if not lines.exists():
        return found
    for line in lines.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the process ended within it
        if "figure" in entry:
            found.figures[entry["figure"]] = entry["value"]
        elif "fault" in entry:
            found.faults.append(entry["fault"])
        elif "not_shown" in entry:
            found.not_shown.append(entry["not_shown"])
        elif "raised" in entry:
            found.raised = entry["raised"]
        else:
            found.ended = True
    return found
