"""What a config says about events."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from unilab_managers.cfg.term import TermCfg

__all__ = ["EventTermCfg"]


class EventTermCfg(TermCfg):
    """Something that happens to rows. The term is called with `(env, env_ids, **params)`."""

    leading: ClassVar[tuple[str, ...]] = ("env", "env_ids")

    mode: Literal["reset"]
    """When: `"reset"` for every row that is being reset, while its new state is staged."""
    min_step_count_between_reset: Annotated[int, Field(ge=0)] = 0
    """Rows that triggered less than so many environment steps ago are left out; the first trigger never is."""
