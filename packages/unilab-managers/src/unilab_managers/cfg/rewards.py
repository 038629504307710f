"""What a config says about rewards."""

from __future__ import annotations

from unilab_managers.cfg.term import TermCfg

__all__ = ["RewardTermCfg"]


class RewardTermCfg(TermCfg):
    """One summand of the reward: raw value x weight x dt. The term returns (N,) float32."""

    weight: float
