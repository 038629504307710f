"""Action terms."""

from unilab_managers.mdp.actions.joint_actions import JointActionCfg, JointActionTerm, JointEffortActionCfg

__all__ = ["JointActionCfg", "JointActionTerm", "JointEffortActionCfg"]
