"""What a learner's state says of a replay that is too large to be copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

__all__ = ["ReplayContents", "ReplayGoneError"]


class ReplayGoneError(RuntimeError):
    """A replay was loaded anew, or taken back farther, so that there is no way back to these contents."""


@runtime_checkable
class ReplayContents(Protocol):
    """The contents of a replay at one moment, left where they are: in a learner's memory, or in a file."""

    def restore(self) -> Mapping[str, Any]:
        """Returns plain data and tensors, the tensors as views, for `Replay.load_state` or for a file.

        A replay in memory that went on meanwhile is taken back to that moment first, and stays there. Once it was
        loaded, even with these contents, there is no way back to them any more.

        Raises:
            ReplayGoneError: It was loaded anew, or taken back farther, meanwhile, so there is no way back.
        """
        ...
