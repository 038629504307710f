"""What a config says about observations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from unilab_managers.cfg.term import TermCfg
from unilab_managers.noise import NoiseModelCfg
from unisim.config import Cfg

__all__ = ["ObservationGroupCfg", "ObservationTermCfg"]

Numbers = float | tuple[float, ...]
Count = Annotated[int, Field(ge=0)]


class ObservationTermCfg(TermCfg):
    """One observation: compute, then noise, clip, scale, delay, history. The term returns (N, dim) float32.

    Lags are in control steps and drawn evenly from [delay_min_lag, delay_max_lag], both included: at a row's reset, and
    again whenever it is due. The first frame of an episode is shown undelayed, and as long as there is no frame as old
    as the lag, the oldest of the episode is shown. Where both bounds are equal, the other delay fields have no effect.
    """

    noise: NoiseModelCfg | None = None
    clip: tuple[float, float] | None = None
    """Bounds of the values, after noise and before scale."""
    scale: Numbers | None = None
    """One factor, or one per column."""
    delay_min_lag: Count = 0
    delay_max_lag: Count = 0
    delay_per_env: bool = True
    """Whether every row draws its own lag; otherwise all rows share one, which resets of some rows leave alone."""
    delay_hold_prob: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Probability of keeping the lag when a new one is due; 1 makes it last for the episode."""
    delay_update_period: Count = 0
    """A new lag is due every so many steps; 0 and 1 mean every step."""
    delay_per_env_phase: bool = True
    """Whether rows with lags of their own start at a random point of the period, instead of all at its beginning."""
    history_length: Count = 0
    """How many frames are shown, the newest included, oldest first; 0 is no history, so the newest alone, as 1 is."""

    @model_validator(mode="after")
    def _ordered(self) -> ObservationTermCfg:
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip {self.clip} is inverted; expected (low, high)")
        if self.delay_min_lag > self.delay_max_lag:
            raise ValueError(
                f"delay_min_lag {self.delay_min_lag} is above delay_max_lag {self.delay_max_lag}"
            )
        return self


class ObservationGroupCfg(Cfg):
    """Terms whose columns stand side by side, in the order of declaration."""

    terms: dict[str, ObservationTermCfg]
    enable_corruption: bool = True
    """Whether the terms' noise is applied; nothing else depends on it."""
    history_length: Count | None = None
    """Replaces `history_length` of every term, 0 included; None leaves each term its own."""
    flatten_history_dim: bool = True
    """Whether a term's frames stand side by side, oldest first, one term after the other. Otherwise the group consists
    of whole frames, oldest first, each with all terms: (N, H * D), which `reshape(N, H, D)` takes apart."""

    def history_of(self, term: str) -> int:
        """Returns how many frames of a term are shown, at least one."""
        length = self.terms[term].history_length if self.history_length is None else self.history_length
        return max(1, length)

    @model_validator(mode="after")
    def _whole_frames(self) -> ObservationGroupCfg:
        lengths = {name: self.history_of(name) for name in self.terms}
        if not self.flatten_history_dim and len(set(lengths.values())) > 1:
            raise ValueError(
                f"flatten_history_dim=False shows whole frames, but the terms have {lengths} of them; expected "
                "equal numbers: set history_length of the group"
            )
        return self
