"""ResetOwner: the one object that may decide as a whole where rows begin."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

__all__ = ["ResetOwner"]


@runtime_checkable
class ResetOwner(Protocol):
    """Takes part in every reset of an environment, beside its events; an environment has at most one.

    For what must be decided once for several things, for example a motion clip from which poses, commands and phases
    follow together.
    """

    def reset_transaction(self, env_ids: torch.Tensor) -> None:
        """Stages the rows' new state, after the reset events and before the commands.

        Nothing is committed yet: a rejected reset puts back what this object remembers, as it does for every term.

        Args:
            env_ids: (K,) int64, ascending, K > 0.
        """

    def reset_committed(self, env_ids: torch.Tensor) -> None:
        """Runs after the commit: the rows hold their new state, reads fresh; a failure here faults the environment.

        Args:
            env_ids: (K,) int64, ascending, K > 0.
        """
