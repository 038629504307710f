"""What a config says about observations."""

from __future__ import annotations

from pydantic import model_validator

from unilab_managers.cfg.term import TermCfg
from unilab_managers.noise import NoiseCfg
from unisim.config import Cfg

__all__ = ["ObservationGroupCfg", "ObservationTermCfg"]

Numbers = float | tuple[float, ...]


class ObservationTermCfg(TermCfg):
    """One observation: compute, then noise, clip, scale. The term returns (N, dim) float32."""

    noise: NoiseCfg | None = None
    clip: tuple[float, float] | None = None
    scale: Numbers | None = None
    """One factor, or one per column."""

    @model_validator(mode="after")
    def _ordered_clip(self) -> ObservationTermCfg:
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip {self.clip} is inverted; expected (low, high)")
        return self


class ObservationGroupCfg(Cfg):
    """Terms whose columns stand side by side, in the order of declaration."""

    terms: dict[str, ObservationTermCfg]
    enable_corruption: bool = True
    """Whether the terms' noise is applied; nothing else depends on it."""
