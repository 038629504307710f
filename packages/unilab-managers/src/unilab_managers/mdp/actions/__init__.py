"""Action terms."""

from unilab_managers.mdp.actions.dc_motor import (
    DcMotorActionCfg,
    DcMotorEffortActionCfg,
    DcMotorPositionActionCfg,
    dc_motor_effort,
)
from unilab_managers.mdp.actions.joint_actions import (
    JointActionCfg,
    JointActionTerm,
    JointEffortActionCfg,
    JointPositionActionCfg,
    JointRelativePositionActionCfg,
    JointVelocityActionCfg,
)

__all__ = [
    "DcMotorActionCfg",
    "DcMotorEffortActionCfg",
    "DcMotorPositionActionCfg",
    "JointActionCfg",
    "JointActionTerm",
    "JointEffortActionCfg",
    "JointPositionActionCfg",
    "JointRelativePositionActionCfg",
    "JointVelocityActionCfg",
    "dc_motor_effort",
]
