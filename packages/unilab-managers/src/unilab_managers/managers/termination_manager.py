"""Terminations: why an episode ends, and whether that is an end or a cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_managers.cfg.terminations import TerminationTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, check_value

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["TerminationManager", "is_time_out"]


def is_time_out(term: BoundTerm) -> bool:
    """Whether a termination term truncates: as its config says, else as its function says of itself."""
    cfg = term.cfg
    assert isinstance(cfg, TerminationTermCfg)
    if cfg.time_out is not None:
        return cfg.time_out
    return bool(getattr(cfg.func, "is_time_out", False))


class TerminationManager(ManagerBase):
    """Evaluates every term once a step and remembers which of them fired in it."""

    row_settings: ClassVar[tuple[str, ...]] = (
        *("_truncates", "_order", "_by_term", "_ends", "_cuts"),
        "_log_keys",
    )

    def __init__(self, terms: Mapping[str, TerminationTermCfg], env: TorchEnv) -> None:
        """Binds the terms."""
        super().__init__("terminations", env, terms)
        n, device = env.num_envs, env.device
        self._truncates = {name: is_time_out(term) for name, term in self._terms.items()}
        # One column per term, each of one piece: those that end an episode before those that cut it, so that each kind
        # is one block.
        self._order = sorted(self._terms, key=lambda name: self._truncates[name])
        by_term = torch.zeros(len(self._order), n, dtype=torch.bool, device=device)
        keys = {name: f"Episode_Termination/{name}" for name in self._terms}
        self._log_keys = tuple(
            ((f"{key}/sum", f"{key}/count"), self._order.index(name)) for name, key in keys.items()
        )
        ends = sum(not truncates for truncates in self._truncates.values())
        self._values = by_term.t()
        self._by_term = by_term
        self._ends, self._cuts = by_term[:ends], by_term[ends:]  # views, made once
        # Of a single term its own flags are the answer.
        self._terminated, self._truncated = (
            kind[0] if kind.shape[0] == 1 else torch.zeros(n, dtype=torch.bool, device=device)
            for kind in (self._ends, self._cuts)
        )

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """One checked call per term."""
        return [(term.label, lambda term=term: self._value(term)) for term in self._terms.values()]  # type: ignore[misc]

    def _value(self, term: BoundTerm) -> torch.Tensor:
        return check_value(term(), term.label, torch.bool, self._env.num_envs, columns=False)

    def compute(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (N,) bool terminated and (N,) bool truncated; rewritten by the next call."""
        if self._terms:
            # In the order of declaration, whatever the order of the columns.
            values = {name: self._value(term) for name, term in self._terms.items()}
            # Through a new tensor: a term may return a view of what another one decided in the last step.
            self._by_term.copy_(torch.stack([values[name] for name in self._order]))
            _any(self._ends, self._terminated)
            _any(self._cuts, self._truncated)
        return self._terminated, self._truncated

    @property
    def terminated(self) -> torch.Tensor:
        """(N,) bool: rows that a term ended for good in the last step; rewritten by the next."""
        return self._terminated

    @property
    def truncated(self) -> torch.Tensor:
        """(N,) bool: rows that a term cut short in the last step; rewritten by the next."""
        return self._truncated

    def truncates(self, name: str) -> bool:
        """Whether a term cuts episodes short instead of ending them.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        self._term(name)
        return self._truncates[name]

    def get_term(self, name: str) -> torch.Tensor:
        """Returns which rows a term ended in the last step, (N,) bool; rewritten by the next step.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        self._term(name)
        return self._values[:, self._order.index(name)]

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        # A row that is reset twice between two steps still shows the flags of the episode before.
        ended = self._env.ended_episodes(ids)
        fired = self._by_term.index_select(1, ids).logical_and_(ended.flags)
        sums = fired.sum(dim=1, dtype=torch.float32).unbind()
        log: dict[str, torch.Tensor] = {}
        for (of_sum, of_count), column in self._log_keys:
            log[of_sum] = sums[column]
            log[of_count] = ended.number
        return log


def _any(flags: torch.Tensor, out: torch.Tensor) -> None:
    """Writes which rows any of T terms decided for, (T, N) bool, into (N,) bool, which a single one's flags are."""
    if flags.shape[0] != 1:
        torch.any(flags, dim=0, out=out)
