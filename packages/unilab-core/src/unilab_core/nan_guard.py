"""What happens when a number is not finite: fail with a name, or end the row and go on; and a dump to step again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unilab_core.env_cfg import NanGuardCfg
from unilab_core.state import Observations
from unisim.contract import SimBackend

__all__ = ["NanGuard"]


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

    def begin_step(self, backend: SimBackend, ctrl: torch.Tensor) -> None:
        """Remembers the engine's state and the control, if a dump may still be written."""
        if self._cfg is not None and self._dumps < self._cfg.max_dumps:
            self._before = {"snapshot": backend.snapshot(), "ctrl": ctrl.detach().clone().cpu()}

    def remember(self, obs: Observations) -> None:
        """Keeps the observations of a step in which all were finite, rows that were reset included."""
        for group, rows in self._last_finite.items():
            rows.copy_(obs[group])

    def end_rows(
        self, bad: torch.Tensor, obs: Observations, reward: torch.Tensor, terminated: torch.Tensor
    ) -> None:
        """Ends the rows `bad`, (N,) bool: terminated, reward 0, last finite observation; in place."""
        terminated |= bad
        reward[bad] = 0.0
        for group, rows in obs.items():
            rows[bad] = self._last_finite[group][bad]
        self.count += int(bad.sum())

    def dump(self, message: str, rows: list[int], env: Mapping[str, Any]) -> Path | None:
        """Writes one bounded dump; returns its path, or None if there is none to write.

        Args:
            message: What was not finite, and where.
            rows: The rows.
            env: What `unilab replay` needs to build the simulation again.
        """
        if self._cfg is None or self._before is None:
            return None
        folder = Path(self._cfg.dump_dir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nan_{env['step_counter']:09d}.pt"
        content = {"format": "unilab-nan-dump", "version": 1, "message": message, "rows": rows, **env}
        draft = path.with_suffix(".tmp")
        torch.save(content | self._before, draft)
        draft.replace(path)
        self._dumps += 1
        self._before = None
        return path
