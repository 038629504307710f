"""What was done two steps ago, which the action manager does not remember."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_managers.trackers import Tracker

if TYPE_CHECKING:
    from unilab_managers.cfg.term import TermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["ActionHistory", "OfActionHistory"]


class ActionHistory(Tracker):
    """The raw action of two steps ago.

    Attributes:
        second_last: (N, A) raw action of the step before `action_manager.prev_action`; zero in the first two steps of
            an episode.
    """

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        """Starts with zeros."""
        self._env = env
        self.second_last = torch.zeros_like(env.action_manager.action)
        self._last = torch.zeros_like(self.second_last)

    def advance(self) -> None:
        """Moves on by one action; see `Tracker`."""
        self.second_last.copy_(self._last)
        self._last.copy_(self._env.action_manager.prev_action)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Clears rows; see `Tracker`."""
        self.second_last[env_ids] = 0.0
        self._last[env_ids] = 0.0

    def acceleration(self) -> torch.Tensor:
        """Returns a - 2 a' + a'' of the raw actions of this step and the two before, (N, A); a fresh tensor."""
        manager = self._env.action_manager
        return torch.sub(manager.action, manager.prev_action, alpha=2.0).add_(self.second_last)


class OfActionHistory:
    """A term that looks at what was done in the steps before."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds what was done before."""
        self._history = env.trackers.share(ActionHistory)
