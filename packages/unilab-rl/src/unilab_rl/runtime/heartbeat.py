"""Tells a process that works slowly from one that is stopped or hangs, by a count that only work raises."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["HeartbeatWatch"]


class HeartbeatWatch:
    """Measures for how long a count has stood still while somebody waited for it.

    Only time spent waiting counts, and little of it between two looks: a watcher that was busy, or was itself stopped
    together with the watched (Ctrl-Z), knows nothing about what the other could have done meanwhile.
    """

    def __init__(self, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Makes a watch.

        Args:
            longest_s: The most seconds that count between two looks.
            clock: Returns seconds, of which only differences are used.
        """
        self._longest_s = longest_s
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begins a wait: what was seen before is forgotten."""
        self._beats: int | None = None
        self._looked = self._clock()
        self._still_s = 0.0

    def look(self, beats: int) -> float:
        """Returns the seconds for which the count has been `beats`, as far as this wait has seen it."""
        now = self._clock()
        passed, self._looked = min(now - self._looked, self._longest_s), now
        self._still_s = self._still_s + passed if beats == self._beats else 0.0
        self._beats = beats
        return self._still_s
