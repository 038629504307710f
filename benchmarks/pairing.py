"""Two processes that take turns: windows of both in pairs, the order changing from pair to pair."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_envs import HERE, PeerError, clean

from unilab_core.benching.intervals import Median, median_of

__all__ = [
    "Compared",
    "Process",
    "check_alike",
    "compare",
    "quiet_environment",
    "started",
    "trace_difference",
]


def quiet_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment of a measured process: so many threads of torch's own, none of them spinning."""
    quiet = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return {"MUJOCO_GL": "egl"} | clean(os.environ) | quiet | {"PYTHONPATH": str(HERE)}


class Process:
    """A side in a process of its own; see `side.py`."""

    def __init__(self, name: str, python: Path, script: Path, request: Mapping[str, Any]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(script), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=quiet_environment(),
        )
        self._reply()

    def ask(self, call: str, **arguments: object) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            PeerError: The process ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # no reply will come either, and that is reported
            self._process.stdin.write(json.dumps({"call": call, **arguments}) + "\n")
            self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise PeerError(f"{self.name} ended with {self._process.returncode}: it says why above")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """End it, and wait until it is gone; idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()


@contextmanager
def started(name: str, python: Path, script: Path, request: Mapping[str, Any]) -> Iterator[Process]:
    """Run a side for as long as the block lasts."""
    process = Process(name, python, script, request)
    try:
        yield process
    finally:
        process.close()


@dataclass
class Compared:
    """What windows of two sides took, pair by pair; side 0 is ours.

    Attributes:
        env_steps: Of one window.
        seconds: Of each window, by the clock.
        cpu_s: Of each window, of all threads together: others on the machine make it longer by little.
        ended: Episodes that ended, in all windows.
        idle_cpu_s: What a side computed while the other one had its turn, in all.
    """

    env_steps: int
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    cpu_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    ended: list[int] = field(default_factory=lambda: [0, 0])
    idle_cpu_s: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def rate(self, side: int) -> Median:
        """Environment steps per second of a side."""
        return median_of([self.env_steps / s for s in self.seconds[side]])

    def ratio(self) -> Median:
        """How many times as many environment steps per second ours makes, of each pair."""
        return median_of([peer / ours for ours, peer in zip(*self.seconds, strict=True)])

    def cpu_ratio(self) -> Median:
        """How many times the processor time the peer takes, of each pair."""
        return median_of([peer / ours for ours, peer in zip(*self.cpu_s, strict=True)])


def compare(sides: Sequence[Process], *, num_envs: int, steps: int, pairs: int) -> Compared:
    """Step both sides in turn; they have been prepared. Every other pair begins with the other side."""
    found = Compared(env_steps=num_envs * steps)
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            reply = sides[side].ask("window", steps=steps)
            found.seconds[side].append(reply["seconds"])
            found.cpu_s[side].append(reply["cpu_s"])
            found.ended[side] += reply["ended"]
            found.idle_cpu_s[side] += reply["idle_cpu_s"]
    return found


def ask_once(name: str, python: Path, script: Path, request: Mapping[str, Any]) -> Any:
    """Run a script that prints one reply, and return that.

    Raises:
        PeerError: It failed.
    """
    command = [str(python), "-W", "ignore", str(script), json.dumps(request)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=quiet_environment())
    if ran.returncode != 0:
        raise PeerError(f"{name} ended with {ran.returncode}: it says why above")
    return json.loads(ran.stdout)


def check_alike(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    without: Sequence[str] = (),
    tolerance: float = 1e-5,
) -> None:
    """Check that both sides do the same work, as far as facts say it.

    Args:
        ours: Facts of one side.
        theirs: Facts of the other.
        without: Facts that may differ.
        tolerance: How far numbers may differ, relative to the larger or to 1: MJCF rounds what it writes.

    Raises:
        PeerError: A fact differs.
    """
    different = [
        f"{name}: {ours.get(name)!r} here, {theirs.get(name)!r} there"
        for name in dict.fromkeys([*ours, *theirs])
        if name not in without and not _alike(ours.get(name), theirs.get(name), tolerance)
    ]
    if different:
        raise PeerError("the two sides would not do the same work; " + "; ".join(different))


def trace_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest difference of observations and of rewards between two traces.

    Raises:
        PeerError: They differ in shape or in which episodes ended when.
    """
    if ours["ended"] != theirs["ended"]:
        raise PeerError(f"episodes ended at {ours['ended'][:4]} here, at {theirs['ended'][:4]} there")
    return {name: _farthest(ours[name], theirs[name]) for name in ("observations", "rewards")}


def _farthest(a: Any, b: Any) -> float:
    if isinstance(a, list):
        if len(a) != len(b):
            raise PeerError(f"{len(a)} values here, {len(b)} there")
        return max((_farthest(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    difference = abs(float(a) - float(b))
    return difference if math.isfinite(difference) else math.inf


def _alike(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
    return bool(a == b)
