"""Recorders: watch steps and resets from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from unilab_managers.cfg.recorders import RECORDER_HOOKS, RecorderTermCfg
from unilab_managers.managers.manager_base import ManagerBase, named

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["RecorderManager"]


class RecorderManager(ManagerBase):
    """Calls every recorder's hooks, in the order of declaration.

    Attributes:
        just_reset: (N,) bool: rows that were reset since the last recorded step, so that the next one is the first of
            their episode.
    """

    def __init__(self, terms: Mapping[str, RecorderTermCfg], env: TorchEnv) -> None:
        """Makes the recorders.

        Raises:
            ConfigError: A recorder cannot be made; names it.
        """
        super().__init__("recorders", env, {})
        self._recorders: dict[str, Any] = {}
        self._calls: dict[str, list[tuple[str, Callable[..., object]]]] = {
            hook: [] for hook in RECORDER_HOOKS
        }
        for name, cfg in terms.items():
            self._make(name, cfg)
        self.just_reset = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self._any_reset = False  # so that a step in which nothing was reset clears nothing
        self._closed = False

    def _make(self, name: str, cfg: RecorderTermCfg) -> None:
        label = f"recorders term {name!r}"
        with named(label):
            self._env.scene.declare_reads(cfg.func)
            recorder = self._recorders[name] = cfg.func(cfg, self._env, **cfg.params)
            for hook, calls in self._calls.items():
                call = getattr(recorder, hook, None)
                if call is not None:
                    self._env.scene.declare_reads(call)
                    calls.append((label, call))

    @property
    def active_terms(self) -> tuple[str, ...]:
        """Names of the recorders, in the order of declaration."""
        return tuple(self._recorders)

    def row_state_roots(self) -> dict[str, object]:
        """Returns the manager and its recorders by name."""
        return {self.owner: self, **{f"{self.owner}.{name}": item for name, item in self._recorders.items()}}

    def _run(self, hook: str, *arguments: torch.Tensor) -> None:
        for label, call in self._calls[hook]:
            with named(label):
                call(*arguments)

    def record_pre_reset(self, env_ids: torch.Tensor) -> None:
        """Shows the recorders the finished transition of rows, (K,) int64; their reset may yet be rejected."""
        self._run("record_pre_reset", env_ids)

    def record_post_reset(self, env_ids: torch.Tensor) -> None:
        """Shows the recorders rows, (K,) int64, at the start of their episodes."""
        if self._recorders:
            self.just_reset[env_ids] = True
            self._any_reset = True
        self._run("record_post_reset", env_ids)

    def record_post_step(self) -> None:
        """Shows the recorders a complete transition of all rows; afterwards no row counts as just reset."""
        self._run("record_post_step")
        if self._any_reset:
            self.just_reset.zero_()
            self._any_reset = False

    def close(self) -> None:
        """Closes every recorder, also those behind one that fails; idempotent.

        Raises:
            Exception: What the first recorder that failed raised.
        """
        if self._closed:
            return
        self._closed = True
        failed: Exception | None = None
        for label, call in self._calls["close"]:
            try:
                with named(label):
                    call()
            except Exception as error:  # noqa: BLE001 - the others must be closed too; raised below
                failed = failed or error
        if failed is not None:
            raise failed
