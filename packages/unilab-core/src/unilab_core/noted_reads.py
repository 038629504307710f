"""What a term read while it was tried, and whether it left that as it was."""

from __future__ import annotations

import torch

from unilab_core.errors import ConfigError

__all__ = ["NotedReads"]


class NotedReads:
    """The reads of one block, each key once, in the order in which it was first read.

    Attributes:
        keys: The columns that were read.
    """

    def __init__(self) -> None:
        """Starts with nothing."""
        self.keys: list[str] = []
        self._lent: list[tuple[str, torch.Tensor, int]] = []

    def add(self, key: str, values: torch.Tensor | None) -> None:
        """Notes that columns were read; `values` are theirs, None where a backend may itself write into them."""
        if key not in self.keys:
            self.keys.append(key)
        if values is not None:
            self.lend(repr(key), values)

    def lend(self, name: str, values: torch.Tensor) -> None:
        """Notes values as they were handed out, to be read only."""
        if not values.is_inference():  # such a tensor does not count what is written into it
            self._lent.append((name, values, values._version))

    def check(self, owner: str) -> None:
        """Checks that nobody wrote into what was handed out: in a step all terms share it.

        Raises:
            ConfigError: Somebody did; names `owner` and what.
        """
        for name, values, version in self._lent:
            if values._version != version:
                raise ConfigError(
                    f"{owner} wrote into {name}, which it shares with all terms: what is read is to be read only; "
                    "write into a clone() of it"
                )
