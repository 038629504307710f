"""The term library: observations, rewards, terminations, actions and events under their standard names."""

from unilab_managers.mdp.actions import JointEffortActionCfg
from unilab_managers.mdp.events import reset_joints_by_offset
from unilab_managers.mdp.observations import joint_pos, joint_pos_rel, joint_vel, last_action
from unilab_managers.mdp.terminations import time_out

__all__ = [
    "JointEffortActionCfg",
    "joint_pos",
    "joint_pos_rel",
    "joint_vel",
    "last_action",
    "reset_joints_by_offset",
    "time_out",
]
