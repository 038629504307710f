"""A moment of a replay that can be gone back to, kept as what was written over since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

__all__ = ["Overwritten", "ReplayMark"]


class Overwritten(NamedTuple):
    """What some cells held before a step was written to them."""

    cells: torch.Tensor
    """The whole ring, cell by cell."""
    where: torch.Tensor
    """(N,) int64, which of them."""
    held: torch.Tensor
    """A copy of these."""


class ReplayMark:
    """The contents of a replay at one moment, as `ReplayContents`.

    Making one copies counts and heads, nothing of size `capacity`. As long as it is held, every step that follows also
    keeps what it writes over: as many bytes as it writes. Marks that are made later are chained to it.

    What is kept has no bound: after `capacity` steps it is more than the replay itself. So hold one for few steps only,
    as a run does, which has that of its last iteration; for longer, save the contents to a file.
    """

    def __init__(
        self,
        heads: Mapping[str, torch.Tensor],
        counters: Mapping[str, Any],
        take_back: Callable[[ReplayMark], Mapping[str, Any]],
    ) -> None:
        """Makes a mark of what a replay holds now.

        Args:
            heads: Its tensors without slots, live; they are copied.
            counters: What else changes, plain data and tensors of their own.
            take_back: The replay's own method.
        """
        self._take_back = take_back
        self.heads = {name: head.clone() for name, head in heads.items()}
        """The tensors without slots as they were."""

        self.counters = dict(counters)
        """The counters and the generator as they were."""

        self.following: ReplayMark | None = None
        """The next mark, from which on steps are noted there."""

        self._steps: list[list[Overwritten]] = []

    def note(self, step: Iterable[Overwritten]) -> None:
        """Keeps what the next step is about to write over; its cells are all different, the spare row excepted."""
        self._steps.append(list(step))

    def restore(self) -> Mapping[str, Any]:
        """Takes the replay back to this moment and returns its contents, tensors as views of its own.

        Raises:
            ReplayGoneError: The replay was loaded anew, or taken back farther, since.
        """
        return self._take_back(self)

    @torch.no_grad()
    def undo(self) -> None:
        """Writes back what was noted here, the last step first."""
        while self._steps:
            for cells, where, held in self._steps[-1]:
                cells.index_copy_(0, where, held)
            # Only now, so that one who is interrupted can begin again.
            self._steps.pop()
