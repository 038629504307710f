"""Settings of the learners; unilab-rl is imported only when somebody trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unilab_rl import PpoCfg

__all__ = ["balance_ppo"]


def balance_ppo() -> PpoCfg:
    """Returns PPO with small networks, tuned for two CPU cores."""
    from unilab_rl import PpoCfg

    return PpoCfg(
        iterations=60,
        save_interval=20,
        num_steps_per_env=32,
        actor_hidden_dims=(64, 64),
        critic_hidden_dims=(64, 64),
        activation="tanh",
        std_type="log",
        desired_kl=0.02,
        entropy_coef=0.003,
    )
