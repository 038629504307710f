"""Which methods of the managers `unilab bench` times, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unilab_core.benching.parts import BenchPart, Phase
from unilab_managers.env import ManagerBasedRlEnv

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["ManagerPhases"]

_CALLS: Mapping[str, tuple[str, ...]] = {
    "actions": ("process", "accept", "follow"),
    "commands": ("compute", "refresh", "pop_log", "timers", "timers_judged"),
    "events": ("apply_step", "apply_resolved", "timers", "timers_judged"),
    "curriculum": ("compute_step", "compute_episode", "log"),
    "terminations": ("compute",),
    "rewards": ("compute",),
    "metrics": ("compute",),
    "observations": ("update", "compute"),
    "recorders": ("record_pre_reset", "record_post_reset", "record_post_step"),
}
"""What the environment calls of each manager, by the name of its section of the config."""
_RESET = "reset_resolved"


class ManagerPhases(BenchPart):
    """One phase for each manager, and one for what terms of several managers share."""

    def phases(self, env: TorchEnv) -> list[Phase]:
        """Returns the phases of a `ManagerBasedRlEnv`; none of any other environment."""
        if not isinstance(env, ManagerBasedRlEnv):
            return []
        managers = [Phase(kind, env.manager(kind), (*calls, _RESET)) for kind, calls in _CALLS.items()]
        shared = [
            Phase("trackers", env.trackers, ("advance", _RESET)),
            Phase("trackers", env.encoders, (_RESET,)),
        ]
        return managers + shared
