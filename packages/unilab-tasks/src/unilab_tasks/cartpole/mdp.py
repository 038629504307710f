"""Terms of the cart-pole tasks.

The reward has the smooth form of the control suite's cart-pole (Tassa et al., "DeepMind Control Suite",
arXiv:1801.00690): a product of factors in [0, 1] for an upright pole, a centred cart, a small control and a slow pole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from unilab_managers.mdp.labels import columns, fixed_columns

if TYPE_CHECKING:
    from unilab_managers import ManagerBasedRlEnv

__all__ = ["pole_angle_cos_sin", "smooth_reward"]

_DECAY = -math.log(0.1)
"""A Gaussian tolerance is worth 0.1 at its margin."""


def _slider_and_hinge(env: ManagerBasedRlEnv) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    data = env.scene["robot"].data
    return data.joint_pos[:, 0], data.joint_pos[:, 1], data.joint_vel[:, 1]


@columns(unit="", names=fixed_columns("cos", "sin"))
def pole_angle_cos_sin(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns cosine and sine of the pole's angle, (N, 2); (1, 0) when upright."""
    _, angle, _ = _slider_and_hinge(env)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def smooth_reward(env: ManagerBasedRlEnv, position_margin: float, velocity_margin: float) -> torch.Tensor:
    """Returns the smooth reward, (N,) in [0, 1]; 1 for an upright, resting pole over the middle of the rail.

    Args:
        env: The environment.
        position_margin: Distance from the middle at which the position factor has fallen to 0.55, m.
        velocity_margin: Speed of the pole at which the velocity factor has fallen to 0.55, rad/s.

    Raises:
        ValueError: A margin is not above 0.
    """
    if not (position_margin > 0.0 and velocity_margin > 0.0):
        raise ValueError(
            f"position_margin is {position_margin} and velocity_margin {velocity_margin}, expected both above 0"
        )
    position, angle, velocity = _slider_and_hinge(env)
    # (1 + cos angle) / 2, (1 + exp(-k position^2)) / 2, (1 + exp(-k' velocity^2)) / 2 and (4 + 1 - control^2) / 5, of
    # which the constants are taken together: a step of few rows takes as long as its operators are many.
    upright = angle.cos().add_(1.0)
    centred = position.square().mul_(-_DECAY / position_margin**2).exp_().add_(1.0)
    slow = velocity.square().mul_(-_DECAY / velocity_margin**2).exp_().add_(1.0)
    control = env.action_manager.action[:, 0].clamp(-1.0, 1.0)
    small_control = control.square_().mul_(-1.0 / 40.0).add_(5.0 / 40.0)
    return upright.mul_(centred).mul_(slow).mul_(small_control)
