"""Rewards: the sum of raw value x weight x dt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from unilab_managers.cfg.rewards import RewardTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, check_value

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["RewardManager"]


class RewardManager(ManagerBase):
    """Sums the terms of a transition and keeps each term's sum over the episode.

    A term of weight 0 is checked at construction and not evaluated afterwards.
    """

    def __init__(self, terms: Mapping[str, RewardTermCfg], env: TorchEnv, *, scale_by_dt: bool) -> None:
        """Binds the terms.

        Args:
            terms: By name, in the order of summation.
            env: The environment.
            scale_by_dt: Whether weights are per second, so that each step adds value x weight x dt.
        """
        super().__init__("rewards", env, terms)
        n, device = env.num_envs, env.device
        self._dt = env.step_dt if scale_by_dt else 1.0
        # A log entry is the episode's mean rate, so that a fully earned term of weight 1 shows 1.0.
        self._full_episode = env.max_episode_length * self._dt
        self._weights = {name: cfg.weight for name, cfg in terms.items()}
        self._sums = {name: torch.zeros(n, device=device) for name in terms}
        self._total = torch.zeros(n, device=device)

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """One checked call per term, weight-0 terms included."""
        return [(term.label, lambda term=term: self._value(term)) for term in self._terms.values()]  # type: ignore[misc]

    def _value(self, term: BoundTerm) -> torch.Tensor:
        return check_value(term(), term.label, torch.float32, self._env.num_envs, columns=False)

    def compute(self) -> torch.Tensor:
        """Returns the rewards of the transition, (N,) float32; rewritten by the next call."""
        self._total.zero_()
        for name, weight in self._weights.items():
            if weight == 0.0:
                continue
            value = self._value(self._terms[name]) * (weight * self._dt)
            self._sums[name] += value
            self._total += value
        return self._total

    def non_finite_terms(self) -> tuple[str, ...]:
        """Returns the names of terms whose sum of this episode is not finite in any row; reads the device."""
        return tuple(name for name, sums in self._sums.items() if not bool(torch.isfinite(sums).all()))

    def forget_non_finite(self, ids: torch.Tensor) -> None:
        """Sets sums of the rows `ids` to 0 where they are not finite."""
        for sums in self._sums.values():
            sums[ids] = torch.where(torch.isfinite(sums[ids]), sums[ids], 0.0)

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        ended = self._env.last_episode_length[ids] > 0
        log: dict[str, torch.Tensor] = {}
        for name, sums in self._sums.items():
            log[f"Episode_Reward/{name}/sum"] = torch.where(ended, sums[ids], 0.0).sum() / self._full_episode
            log[f"Episode_Reward/{name}/count"] = ended.sum()
            sums[ids] = 0.0
        return log
