"""What a config says about events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from unilab_managers.cfg.term import TermCfg, called

__all__ = ["EventTermCfg"]


class EventTermCfg(TermCfg):
    """Something that happens to rows. The term is called with `(env, env_ids, **params)`, env_ids (K,) int64."""

    leading: ClassVar[tuple[str, ...]] = ("env", "env_ids")

    mode: Literal["startup", "reset", "interval", "step"]
    """When: once after construction; for every row that is being reset, while its new state is staged; each time that
    a timer runs down; or in every step, for all rows."""
    interval_range_s: tuple[float, float] | None = None
    """Shortest and longest time between two triggers, s; whole control steps are drawn, both ends included."""
    is_global_time: bool = False
    """Whether all rows share one timer instead of having one each."""
    resample_on_reset: bool = True
    """Whether a row's own timer starts anew when the row is reset; otherwise it runs on across episodes."""
    min_step_count_between_reset: Annotated[int, Field(ge=0)] = 0
    """Rows that triggered less than so many environment steps ago are left out; the first trigger never is."""

    @field_validator("func")
    @classmethod
    def _is_called(cls, func: Callable[..., Any]) -> Callable[..., Any]:
        if called(func) is None:
            raise ValueError(
                f"class term {func.__name__} has no __call__; the event itself is "
                "`def __call__(self, env, env_ids, **params)`, made by `def __init__(self, cfg, env)`; "
                "`def reset(self, env_ids)` only clears what the term remembers of rows"
            )
        return func

    @model_validator(mode="after")
    def _fields_fit_the_mode(self) -> Self:
        if self.mode == "interval":
            if self.interval_range_s is None:
                raise ValueError("mode 'interval' needs interval_range_s, (shortest, longest) in s")
            low, high = self.interval_range_s
            if not 0.0 < low <= high:
                raise ValueError(
                    f"interval_range_s is ({low}, {high}), expected 0 < shortest <= longest, in s"
                )
            if self.is_global_time and not self.resample_on_reset:
                raise ValueError(
                    "resample_on_reset is about timers of single rows; is_global_time=True has none"
                )
            timer: tuple[str, ...] = ()
        else:
            timer = ("interval_range_s", "is_global_time", "resample_on_reset")
        unused = timer if self.mode == "reset" else (*timer, "min_step_count_between_reset")
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                wanted = "reset" if name == "min_step_count_between_reset" else "interval"
                raise ValueError(
                    f"{name} is for mode {wanted!r}; a term of mode {self.mode!r} does not use it"
                )
        return self
