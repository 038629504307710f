"""What a config says about curricula."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from unilab_managers.cfg.term import TermCfg

__all__ = ["CurriculumTermCfg"]


class CurriculumTermCfg(TermCfg):
    """Something that makes the task harder or easier. The term is called with `(env, env_ids, **params)`.

    It edits what managers hold at run time, never the config, and returns what to log: a float, a 0-d tensor, a dict
    of these, or None.
    """

    leading: ClassVar[tuple[str, ...]] = ("env", "env_ids")

    mode: Literal["step", "episode"]
    """When: `"step"` once every step, for all rows, before its terminations and rewards; `"episode"` in every reset,
    for the rows being reset, while their finished episode can still be seen."""

    @model_validator(mode="after")
    def _mode_fits(self) -> CurriculumTermCfg:
        needed = getattr(self.func, "curriculum_mode", self.mode)
        if self.mode != needed:
            raise ValueError(
                f"mode is {self.mode!r}, but {self.func.__name__} judges what only mode {needed!r} shows it"
            )
        return self
