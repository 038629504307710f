"""What happens when a number is not finite: fail with a name, or end the row and go on; and a dump to step again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch

from unilab_core.env_cfg import NanGuardCfg
from unilab_core.state import Observations
from unisim.contract import SimBackend

__all__ = ["NanGuard"]

_LOGGER = logging.getLogger(__name__)


class NanGuard:
    """The guard of one environment. Without a config it only says that the policy is `"raise"`.

    Attributes:
        policy: `"raise"` or `"reset_row"`.
        count: Rows ended so far because a number was not finite.
    """

    def __init__(self, cfg: NanGuardCfg | None, obs: Observations) -> None:
        """Allocates what the policy needs."""
        self._cfg = cfg
        self.policy = cfg.policy if cfg is not None else "raise"
        self.count = 0
        self._dumps = 0
        keeps = self.policy == "reset_row"
        self._last_finite = {group: rows.clone() for group, rows in obs.items()} if keeps else {}
        self._before: dict[str, Any] | None = None

    def begin_step(self, backend: SimBackend) -> None:
        """Remembers the engine's state, if a dump may still be written."""
        self._before = None
        if self._cfg is not None and self._dumps < self._cfg.max_dumps:
            self._before = {"snapshot": backend.snapshot(), "ctrl": []}

    def keep_control(self, ctrl: torch.Tensor) -> None:
        """Remembers the control, (N, C), of the step, or of its next substep."""
        if self._before is not None:
            self._before["ctrl"].append(ctrl.detach().clone())

    def after_physics(self, state: Callable[[str], torch.Tensor]) -> None:
        """Remembers the state that physics came to, before events write any."""
        if self._before is not None:
            self._before["after"] = {name: state(name).clone() for name in ("qpos", "qvel")}

    def remember(self, obs: Observations, ids: torch.Tensor | None = None) -> None:
        """Keeps the observations of rows that are finite, each row's last ones.

        Args:
            obs: Of all rows.
            ids: (K,) int64, the only rows that are new since this was called last; None if all may be.
        """
        for group, kept in self._last_finite.items():
            new, old = obs[group], kept
            if ids is not None:
                new, old = new.index_select(0, ids), old.index_select(0, ids)
            rows = torch.where(torch.isfinite(new).all(dim=1, keepdim=True), new, old)
            if ids is None:
                kept.copy_(rows)
            else:
                kept.index_copy_(0, ids, rows)

    def end_rows(
        self, bad: torch.Tensor, obs: Observations, reward: torch.Tensor, terminated: torch.Tensor
    ) -> None:
        """Ends the rows `bad`, (N,) bool: terminated, reward 0, last finite observation; in place."""
        terminated |= bad
        reward[bad] = 0.0
        for group, rows in obs.items():
            rows[bad] = self._last_finite[group][bad]
        self.count += int(bad.sum())

    def dump(self, message: str, rows: list[int], describe: Callable[[], Mapping[str, Any]]) -> str:
        """Writes one bounded dump, if one is left to write; returns what a message says of it.

        A dump that cannot be written hides no finding: the message says why.

        Args:
            message: What was not finite, and where.
            rows: The rows.
            describe: Returns what `unilab replay` needs to build the simulation again.
        """
        if self._cfg is None or self._before is None:
            return ""
        before, self._before = self._before, None
        self._dumps += 1
        try:
            first, *others = before["ctrl"]
            before["ctrl"] = torch.stack([first, *others]) if others else first
            content = {"format": "unilab-nan-dump", "version": 1, "message": message, "rows": rows}
            path = _write(Path(self._cfg.dump_dir), _on_host(content | dict(describe()) | before))
        except Exception as error:  # noqa: BLE001 - whatever keeps a dump from being written, the finding goes first
            _LOGGER.warning("no NaN dump written: %s", error)
            return f"; no dump written: {type(error).__name__}: {error}"
        return f"; dump written to {path}"


def _on_host(value: Any) -> Any:  # noqa: ANN401 - whatever a dump holds
    """Returns the content with every tensor in host memory, so that a machine without the device can load it."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: _on_host(item) for key, item in value.items()}
    return value


def _write(folder: Path, content: dict[str, Any]) -> Path:
    """Writes a dump under a name that no other environment took; a cut file never has that name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"nan_{content['step_counter']:09d}"
    path = next(p for i in count() if not (p := folder / (f"{name}-{i}.pt" if i else f"{name}.pt")).exists())
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    torch.save(content, draft)
    draft.replace(path)
    return path
