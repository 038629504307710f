"""Which episodes a reset has ended, worked out once for everything that is logged about them."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Ended", "EndedEpisodes"]


class Ended(NamedTuple):
    """Which of K rows had an episode of at least one step; to be read only."""

    flags: torch.Tensor
    """(K,) bool."""
    number: torch.Tensor
    """() int64: how many."""
    zero: torch.Tensor
    """() float32."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Returns what such rows come to, () or (D,), of (K,) or (K, D) float32."""
        if values.ndim == 1:
            return torch.where(self.flags, values, self.zero).sum()
        return torch.where(self.flags.unsqueeze(1), values, self.zero).sum(dim=0)


class EndedEpisodes:
    """Knows it of the rows of the reset that is going on; works it out for any others."""

    def __init__(self, last_length: torch.Tensor) -> None:
        """Remembers where the lengths of the last episodes are, (N,) int64: a reset writes them."""
        self._last_length = last_length
        self._zero = torch.zeros((), device=last_length.device)
        self._ids: torch.Tensor | None = None
        self._known: Ended | None = None

    def note(self, ids: torch.Tensor, lengths: torch.Tensor) -> Ended:
        """Takes in, until `forget`, that the rows `ids` have ended episodes of such lengths, both (K,) int64."""
        self._ids, self._known = ids, self._of(lengths)
        return self._known

    def forget(self) -> None:
        """The reset has logged what there was to log."""
        self._ids = self._known = None

    def of(self, ids: torch.Tensor) -> Ended:
        """Returns it for rows, (K,) int64; asks the device nothing."""
        if self._known is not None and ids is self._ids:
            return self._known
        return self._of(self._last_length.index_select(0, ids))

    def _of(self, lengths: torch.Tensor) -> Ended:
        flags = lengths > 0
        return Ended(flags, flags.sum(), self._zero)
