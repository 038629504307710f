"""Ctrl-C in two strengths: once to finish the iteration, twice to stop now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["InterruptGuard"]


class InterruptGuard:
    """While entered, the first SIGINT only sets `requested`; the second raises `KeyboardInterrupt`.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """Makes a guard.

        Args:
            on_first: Called inside the signal handler at the first SIGINT; must not print through buffered streams.
        """
        self.requested = False
        self._on_first = on_first
        self._deaf = False
        self._previous: Any = None
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> InterruptGuard:
        if self._active:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    def ignore_from_now(self) -> None:
        """Ignores further SIGINTs: what is being written now is short and must be whole."""
        self._deaf = True

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self._deaf:
            return
        if self.requested:
            self._deaf = True  # a third one must not cut short what the second one's handling saves
            raise KeyboardInterrupt
        self.requested = True
        self._on_first()
