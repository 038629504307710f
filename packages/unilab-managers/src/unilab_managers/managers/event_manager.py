"""Events: what happens to rows when they are reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

import torch

from unilab_core.errors import nearest
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.managers.manager_base import ManagerBase, Selector, named

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["EventManager"]

_MODES: tuple[str, ...] = get_args(EventTermCfg.model_fields["mode"].annotation)
_NEVER = -(2**62)


class EventManager(ManagerBase):
    """Applies event terms, in the order of declaration."""

    def __init__(self, terms: Mapping[str, EventTermCfg], env: TorchEnv) -> None:
        """Binds the terms."""
        super().__init__("events", env, terms)
        self._cfgs = dict(terms)
        # Environment step at which each row last triggered a term; kept across resets, which it counts between.
        self._last_trigger = {
            name: torch.full((env.num_envs,), _NEVER, dtype=torch.int64, device=env.device)
            for name, cfg in terms.items()
            if cfg.min_step_count_between_reset
        }

    def apply(self, *, mode: str, env_ids: Selector = None, global_env_step_count: int | None = None) -> None:
        """Runs all terms of one mode.

        Args:
            mode: `"reset"`.
            env_ids: The rows; (K,) integer ids, a slice, or None for all.
            global_env_step_count: Environment steps so far; needed for `"reset"`.

        Raises:
            ValueError: An unknown mode, or no counter.
            TypeError: `env_ids` is a mask or no integer tensor.
        """
        if mode not in _MODES:
            raise ValueError(f"events.apply: unknown mode {mode!r}; {nearest(mode, _MODES)}")
        if global_env_step_count is None:
            raise ValueError("events.apply: mode 'reset' needs global_env_step_count")
        self.apply_resolved(mode, self._resolve(env_ids, "apply"), global_env_step_count)

    def apply_resolved(self, mode: str, ids: torch.Tensor, global_env_step_count: int) -> None:
        """Does what `apply` does for row ids that were resolved before, (K,) int64; asks the device nothing."""
        for name, cfg in self._cfgs.items():
            if cfg.mode == mode:
                rows = self._due(name, cfg.min_step_count_between_reset, ids, global_env_step_count)
                if rows.numel():
                    term = self._terms[name]
                    with named(term.label):
                        term(rows)

    def _due(self, name: str, min_steps: int, ids: torch.Tensor, now: int) -> torch.Tensor:
        if not min_steps:
            return ids
        last = self._last_trigger[name]
        rows = ids[now - last[ids] >= min_steps]
        last[rows] = now
        return rows
