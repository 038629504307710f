"""A bounded ring of steps in shared memory: who fills it waits while it is full, who empties it while there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Semaphore

import torch

from unilab_rl.runtime.shared_memory import shared_zeros

__all__ = ["POLL_S", "RingReader", "RingWriter", "TransitionRing"]

POLL_S = 0.2
"""Seconds for which either side waits before it looks whether the other is still there."""

_WRITTEN, _BLOCKED_NS, _BEATS = range(3)


@dataclass(frozen=True)
class TransitionRing:
    """The shared memory of one writer and one reader; it can be sent to a spawned process.

    A slot belongs to the writer from taking a permit of `free` to releasing one of `filled`, and then to the reader
    until that has copied it out. So no slot is read while it is written.
    """

    rows: torch.Tensor
    """(S, N, W) float32: packed transitions."""

    versions: torch.Tensor
    """(S,) int64: the version of the weights that acted."""

    counters: torch.Tensor
    """(3,) int64, the writer's: slots filled, nanoseconds spent waiting for a free one, and heartbeats so far."""

    free: Semaphore
    filled: Semaphore

    @classmethod
    def of(cls, context: SpawnContext, slots: int, num_envs: int, width: int) -> TransitionRing:
        """Allocates `slots` steps of `num_envs` packed rows of `width` columns.

        Raises:
            CapabilityError: There is not enough shared memory.
        """
        return cls(
            rows=shared_zeros((slots, num_envs, width), torch.float32),
            versions=shared_zeros((slots,), torch.int64),
            counters=shared_zeros((3,), torch.int64),
            free=context.Semaphore(slots),
            filled=context.Semaphore(0),
        )

    @property
    def slots(self) -> int:
        """S, the most steps that wait."""
        return self.rows.shape[0]

    @property
    def written(self) -> int:
        """Slots filled so far."""
        return int(self.counters[_WRITTEN])

    @property
    def blocked_s(self) -> float:
        """Seconds for which the writer has waited for a free slot so far."""
        return int(self.counters[_BLOCKED_NS]) / 1e9

    @property
    def beats(self) -> int:
        """How often the writer has said that it moves; it never falls, and stands still only while the writer does."""
        return int(self.counters[_BEATS])


class RingWriter:
    """Fills slots in order; there may be only one."""

    def __init__(self, ring: TransitionRing) -> None:
        """Makes the writer of a ring that nobody has written to."""
        self._ring = ring
        self._written = 0

    def beat(self) -> None:
        """Says that the writer moves."""
        self._ring.counters[_BEATS] += 1

    def put(self, packed: torch.Tensor, version: int, stopped: Callable[[], bool]) -> bool:
        """Copies one step into the next slot, waiting for a free one; returns False where it was stopped instead.

        It beats once for the step, and every `POLL_S` seconds while waiting.

        Args:
            packed: (N, W) float32.
            version: Of the weights that acted.
            stopped: Asked before waiting, and every `POLL_S` seconds while waiting, whether to give up.
        """
        ring = self._ring
        began = time.monotonic_ns()
        self.beat()
        while not ring.free.acquire(timeout=POLL_S):
            ring.counters[_BLOCKED_NS] += time.monotonic_ns() - began
            began = time.monotonic_ns()
            self.beat()
            if stopped():
                return False
        ring.counters[_BLOCKED_NS] += time.monotonic_ns() - began
        if stopped():
            return False
        slot = self._written % ring.slots
        ring.rows[slot].copy_(packed)
        ring.versions[slot] = version
        self._written += 1
        ring.counters[_WRITTEN] = self._written
        ring.filled.release()
        return True


class RingReader:
    """Empties slots in order; there may be only one."""

    def __init__(self, ring: TransitionRing) -> None:
        """Makes the reader of a ring that nobody has read from."""
        self._ring = ring
        self.read = 0
        """Slots emptied so far."""

        self.waited_s = 0.0
        """Seconds spent waiting for a filled slot so far."""

    @property
    def occupancy(self) -> int:
        """Steps that wait in the ring now."""
        return self._ring.written - self.read

    def get(self, check: Callable[[], None]) -> tuple[torch.Tensor, int]:
        """Waits for the next step and returns a copy, (N, W) float32, and the version of the weights that acted.

        Args:
            check: Called every `POLL_S` seconds while waiting; raises where there is nothing to wait for.
        """
        # No local name for the ring: the traceback of an error keeps it, and its semaphores' names with it.
        began = time.monotonic()
        while not self._ring.filled.acquire(timeout=POLL_S):
            check()
        self.waited_s += time.monotonic() - began
        slot = self.read % self._ring.slots
        packed, version = self._ring.rows[slot].clone(), int(self._ring.versions[slot])
        self.read += 1
        self._ring.free.release()
        return packed, version

    def close(self) -> None:
        """Lets go of the ring; nothing can be read afterwards."""
        del self._ring
