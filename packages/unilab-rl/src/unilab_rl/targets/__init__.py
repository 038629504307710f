"""What values are pulled towards: pure functions of tensors, any floating dtype, on the device of their arguments."""

from unilab_rl.targets.bootstrap import bootstrapped_target, clipped_double_target, soft_target
from unilab_rl.targets.c51 import c51_support, lower_mean_distribution, project_c51
from unilab_rl.targets.gae import gae
from unilab_rl.targets.n_step import NStepReturn, n_step_return
from unilab_rl.targets.vtrace import VTrace, vtrace

__all__ = [
    "NStepReturn",
    "VTrace",
    "bootstrapped_target",
    "c51_support",
    "clipped_double_target",
    "gae",
    "lower_mean_distribution",
    "n_step_return",
    "project_c51",
    "soft_target",
    "vtrace",
]
