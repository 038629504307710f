"""TermsCfg: a task as data."""

from __future__ import annotations

from unilab_core.env_cfg import TorchEnvCfg
from unilab_managers.cfg.curriculum import CurriculumTermCfg
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.cfg.metrics import MetricsTermCfg
from unilab_managers.cfg.observations import ObservationGroupCfg
from unilab_managers.cfg.recorders import RecorderTermCfg
from unilab_managers.cfg.rewards import RewardTermCfg
from unilab_managers.cfg.terminations import TerminationTermCfg
from unilab_managers.managers.action_manager import ActionTermCfg
from unilab_managers.managers.command_manager import CommandTermCfg
from unilab_managers.reset_owner import ResetOwnerCfg

__all__ = ["TermsCfg"]


class TermsCfg(TorchEnvCfg):
    """The terms of every manager: a task, but for the class that carries it out."""

    observations: dict[str, ObservationGroupCfg]
    """Group `"obs"` for the policy, and optionally `"critic"`."""
    actions: dict[str, ActionTermCfg]
    rewards: dict[str, RewardTermCfg]
    terminations: dict[str, TerminationTermCfg]
    commands: dict[str, CommandTermCfg] = {}
    events: dict[str, EventTermCfg] = {}
    curriculum: dict[str, CurriculumTermCfg] = {}
    metrics: dict[str, MetricsTermCfg] = {}
    recorders: dict[str, RecorderTermCfg] = {}
    reset_owner: ResetOwnerCfg | None = None
    """What restores a whole state after the reset events, for example a frame of a motion; None: events do it all."""
    scale_rewards_by_dt: bool = True
    """Whether reward weights are per second: each step adds value x weight x dt."""
    reward_floor: float | None = None
    """What the weighted sum of rewards is raised to where it is lower, before dt; None: no floor. At 0, living is
    never worse than ending."""
