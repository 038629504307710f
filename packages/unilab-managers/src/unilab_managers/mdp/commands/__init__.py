"""Command terms."""

from unilab_managers.mdp.commands.pose import UniformPoseCommand, UniformPoseCommandCfg
from unilab_managers.mdp.commands.ranges import Range, UniformRanges
from unilab_managers.mdp.commands.velocity import UniformVelocityCommand, UniformVelocityCommandCfg

__all__ = [
    "Range",
    "UniformPoseCommand",
    "UniformPoseCommandCfg",
    "UniformRanges",
    "UniformVelocityCommand",
    "UniformVelocityCommandCfg",
]
