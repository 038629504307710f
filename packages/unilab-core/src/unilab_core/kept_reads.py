"""Values derived from one read, computed once however many terms ask for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from unilab_core.io import BackendIO
from unilab_core.staging import Staging

__all__ = ["KeptReads"]


class KeptReads:
    """Keeps derived values until the columns that they come from change.

    Nothing is kept while state is staged, for a write may follow any read, nor before the reads are frozen, when every
    read has to be noted.
    """

    def __init__(self, io: BackendIO, staging: Staging) -> None:
        """Starts with nothing; `io.version` says when columns have changed."""
        self._io = io
        self._staging = staging
        self._version = -1
        self._values: dict[Hashable, torch.Tensor] = {}
        self._views: dict[Hashable, torch.Tensor] = {}

    def get(self, key: Hashable, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` returned at the present columns, to be read only."""
        if self._staging.shows_state or not self._io.frozen:
            return compute()
        if self._io.version != self._version:
            self._values.clear()
            self._version = self._io.version
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = compute()
        return value

    def view(self, key: Hashable, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` returned once, to be read only: a view of columns, which follows them by itself."""
        if self._staging.shows_state or not self._io.frozen:
            return compute()
        value = self._views.get(key)
        if value is None:
            value = self._views[key] = compute()
        return value
