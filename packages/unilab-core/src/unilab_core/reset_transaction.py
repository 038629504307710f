"""The one order of a reset, whoever asks for it."""

from __future__ import annotations

from typing import Protocol

import torch

from unilab_core.io import BackendIO
from unilab_core.staging import Staging
from unisim.model_layout import ModelLayout
from unisim.reset import validate_payload

__all__ = ["EpisodeLog", "ResetHooks", "ResetTransaction"]

EpisodeLog = dict[str, torch.Tensor]
"""`<key>/sum` and `<key>/count` to 0-d tensors."""


class ResetHooks(Protocol):
    """The phases of a reset as `TorchEnv` implements them; `ids` are (K,) int64, ascending, K > 0."""

    def _on_episodes_end(self, ids: torch.Tensor) -> None: ...
    def _stage_reset(self, ids: torch.Tensor) -> None: ...
    def _before_commit(self, ids: torch.Tensor) -> None: ...
    def _clear_counters(self, ids: torch.Tensor) -> EpisodeLog: ...
    def _clear_rows(self, ids: torch.Tensor) -> EpisodeLog: ...
    def _after_commit(self, ids: torch.Tensor) -> None: ...
    def _write_observations(self, ids: torch.Tensor) -> None: ...
    def _after_reset(self, ids: torch.Tensor) -> None: ...


class ResetTransaction:
    """Stages, validates and commits a reset of selected rows: manual, selected-row and automatic alike."""

    def __init__(
        self, hooks: ResetHooks, model: ModelLayout, io: BackendIO, staging: Staging, owner: str
    ) -> None:
        """Remembers its parts; `owner` names the environment in error messages."""
        self._hooks = hooks
        self._model = model
        self._io = io
        self._staging = staging
        self._owner = owner
        self._running = False

    def run(self, ids: torch.Tensor) -> EpisodeLog:
        """Resets the rows `ids`, (K,) int64 ascending, K > 0; returns the log of the episodes that ended.

        Raises:
            ResetRejectedError: The staged payload is not valid; nothing was committed.
            RuntimeError: A reset is running already.
        """
        if self._running:
            raise RuntimeError(
                f"{self._owner}: a reset inside a reset; its hooks and events must not call reset()"
            )
        self._running = True
        try:
            return self._run(ids)
        finally:
            self._running = False

    def _run(self, ids: torch.Tensor) -> EpisodeLog:
        hooks, staging = self._hooks, self._staging
        hooks._on_episodes_end(ids)
        staging.open(ids, self._io.column("qpos"), self._io.column("qvel"))
        try:
            hooks._stage_reset(ids)
            payload = staging.payload()
        finally:
            staging.close()
        validate_payload(payload, self._model, num_envs=staging.qpos.shape[0], owner=self._owner)
        hooks._before_commit(ids)
        self._io.apply_reset(staging.mask, payload)
        log = hooks._clear_counters(ids) | hooks._clear_rows(ids)
        hooks._after_commit(ids)
        hooks._write_observations(ids)
        hooks._after_reset(ids)
        return log
