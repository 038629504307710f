"""Rewards: the sum of raw value x weight x dt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

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

    row_settings: ClassVar[tuple[str, ...]] = (
        *("_dt", "_floor", "_full_episode", "_unused"),
        *("_running", "_total", "_scale_of_term", "_log_keys"),
    )
    row_records: ClassVar[tuple[str, ...]] = ("_weights",)

    def __init__(
        self,
        terms: Mapping[str, RewardTermCfg],
        env: TorchEnv,
        *,
        scale_by_dt: bool,
        floor: float | None = None,
    ) -> None:
        """Binds the terms.

        Args:
            terms: By name, in the order of summation.
            env: The environment.
            scale_by_dt: Whether weights are per second, so that each step adds value x weight x dt.
            floor: What the sum of the weighted terms is raised to where it is lower, before dt; None: no floor.
        """
        super().__init__("rewards", env, terms)
        n, device = env.num_envs, env.device
        self._dt = env.step_dt if scale_by_dt else 1.0
        self._floor = None if floor is None else floor * self._dt
        # A log entry is the episode's mean rate, so that a fully earned term of weight 1 shows 1.0.
        self._full_episode = env.max_episode_length * self._dt
        self._weights = {name: cfg.weight for name, cfg in terms.items()}
        # One column per term, each of one piece: what it added in this step, also with the terms before it, and over
        # the episode.
        self._values = torch.zeros(len(terms), n, device=device).t()
        self._running = torch.zeros(max(1, len(terms)), n, device=device).t()
        self._sums = torch.zeros_like(self._values)
        self._total = self._running[:, -1]  # a view, made once
        self._scales = torch.tensor([cfg.weight * self._dt for cfg in terms.values()], device=device)
        self._scale_of_term = self._scales.unsqueeze(1)  # a view, made once
        self._unused = torch.zeros(n, device=device)
        keys = [f"Episode_Reward/{name}" for name in terms]
        self._log_keys = tuple((f"{key}/sum", f"{key}/count") for key in keys)

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """One checked call per term, weight-0 terms included."""
        return [(term.label, lambda term=term: self._value(term)) for term in self._terms.values()]  # type: ignore[misc]

    def _value(self, term: BoundTerm) -> torch.Tensor:
        return check_value(term(), term.label, torch.float32, self._env.num_envs, columns=False)

    def get_weight(self, name: str) -> float:
        """Returns the weight that a term has now.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        self._term(name)
        return self._weights[name]

    def set_weight(self, name: str, weight: float) -> None:
        """Changes the weight of a term from the next step on; the config stays as it is.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
            ConfigError: Not a finite number.
        """
        cfg = self._term(name).cfg.model_copy(update={"weight": weight})
        assert isinstance(cfg, RewardTermCfg)
        self._weights[name] = cfg.weight
        self._scales[list(self._weights).index(name)] = cfg.weight * self._dt

    def compute(self) -> torch.Tensor:
        """Returns the rewards of the transition, (N,) float32; rewritten by the next call."""
        if self._terms:
            values = [
                self._unused if weight == 0.0 else self._value(self._terms[name])
                for name, weight in self._weights.items()
            ]
            # Through a new tensor: a term may return a view of what it added in the last step.
            torch.mul(torch.stack(values), self._scale_of_term, out=self._values.t())
            # On the CPU in the order of declaration, whatever rows are beside, which a plain sum does not promise: in
            # float64, rounded to float32 once per column. CUDA promises no order of either.
            torch.cumsum(self._values, dim=1, out=self._running)
            self._sums += self._values
        if self._floor is not None:
            # Nothing times the sum is nothing, or NaN where it is not finite: a floor must not hide that.
            torch.add(self._total.clamp(min=self._floor), self._total, alpha=0, out=self._total)
        return self._total

    def term_values(self) -> dict[str, torch.Tensor]:
        """Returns what each term added in the last step, (N,) by name: views that the next step rewrites."""
        return dict(zip(self._weights, self._values.unbind(dim=1), strict=True))

    def episode_sums(self) -> dict[str, torch.Tensor]:
        """Returns what each term has added in the current episodes, (N,) by name: views that change with them."""
        return dict(zip(self._weights, self._sums.unbind(dim=1), strict=True))

    def non_finite_terms(self) -> tuple[str, ...]:
        """Returns the names of terms whose sum of this episode is not finite in any row; reads the device."""
        finite = torch.isfinite(self._sums).all(dim=0).tolist()
        return tuple(name for name, good in zip(self._weights, finite, strict=True) if not good)

    def forget_non_finite(self, ids: torch.Tensor) -> None:
        """Sets sums of the rows `ids` to 0 where they are not finite."""
        self._sums[ids] = torch.where(torch.isfinite(self._sums[ids]), self._sums[ids], 0.0)

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        ended = self._env.ended_episodes(ids)
        sums = ended.sum(self._sums[ids]) / self._full_episode
        self._sums[ids] = 0.0
        log: dict[str, torch.Tensor] = {}
        for (of_sum, of_count), value in zip(self._log_keys, sums.unbind(), strict=True):
            log[of_sum] = value
            log[of_count] = ended.number
        return log
