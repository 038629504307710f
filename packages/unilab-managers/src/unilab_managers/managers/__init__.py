"""Managers: each runs one kind of terms."""

from unilab_managers.managers.action_manager import ActionManager, ActionTerm, ActionTermCfg
from unilab_managers.managers.event_manager import EventManager
from unilab_managers.managers.manager_base import ManagerBase
from unilab_managers.managers.observation_manager import ObservationManager
from unilab_managers.managers.reward_manager import RewardManager
from unilab_managers.managers.termination_manager import TerminationManager

__all__ = [
    "ActionManager",
    "ActionTerm",
    "ActionTermCfg",
    "EventManager",
    "ManagerBase",
    "ObservationManager",
    "RewardManager",
    "TerminationManager",
]
