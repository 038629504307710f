"""Action terms."""

from unilab_managers.mdp.actions.joint_actions import (
    JointActionCfg,
    JointActionTerm,
    JointEffortActionCfg,
    JointPositionActionCfg,
    JointRelativePositionActionCfg,
    JointVelocityActionCfg,
)

__all__ = [
    "JointActionCfg",
    "JointActionTerm",
    "JointEffortActionCfg",
    "JointPositionActionCfg",
    "JointRelativePositionActionCfg",
    "JointVelocityActionCfg",
]
