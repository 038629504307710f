"""Learner presets of the cart-pole tasks, tuned for two CPU cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from unilab_rl import FastSacCfg, FastTd3Cfg, FlashSacCfg, OffPolicyCfg, PpoCfg, SacCfg, Td3Cfg

    _CfgT = TypeVar("_CfgT", bound=OffPolicyCfg)

__all__ = [
    *(
        "balance_fast_sac",
        "balance_fast_td3",
        "balance_flash_sac",
        "balance_ppo",
        "balance_sac",
        "balance_td3",
    ),
    *(
        "swingup_fast_sac",
        "swingup_fast_td3",
        "swingup_flash_sac",
        "swingup_ppo",
        "swingup_sac",
        "swingup_td3",
    ),
]


def balance_ppo() -> PpoCfg:
    """Returns PPO for `cartpole-balance`: 0.25 million steps, three times what seeds 0 to 2 need."""
    return _ppo(iterations=60)


def swingup_ppo() -> PpoCfg:
    """Returns PPO for `cartpole-swingup`: 0.49 million steps, three times what seeds 0 to 2 need."""
    return _ppo(iterations=120)


def balance_sac() -> SacCfg:
    """Returns SAC for `cartpole-balance`: 80,000 steps."""
    return swingup_sac().with_({"iterations": 100})


def swingup_sac() -> SacCfg:
    """Returns SAC for `cartpole-swingup`: 200,000 steps."""
    from unilab_rl import SacCfg

    return _off_policy(SacCfg.cpu_preset())


def balance_td3() -> Td3Cfg:
    """Returns TD3 for `cartpole-balance`: 80,000 steps."""
    return swingup_td3().with_({"iterations": 100})


def swingup_td3() -> Td3Cfg:
    """Returns TD3 for `cartpole-swingup`: 200,000 steps."""
    from unilab_rl import Td3Cfg

    return _off_policy(Td3Cfg.cpu_preset())


def balance_fast_sac() -> FastSacCfg:
    """Returns FastSAC for `cartpole-balance`: 80,000 steps."""
    return swingup_fast_sac().with_({"iterations": 100})


def swingup_fast_sac() -> FastSacCfg:
    """Returns FastSAC for `cartpole-swingup`: 200,000 steps."""
    from unilab_rl import FastSacCfg

    return _off_policy(FastSacCfg.cpu_preset())


def balance_fast_td3() -> FastTd3Cfg:
    """Returns FastTD3 for `cartpole-balance`: 80,000 steps."""
    return swingup_fast_td3().with_({"iterations": 100})


def swingup_fast_td3() -> FastTd3Cfg:
    """Returns FastTD3 for `cartpole-swingup`: 200,000 steps."""
    from unilab_rl import FastTd3Cfg

    return _off_policy(FastTd3Cfg.cpu_preset())


def balance_flash_sac() -> FlashSacCfg:
    """Returns FlashSAC for `cartpole-balance`: 80,000 steps."""
    return swingup_flash_sac().with_({"iterations": 100})


def swingup_flash_sac() -> FlashSacCfg:
    """Returns FlashSAC for `cartpole-swingup`: 200,000 steps."""
    from unilab_rl import FlashSacCfg

    return _off_policy(FlashSacCfg.cpu_preset())


def _off_policy(preset: _CfgT) -> _CfgT:
    """Adds what suits a task of six columns: 16 rows, and a replay of a few megabytes, saved for an exact resume."""
    return preset.with_({"num_envs": 16, "save_interval": 25, "save_replay": True})


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
