"""Values derived from one read, computed once however many terms ask for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from unilab_core.io import BackendIO
from unilab_core.staging import Staging

__all__ = ["KeptReads"]


class KeptReads:
    """Keeps derived values until the columns that they come from change.

    Nothing derived is kept while state is staged, for a write may follow any read. Nothing at all is kept before the
    reads are frozen, when every read has to be noted, nor after close, when there is nothing to be read.
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
        if self._staging.shows_state:
            return compute()
        if not self._io.serves_step:
            return self._io.lend(_name(key), compute())
        if self._io.version != self._version:
            self._values.clear()
            self._version = self._io.version
        value = self._values.get(key)
        # What was computed in inference mode is of no use outside of it: autograd refuses it.
        if value is None or (value.is_inference() and not torch.is_inference_mode_enabled()):
            value = self._values[key] = compute()
        return value

    def view(self, key: Hashable, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` returned once, to be read only: a view, which follows what it shows by itself.

        Columns and what a step stages lie elsewhere: a key must say which of the two is shown.
        """
        if self._staging.is_reset:
            return compute()  # which refuses what is not defined now
        if not self._io.serves_step:
            return compute() if self._staging.shows_state else self._io.lend(_name(key), compute())
        value = self._views.get(key)
        if value is None:
            value = self._views[key] = compute()
        return value


def _name(key: Hashable) -> str:
    """What a value is called in messages: of bodies, the field."""
    return repr(key[0] if isinstance(key, tuple) else key)
