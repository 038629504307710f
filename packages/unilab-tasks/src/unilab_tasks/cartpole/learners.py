"""Learner presets of the cart-pole tasks, tuned for two CPU cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unilab_rl import PpoCfg

__all__ = ["cartpole_ppo"]


def cartpole_ppo() -> PpoCfg:
    """Returns PPO for 128 environments: small tanh networks, and a step size that follows the policy's change."""
    from unilab_rl import PpoCfg

    return PpoCfg(
        num_steps_per_env=32,
        actor_hidden_dims=(64, 64),
        critic_hidden_dims=(64, 64),
        activation="tanh",
        std_type="log",
        desired_kl=0.02,
        entropy_coef=0.003,
        max_grad_norm=0.5,
        use_clipped_value_loss=False,
    )
