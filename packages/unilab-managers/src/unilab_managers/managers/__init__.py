"""Managers: each runs one kind of terms."""

from unilab_managers.managers.action_manager import ActionManager, ActionTerm, ActionTermCfg
from unilab_managers.managers.command_manager import CommandManager, CommandTerm, CommandTermCfg
from unilab_managers.managers.curriculum_manager import CurriculumManager
from unilab_managers.managers.event_manager import EventManager
from unilab_managers.managers.manager_base import ManagerBase
from unilab_managers.managers.metrics_manager import MetricsManager
from unilab_managers.managers.observation_manager import ObservationManager
from unilab_managers.managers.recorder_manager import RecorderManager
from unilab_managers.managers.reward_manager import RewardManager
from unilab_managers.managers.termination_manager import TerminationManager

__all__ = [
    "ActionManager",
    "ActionTerm",
    "ActionTermCfg",
    "CommandManager",
    "CommandTerm",
    "CommandTermCfg",
    "CurriculumManager",
    "EventManager",
    "ManagerBase",
    "MetricsManager",
    "ObservationManager",
    "RecorderManager",
    "RewardManager",
    "TerminationManager",
]
