"""Runs checks, each in a process of its own and within its time, and keeps the result on disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_checks.reporting import read_findings

__all__ = ["Check", "Outcome", "Runner", "table"]

SCHEMA = 1
GRACE_S = 3.0
"""After its time a check has this long to say where it hangs."""
POLL_S = 0.5
TAIL = 6000
"""Characters of a failed check's output that are kept."""
GOOD = ("passed", "dry")


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: What it is called.
        function: `"module:function"`; called with a `Report`.
        what: What it shows, in one line.
        seconds: The most that it may take.
        required: Whether nothing after it makes sense unless it is fine.
        shares: Whether it may run beside others: it measures no time.
    """

    name: str
    function: str
    what: str
    seconds: float
    required: bool = False
    shares: bool = False


@dataclass
class Outcome:
    """What became of a check.

    Attributes:
        name: Of the check.
        what: Of the check.
        verdict: `"passed"`, `"dry"` (all is well, in a dry run), `"failed"`, `"raised"`, `"hung"`, `"died"`,
            `"running"`, `"stopped"`, or `"not run: ..."` with the reason.
        seconds: How long it took.
        figures: What it measured.
        faults: What is wrong.
        not_shown: What only a GPU can show.
        trace: The traceback or the end of the output, where something is wrong.
    """

    name: str
    what: str
    verdict: str = "not run: stopped before"
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    trace: str = ""


class Runner:
    """Runs checks in the order given; those that share the machine run side by side with their neighbours.

    The result file is complete JSON at every moment: it is replaced whenever a check says something.

    Attributes:
        outcomes: What has become of every check so far, in the order given.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        *,
        device: str,
        dry: bool,
        minutes: float,
        result: Path,
        environment: Mapping[str, str],
        jobs: int = 1,
        tell: Callable[[str], None] = print,
    ) -> None:
        """Makes a runner.

        Args:
            checks: What to run.
            device: Torch device, handed to every check.
            dry: Whether this is a dry run.
            minutes: Total time; checks that it leaves no time for are not run.
            result: The JSON file.
            environment: Of the checks' processes.
            jobs: Most checks at a time.
            tell: Prints a line.
        """
        self._checks, self._device, self._dry = checks, device, dry
        self._minutes, self._result, self._jobs = minutes, result, jobs
        self._environment, self._tell = environment, tell
        self.outcomes = [Outcome(check.name, check.what) for check in checks]
        self._began, self._end = time.time(), time.monotonic() + 60.0 * minutes
        self._status = "running"
        self._writing, self._stopping = threading.Lock(), threading.Event()

    def run(self) -> int:
        """Runs everything; returns 0 if every check is fine and 1 if not.

        Raises:
            KeyboardInterrupt: Somebody stops it; the result says so.
        """
        self._write()
        blocked = ""
        try:
            with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
                for batch in _batches(self._checks):
                    self._run_batch(batch, Path(folder), blocked)
                    for check, outcome in self._of(batch):
                        if check.required and outcome.verdict not in GOOD:
                            blocked = f"{check.name} is not fine"
        except BaseException:
            self._status = "stopped"
            raise
        else:
            self._status = "finished"
        finally:
            self._write()
        return 0 if all(outcome.verdict in GOOD for outcome in self.outcomes) else 1

    def _of(self, batch: range) -> Iterator[tuple[Check, Outcome]]:
        return ((self._checks[i], self.outcomes[i]) for i in batch)

    def _run_batch(self, batch: range, folder: Path, blocked: str) -> None:
        with ThreadPoolExecutor(self._jobs) as pool:
            running = [
                pool.submit(self._run_or_skip, check, outcome, folder / check.name, blocked)
                for check, outcome in self._of(batch)
            ]
            try:
                for future in running:
                    future.result()
            except BaseException:
                self._stopping.set()  # the threads see it, end their processes, and are waited for
                raise

    def _run_or_skip(self, check: Check, outcome: Outcome, folder: Path, blocked: str) -> None:
        if self._stopping.is_set():
            return
        left = self._end - time.monotonic()
        if blocked or left <= 0.0:
            outcome.verdict = f"not run: {blocked or 'out of time'}"
            self._tell(f"{check.name}: {outcome.verdict}")
        else:
            self._run(check, outcome, min(check.seconds, left), folder)
        self._write()

    def _run(self, check: Check, outcome: Outcome, seconds: float, folder: Path) -> None:
        work, lines, log = folder / "work", folder / "lines.jsonl", folder / "output.txt"
        work.mkdir(parents=True)
        outcome.verdict = "running"
        self._write()
        began = time.monotonic()
        command = [sys.executable, "-m", "gpu_checks.child", check.function]
        command += ["--device", self._device, *(["--dry"] if self._dry else [])]
        command += ["--lines", str(lines), "--folder", str(work), "--seconds", str(seconds)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self._environment),
                start_new_session=True,  # so that it can be ended with all that it started
            )
            try:
                hung = self._wait(process, began + seconds + GRACE_S, outcome, lines)
            finally:
                _end(process)
        outcome.seconds = round(time.monotonic() - began, 1)
        self._take(outcome, lines)
        if self._stopping.is_set():
            outcome.verdict = "stopped"
            return
        _judge(outcome, lines, log, process.returncode, hung=hung, dry=self._dry, seconds=seconds)
        fault = outcome.faults[:1] or outcome.trace.strip().splitlines()[-1:]
        self._tell(
            f"{check.name}: {outcome.verdict} in {outcome.seconds} s{': ' + fault[0] if fault else ''}"
        )

    def _wait(self, process: subprocess.Popen[bytes], end: float, outcome: Outcome, lines: Path) -> bool:
        """Waits for a check, and keeps the result up to date; returns whether it outlasted its time."""
        size = 0
        while not self._stopping.is_set():
            try:
                process.wait(timeout=max(0.01, min(POLL_S, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end:
                    return True
            else:
                return False
            now = lines.stat().st_size if lines.exists() else 0
            if now != size:
                size = now
                self._take(outcome, lines)
                self._write()
        return False

    def _take(self, outcome: Outcome, lines: Path) -> None:
        found = read_findings(lines)
        outcome.figures, outcome.faults, outcome.not_shown = found.figures, found.faults, found.not_shown

    def _write(self) -> None:
        """Replaces the result file: it is never half written."""
        with self._writing:
            verdicts = [outcome.verdict for outcome in self.outcomes]
            content = {
                "schema": SCHEMA,
                "status": self._status,
                "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
                "seconds": round(time.time() - self._began, 1),
                "device": self._device,
                "dry": self._dry,
                "minutes": self._minutes,
                "summary": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
                "checks": [asdict(outcome) for outcome in self.outcomes],
            }
            self._result.parent.mkdir(parents=True, exist_ok=True)
            partial = self._result.with_name(f".{self._result.name}.partial")
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            os.replace(partial, self._result)


def _batches(checks: Sequence[Check]) -> Iterator[range]:
    """Yields the places of checks that may run at one time."""
    start = 0
    for stop in range(1, len(checks) + 1):
        if stop == len(checks) or not (checks[stop - 1].shares and checks[stop].shares):
            yield range(start, stop)
            start = stop


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(
    outcome: Outcome, lines: Path, log: Path, status: int, *, hung: bool, dry: bool, seconds: float
) -> None:
    found = read_findings(lines)
    tail = log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
    if hung:
        outcome.verdict, outcome.trace = "hung", tail
        outcome.faults.append(f"it took longer than {seconds:.0f} s")
    elif found.raised:
        outcome.verdict, outcome.trace = "raised", found.raised
    elif not found.ended or status != 0:
        outcome.verdict, outcome.trace = "died", tail
        when = "after its end" if found.ended else "before its end"
        outcome.faults.append(f"its process ended with status {status} {when}")
    elif outcome.faults:
        outcome.verdict, outcome.trace = "failed", tail
    else:
        outcome.verdict = "dry" if dry else "passed"


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns the outcomes as lines, with what is wrong and what was not shown below them."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    rows = [f"{o.name:{width}}  {o.seconds:6.1f} s  {o.verdict:8}  {o.what}" for o in outcomes]
    rows += [f"{o.name}: {fault}" for o in outcomes for fault in o.faults]
    missing = sum(len(o.not_shown) for o in outcomes)
    if missing:
        rows.append(f"{missing} expectations are about a GPU and were not shown")
    return "\n".join(rows)
