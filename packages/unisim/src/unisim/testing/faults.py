"""Failures that a fake is told to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault:
    """One injected failure.

    Attributes:
        kind: `"before_commit"` rejects a reset or a row write before anything is written; `"after_first_write"` fails
            in the middle of one: the first part is written, in the order model fields, qpos, qvel, ctrl; `"step"` fails
            before physics moves; `"nan"` makes the state of `row` non-finite after a substep.
        at: Which one fails, counted from 0: the call of `call` for the first two kinds, the substep otherwise.
        row: The row, for `"nan"`; the first by default.
        call: Whether resets or row writes are counted (`set_state_tensor` counts as a row write).
    """

    kind: Literal["before_commit", "after_first_write", "step", "nan"]
    at: int = 0
    row: int | None = None
    call: Literal["apply_reset", "write_rows"] = "apply_reset"

    @property
    def counts(self) -> str:
        """What `at` counts: `"apply_reset"`, `"write_rows"` or `"substep"`."""
        return "substep" if self.kind in ("step", "nan") else self.call
