"""Delays in whole steps: how old a frame each row is served, and the frames to serve it from."""

from __future__ import annotations

from typing import ClassVar

import torch

from unilab_core.rng import EnvRng
from unilab_managers.buffers.ring import FrameRing

__all__ = ["DelayBuffer", "DelayLags"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class DelayLags:
    """How many steps old the served frame of each row is; redrawn from [min_lag, max_lag] as time goes on.

    A row's lag is drawn when the row is reset and again whenever it is due: every `update_period` steps. So it lies in
    the range at all times, and `hold_prob=1` gives one lag per episode.

    Attributes:
        num_envs: N.
        min_lag: The smallest lag, steps.
        max_lag: The largest lag, steps.
        is_fixed: Whether all lags are `max_lag` at all times, because the range holds nothing else.
        values: (N,) int64: the lags now; rewritten in place, to be read only (`set` writes).
    """

    row_settings: ClassVar[tuple[str, ...]] = (
        *("num_envs", "min_lag", "max_lag", "is_fixed"),
        *("_per_env", "_hold_prob", "_period", "_per_env_phase"),
    )

    def __init__(
        self,
        num_envs: int,
        min_lag: int,
        max_lag: int,
        *,
        rng: EnvRng,
        per_env: bool = True,
        hold_prob: float = 0.0,
        update_period: int = 0,
        per_env_phase: bool = True,
    ) -> None:
        """Starts with every lag at `min_lag` and draws nothing yet.

        Args:
            num_envs: N.
            min_lag: The smallest lag, steps.
            max_lag: The largest lag, steps; it may be drawn.
            rng: What to draw from; its device is that of the lags.
            per_env: Whether every row draws its own lag. Otherwise all rows share one at any time, which is redrawn
                when due, and when all rows are reset at once; resets of some rows leave it alone.
            hold_prob: Probability of keeping the lag when a new one is due.
            update_period: Steps between two times that a lag is due; 0 and 1 mean every step.
            per_env_phase: Whether a row's first lag is due after a random part of the period, drawn at its reset, so
                that rows do not change together. Otherwise after a whole one. Rows that share a lag have no phase.

        Raises:
            ValueError: A value out of range, or `min_lag` above `max_lag`.
        """
        if not 0 <= min_lag <= max_lag:
            raise ValueError(
                f"DelayLags: min_lag is {min_lag}, max_lag {max_lag}; expected 0 <= min_lag <= max_lag"
            )
        if not 0.0 <= hold_prob <= 1.0:
            raise ValueError(f"DelayLags: hold_prob is {hold_prob}, expected 0 <= hold_prob <= 1")
        if update_period < 0:
            raise ValueError(f"DelayLags: update_period is {update_period}, expected at least 0")
        self.num_envs = num_envs
        self.min_lag = min_lag
        self.max_lag = max_lag
        self.is_fixed = min_lag == max_lag
        self._rng = rng
        self._per_env = per_env
        self._hold_prob = hold_prob
        self._period = max(1, update_period)
        self._per_env_phase = per_env_phase
        self.values = torch.full((num_envs,), min_lag, dtype=torch.int64, device=rng.device)
        # A row is due when the tick, which runs through the period, reaches the row's own.
        self._tick = 0
        self._due_at = torch.zeros_like(self.values)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Draws lags of the rows `env_ids`, (K,) int64 ascending, whose episode begins."""
        if self.is_fixed:
            return
        count = env_ids.numel()
        if not self._per_env:
            if count == self.num_envs:
                self._tick = 0
                self.values.copy_(self._draw(1))
            return
        self.values[env_ids] = self._draw(count)
        if self._period > 1:
            staggered = self._per_env_phase
            self._due_at[env_ids] = self._rng.integers(0, self._period, count) if staggered else self._tick

    def advance(self) -> None:
        """Lets one step pass: redraws the lags that are due. Asks the device nothing."""
        if self.is_fixed or self._hold_prob >= 1.0:
            return
        self._tick = (self._tick + 1) % self._period
        if self._per_env:
            self._redraw(self.num_envs, self._due_at == self._tick if self._period > 1 else None)
        elif self._tick == 0:
            self._redraw(1, None)

    def _redraw(self, count: int, due: torch.Tensor | None) -> None:
        """Draws `count` lags, N or 1 for all, and takes them where they are due and not held."""
        drawn, chosen = self._draw(count), due
        if self._hold_prob > 0.0:
            moves = self._rng.uniform(0.0, 1.0, count) >= self._hold_prob
            chosen = moves if due is None else due & moves
        if chosen is None:
            self.values.copy_(drawn)
        else:
            torch.where(chosen, drawn, self.values, out=self.values)

    def _draw(self, count: int) -> torch.Tensor:
        return self._rng.integers(self.min_lag, self.max_lag + 1, count)

    def set(self, lags: torch.Tensor, env_ids: torch.Tensor | None = None) -> None:
        """Sets lags, which hold until they are next due; everything is checked before anything is written.

        Args:
            lags: One integer per row.
            env_ids: (K,) int64 row ids in the order of `lags`, or None for all rows.

        Raises:
            TypeError: `lags` is not an integer tensor.
            ValueError: Not one lag per row, one outside [min_lag, max_lag], or rows that share a lag would differ.
        """
        given: object = lags
        if not isinstance(given, torch.Tensor) or given.dtype not in _INTEGERS:
            got = str(given.dtype) if isinstance(given, torch.Tensor) else type(given).__name__
            raise TypeError(f"DelayLags.set: lags is {got}, expected a tensor of integers")
        count = self.num_envs if env_ids is None else env_ids.numel()
        if tuple(given.shape) != (count,):
            raise ValueError(f"DelayLags.set: lags has shape {tuple(given.shape)}, expected ({count},)")
        values = given.to(device=self.values.device, dtype=torch.int64)
        wrong = values[(values < self.min_lag) | (values > self.max_lag)].tolist()
        if wrong:
            raise ValueError(
                f"DelayLags.set: lags holds {wrong[0]}, expected {self.min_lag} <= lag <= {self.max_lag}"
            )
        after = self.values.clone()
        after[slice(None) if env_ids is None else env_ids] = values
        if not self._per_env and bool((after != after[0]).any()):
            raise ValueError(f"DelayLags.set: rows share one lag, got {after.tolist()}")
        self.values.copy_(after)


class DelayBuffer:
    """Serves every row a frame of some steps ago; at the beginning of an episode its first frame.

    Attributes:
        lags: How many steps ago.
    """

    def __init__(self, lags: DelayLags, dim: int) -> None:
        """Allocates what the largest lag needs, for frames of `dim` columns (D)."""
        self.lags = lags
        self._ring = FrameRing(lags.num_envs, lags.max_lag + 1, dim, lags.values.device)

    def push(self, frame: torch.Tensor) -> None:
        """Lets one step pass that brings `frame`, (N, D) float32."""
        self.lags.advance()
        self._ring.push(frame)

    def read(self) -> torch.Tensor:
        """Returns the delayed frame, (N, D) float32, which the next push may rewrite; reading changes nothing."""
        # A ring is as long as the largest lag: a lag that is always the largest needs no lookup.
        return self._ring.oldest() if self.lags.is_fixed else self._ring.at(self.lags.values)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Draws new lags for the rows `env_ids`, (K,) int64 ascending; `fill` must follow."""
        self.lags.reset(env_ids)

    def fill(self, env_ids: torch.Tensor, frame: torch.Tensor) -> None:
        """Begins the rows' episodes with `frame`, (K, D) float32, which they are served until there are older ones."""
        self._ring.fill(env_ids, frame)
