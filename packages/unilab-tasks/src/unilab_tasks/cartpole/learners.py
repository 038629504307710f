"""Learner presets of the cart-pole tasks, tuned for two CPU cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unilab_rl import PpoCfg

__all__ = ["balance_ppo", "swingup_ppo"]


def balance_ppo() -> PpoCfg:
    """Returns PPO for `cartpole-balance`: 0.25 million steps, three times what seeds 0 to 2 need."""
    return _ppo(iterations=60)


def swingup_ppo() -> PpoCfg:
    """Returns PPO for `cartpole-swingup`: 0.49 million steps, three times what seeds 0 to 2 need."""
    return _ppo(iterations=120)


def _ppo(iterations: int) -> PpoCfg:
    """Small tanh networks on 128 environments, and a step size that follows the policy's change."""
    from unilab_rl import PpoCfg

    return PpoCfg(
        iterations=iterations,
        save_interval=20,
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
