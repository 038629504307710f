"""Terms of this robot's tasks: plain functions of the environment, all rows at once.

What they read is shared with every other term and is not to be written into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from unilab_managers import mdp

if TYPE_CHECKING:
    from unilab_managers import ManagerBasedRlEnv

__all__ = ["lean", "pitch", "rolled_away", "upright"]


@mdp.columns(unit="rad", names=mdp.fixed_columns("pitch"))
def pitch(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Observation: returns how far the trunk leans forward, (N, 1) rad; 0 when upright."""
    gravity = env.scene["robot"].data.projected_gravity_b
    return torch.atan2(gravity[:, :1], -gravity[:, 2:])


def upright(env: ManagerBasedRlEnv, std: float) -> torch.Tensor:
    """Reward: returns exp(-(sine of the tilt)^2 / std^2), (N,) in (0, 1]; 1 when upright."""
    tilt = env.scene["robot"].data.projected_gravity_b[:, :2].square().sum(dim=-1)
    return torch.exp(-tilt / std**2)


def rolled_away(env: ManagerBasedRlEnv, distance: float) -> torch.Tensor:
    """Termination: returns where the robot is more than `distance` m from where it began, (N,) bool."""
    return env.scene["robot"].data.root_pos_w[:, :2].square().sum(dim=-1) > distance**2


def lean(env: ManagerBasedRlEnv, env_ids: torch.Tensor, angle: float) -> None:
    """Event: starts rows at rest over the origin, leaning forward or back by up to `angle` rad.

    Args:
        env: The environment.
        env_ids: (K,) rows being reset.
        angle: The most that they lean, rad.
    """
    data = env.scene["robot"].data
    half = env.rng.uniform(-angle, angle, (env_ids.numel(),)) / 2.0
    pose = torch.zeros(env_ids.numel(), 7, device=env.device)
    pose[:, 2] = data.root_pos_w[env_ids, 2]
    pose[:, 3], pose[:, 5] = (
        half.cos(),
        half.sin(),
    )  # a turn about the axle, which keeps the wheels on the ground
    data.write_root_pose(pose, env_ids)
