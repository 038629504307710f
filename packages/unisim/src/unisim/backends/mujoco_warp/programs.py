"""Sequences of launches that are captured in a graph, or made one by one where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import warp as wp

__all__ = ["Program"]


class Program:
    """One fixed sequence of launches over arrays whose addresses never change."""

    def __init__(self, launch: Callable[[], None], device: Any, *, capture: bool) -> None:  # noqa: ANN401
        """Captures the launches, which does not execute them; call it inside `WarpStream.work`.

        Args:
            launch: Makes the launches.
            device: Warp's device.
            capture: Whether to capture; else every call launches again.
        """
        self._launch: Callable[[], None] | None = None if capture else launch
        self._graph: Any = None
        if capture:
            with wp.ScopedCapture(device) as recording:
                launch()
            self._graph = recording.graph

    def __call__(self) -> None:
        """Executes the sequence, on the stream of the `WarpStream.work` around it."""
        if self._launch is not None:
            self._launch()
        else:
            wp.capture_launch(self._graph)
