"""The one order of a reset, whoever asks for it; until the commit, everything can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from unilab_core.errors import ResetRejectedError
from unilab_core.io import BackendIO
from unilab_core.row_state import ConstantChangedError, RowStateRegistry, SavedRows
from unilab_core.staging import Staging
from unisim.reset import ResetPayload

__all__ = ["EpisodeLog", "ResetHooks", "ResetTransaction"]

EpisodeLog = dict[str, torch.Tensor]
"""`<key>/sum` and `<key>/count` to 0-d tensors."""


class _NestedResetError(RuntimeError):
    """A hook of a reset called reset()."""


_AS_THEY_ARE = (ResetRejectedError, ConstantChangedError, _NestedResetError)
"""What says enough of itself to be raised unchanged."""


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
    """Stages, validates and commits a reset of selected rows: manual, selected-row and automatic alike.

    Attributes:
        committed: Whether a run that failed got past the point where it could be taken back.
    """

    def __init__(
        self,
        hooks: ResetHooks,
        io: BackendIO,
        staging: Staging,
        registry: RowStateRegistry,
        *,
        validate: Callable[[ResetPayload], None],
        owner: str,
    ) -> None:
        """Remembers its parts; `owner` names the environment in error messages."""
        self._hooks = hooks
        self._io = io
        self._staging = staging
        self._registry = registry
        self._validate = validate
        self._owner = owner
        self._running = False
        self.committed = False

    @property
    def is_running(self) -> bool:
        """Whether a reset is being staged, committed or observed."""
        return self._running

    def run(self, ids: torch.Tensor) -> EpisodeLog:
        """Resets the rows `ids`, (K,) int64 ascending, K > 0; returns the log of the episodes that ended.

        Raises:
            ResetRejectedError: Staging or validation failed, the cause is chained: nothing was committed, and
                everything is as before.
            ConfigError: A large tensor without rows was changed; only `close` still works if it was changed in place.
            RuntimeError: A reset is running already.
        """
        if self._running:
            raise _NestedResetError(
                f"{self._owner}: a reset inside a reset; its hooks and events must not call reset()"
            )
        self._running = True
        self.committed = False
        try:
            log = self._run(ids)
            self.committed = False  # nothing failed; a later error is not this run's
            return log
        finally:
            self._running = False
            self._staging.close()

    def _run(self, ids: torch.Tensor) -> EpisodeLog:
        hooks = self._hooks
        saved = self._registry.save(ids)
        try:
            hooks._on_episodes_end(ids)
            payload = self._stage(ids)
            hooks._before_commit(ids)
            self._registry.check_constants(saved)
            self._commit(payload)
        except BaseException as error:
            if self.committed:
                raise
            self._registry.restore(saved)
            self._check_constants(saved)
            if isinstance(error, _AS_THEY_ARE) or not isinstance(error, Exception):
                raise
            raise ResetRejectedError(f"{self._owner}: {_explain(error)}; nothing was committed") from error
        log = hooks._clear_counters(ids) | hooks._clear_rows(ids)
        hooks._after_commit(ids)
        hooks._write_observations(ids)
        hooks._after_reset(ids)
        return log

    def _check_constants(self, saved: SavedRows) -> None:
        """A change that cannot be taken back is as final as a commit."""
        try:
            self._registry.check_constants(saved)
        except ConstantChangedError:
            self.committed = True
            raise

    def _stage(self, ids: torch.Tensor) -> ResetPayload:
        """From the default state through all reset events to one checked payload."""
        staging = self._staging
        staging.open_reset(ids, self._io.column("qpos"), self._io.column("qvel"))
        self._hooks._stage_reset(ids)
        payload = staging.reset_payload()
        staging.close()
        self._validate(payload)
        return payload

    def _commit(self, payload: ResetPayload) -> None:
        """Exactly one commit; a backend that rejects it promises that nothing was written."""
        try:
            self._io.apply_reset(self._staging.mask, payload)
        except ResetRejectedError:
            raise
        except BaseException:
            self.committed = True
            raise
        self.committed = True
        self._staging.model.committed(payload.env_ids, dict(payload.model))


def _explain(error: BaseException) -> str:
    """What failed and why, terms named by the notes that managers add."""
    where = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    return f"{where}{type(error).__name__}: {error}"
