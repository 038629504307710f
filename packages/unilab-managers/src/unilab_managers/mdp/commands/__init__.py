"""Command terms."""

from unilab_managers.mdp.commands.gait import GaitClock, GaitClockCfg
from unilab_managers.mdp.commands.pose import UniformPoseCommand, UniformPoseCommandCfg, pose_reached
from unilab_managers.mdp.commands.ranges import Range, UniformRanges
from unilab_managers.mdp.commands.velocity import UniformVelocityCommand, UniformVelocityCommandCfg

__all__ = [
    "GaitClock",
    "GaitClockCfg",
    "Range",
    "UniformPoseCommand",
    "UniformPoseCommandCfg",
    "UniformRanges",
    "UniformVelocityCommand",
    "UniformVelocityCommandCfg",
    "pose_reached",
]
