"""How many Torch threads compute a step: physics has its own, and a small batch is slower on several."""

from __future__ import annotations

from types import TracebackType

import torch

__all__ = ["ROWS_PER_THREAD", "ComputeThreads"]

ROWS_PER_THREAD = 2048
"""Waking a thread takes about 50 us, as long as an operator on a few thousand rows."""


class ComputeThreads:
    """Limits Torch, while a block lasts, to as many threads as its rows are worth.

    Of 512 rows `torch.exp` takes 50 us on two threads and 1.3 us on one, and the engine's threads would have to share
    the cores with those that wait. What comes after the block, as a policy or an update, has all threads again. Setting
    the number takes a tenth of a microsecond.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        """Counts threads for `num_envs` rows; on another device than the CPU nothing is limited."""
        self.most = max(1, num_envs // ROWS_PER_THREAD) if device.type == "cpu" else None
        self._before: list[int] = []  # of blocks inside each other: a hook may reset rows

    def __enter__(self) -> None:
        """Limits the threads."""
        before = torch.get_num_threads()
        self._before.append(before)
        if self.most is not None and before > self.most:
            torch.set_num_threads(self.most)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives back as many as there were."""
        before = self._before.pop()
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
