"""Values derived from one read, computed once however many terms ask for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from unilab_core.io import BackendIO
from unilab_core.staging import Staging

__all__ = ["KeptReads"]


class KeptReads:
    """Keeps derived values until the columns that they come from change.

    What follows from positions alone outlasts a write of velocities. Of what is staged nothing derived is kept, for a
    write may follow any read. Nothing at all is kept before the reads are frozen, when every read has to be noted, nor
    after close, when there is nothing to be read.
    """

    def __init__(self, io: BackendIO, staging: Staging) -> None:
        """Starts with nothing; `io.version` and `io.pose_version` say when columns have changed."""
        self._io = io
        self._staging = staging
        self._of_state = _Values()
        self._of_pose = _Values()
        self._views: dict[Hashable, torch.Tensor] = {}

    def get(
        self, key: Hashable, compute: Callable[[], torch.Tensor], *, of_pose: bool = False
    ) -> torch.Tensor:
        """Returns what `compute` returned at the present columns, to be read only.

        Args:
            key: What it is.
            compute: Reads and derives it.
            of_pose: Whether it follows from positions and model fields alone.
        """
        if self._staging.shows("qpos") if of_pose else self._staging.shows_state:
            return compute()
        if not self._io.serves_step:
            return self._io.lend(_name(key), compute())
        if of_pose:
            values = self._of_pose.at(self._io.pose_version)
        else:
            values = self._of_state.at(self._io.version)
        value = values.get(key)
        # What was computed in inference mode is of no use outside of it: autograd refuses it.
        if value is None or (value.is_inference() and not torch.is_inference_mode_enabled()):
            value = values[key] = compute()
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


class _Values:
    """Values of one version of what they follow from."""

    def __init__(self) -> None:
        self._version = -1
        self._values: dict[Hashable, torch.Tensor] = {}

    def at(self, version: int) -> dict[Hashable, torch.Tensor]:
        """Returns what is kept of `version`; what was of another one is dropped."""
        if version != self._version:
            self._values.clear()
            self._version = version
        return self._values


def _name(key: Hashable) -> str:
    """What a value is called in messages: of bodies, the field."""
    return repr(key[0] if isinstance(key, tuple) else key)
