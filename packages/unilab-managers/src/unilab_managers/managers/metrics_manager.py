"""Metrics: numbers about whole episodes, which nobody learns from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core.errors import ConfigError
from unilab_managers.cfg.metrics import MetricsTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, check_value

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["MetricsManager"]

_START = {"mean": 0.0, "sum": 0.0, "last": 0.0, "max": float("-inf"), "min": float("inf")}


class MetricsManager(ManagerBase):
    """Reduces each term's values over the steps of an episode to one number, of which the log has sum and count."""

    def __init__(self, terms: Mapping[str, MetricsTermCfg], env: TorchEnv) -> None:
        """Binds the terms."""
        super().__init__("metrics", env, terms)
        n, device = env.num_envs, env.device
        self._reduce = tuple(cfg.reduce for cfg in terms.values())
        self._start = torch.tensor([_START[kind] for kind in self._reduce], device=device)
        self._is_mean = torch.tensor([kind == "mean" for kind in self._reduce], device=device)
        # One column per term: what the steps of the current episodes have come to so far.
        self._values = self._start.repeat(n, 1)
        # Its own count of steps: the length of an episode can be set, and then says nothing of what was measured.
        self._steps = torch.zeros(n, dtype=torch.int64, device=device)

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """One checked call per term."""
        return [(term.label, lambda term=term: self._value(term)) for term in self._terms.values()]  # type: ignore[misc]

    def _value(self, term: BoundTerm) -> torch.Tensor:
        """Returns a term's value of this step, (N,)."""
        n, value = self._env.num_envs, term()
        if not isinstance(value, torch.Tensor) or value.ndim != 2:
            return check_value(value, term.label, torch.float32, n, columns=False)
        substeps = self._env.cfg.decimation
        if value.shape[1] != substeps:
            raise ConfigError(
                f"{term.label} returned {tuple(value.shape)}, expected ({n},), or ({n}, {substeps}): "
                "one column per substep"
            )
        return check_value(value, term.label, torch.float32, n, columns=True).mean(dim=1)

    def compute(self) -> None:
        """Takes in the values of a step, as they are before any row is reset."""
        if not self._terms:
            return
        self._steps += 1
        columns = self._values.unbind(dim=1)
        for term, kind, column in zip(self._terms.values(), self._reduce, columns, strict=True):
            value = self._value(term)
            if kind == "last":
                column.copy_(value)
            elif kind == "max":
                torch.maximum(column, value, out=column)
            elif kind == "min":
                torch.minimum(column, value, out=column)
            else:
                column += value

    def forget_non_finite(self, ids: torch.Tensor) -> None:
        """Sets what is not finite in the rows `ids`, (K,) int64, to 0, so that one bad step spoils no mean."""
        self._values[ids] = torch.where(torch.isfinite(self._values[ids]), self._values[ids], 0.0)

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        if not self._terms:
            return {}
        steps = self._steps[ids].unsqueeze(1)
        values = self._values[ids]
        values = torch.where(self._is_mean, values / steps.clamp(min=1), values)
        sums = torch.where(steps > 0, values, 0.0).sum(dim=0)
        count = (steps > 0).sum()
        self._values[ids] = self._start
        self._steps[ids] = 0
        log: dict[str, torch.Tensor] = {}
        for name, value in zip(self._terms, sums.unbind(), strict=True):
            log[f"Metrics/{name}/sum"] = value
            log[f"Metrics/{name}/count"] = count
        return log
