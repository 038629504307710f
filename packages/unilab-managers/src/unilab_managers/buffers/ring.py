"""The last L frames of every row, read without moving them."""

from __future__ import annotations

from typing import ClassVar

import torch

__all__ = ["FrameRing"]


class FrameRing:
    """The last `length` frames (L) of N rows with D columns each.

    All rows share one write head, so a push writes one frame and moves none. Every slot exists twice, L apart: the
    frames from the oldest to the newest are then always one slice, and no index wraps around. A push costs two
    operators (one of them a view), `frames` one view, `at` three; memory is twice that of the frames.

    A row has no count of its frames: `fill` writes all its slots. The frames before the first of an episode therefore
    equal that first one, and a lag that reaches beyond it finds it, never a frame of the episode before. Until a row
    was filled once, its frames are zeros.

    Attributes:
        length: L.
        dim: D.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("length", "dim", "_rows")

    def __init__(self, num_envs: int, length: int, dim: int, device: torch.device | str) -> None:
        """Allocates the frames, all zeros.

        Raises:
            ValueError: `num_envs`, `length` or `dim` is not positive.
        """
        for name, value in (("num_envs", num_envs), ("length", length), ("dim", dim)):
            if value < 1:
                raise ValueError(f"FrameRing: {name} is {value}, expected at least 1")
        self.length = length
        self.dim = dim
        self._cells = torch.zeros(num_envs, 2 * length, dim, device=device)
        self._rows = torch.arange(num_envs, device=device)
        self._head = length - 1
        """Slot of the newest frame, 0 <= head < L; its twin is at head + L."""

    def push(self, frame: torch.Tensor) -> None:
        """Stores a new frame of every row, (N, D) float32, in place of the oldest; the values are copied."""
        self._head = (self._head + 1) % self.length
        n, slots, dim = self._cells.shape
        # Both slots at once, (2, N, D): one view, where a slice of the cells and a frame made to fit are two.
        twins = self._cells.as_strided((2, n, dim), (self.length * dim, slots * dim, 1), self._head * dim)
        twins.copy_(frame)

    def fill(self, env_ids: torch.Tensor, frame: torch.Tensor) -> None:
        """Makes every frame of the rows `env_ids`, (K,) int64, equal to their row of `frame`, (K, D) float32."""
        self._cells[env_ids] = frame.unsqueeze(1)

    def at(self, lag: torch.Tensor) -> torch.Tensor:
        """Returns the frame of each row `lag` pushes ago, (N, D) float32, fresh.

        Args:
            lag: (N,) int64, 0 for the newest; never negative. One that reaches beyond the oldest frame gets the oldest.
        """
        slots = ((self._head + self.length) - lag).clamp_(min=self._head + 1)
        return self._cells[self._rows, slots]

    def oldest(self) -> torch.Tensor:
        """Returns the frame of L - 1 pushes ago, (N, D) float32: a view that the next push rewrites."""
        return self._cells[:, self._head + 1]

    def frames(self) -> torch.Tensor:
        """Returns all frames, oldest first, (N, L, D) float32: a view that the next push rewrites."""
        return self._cells[:, self._head + 1 : self._head + 1 + self.length]
