"""What a config says about recorders."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationInfo, field_validator

from unisim.config import Cfg, Params
from unisim.errors import nearest
from unisim.import_strings import Func

__all__ = ["RECORDER_HOOKS", "RecorderTermCfg"]

RECORDER_HOOKS = ("record_pre_reset", "record_post_reset", "record_post_step", "close")
"""What a recorder may implement; see `RecorderTermCfg`."""


class RecorderTermCfg(Cfg):
    """Something that watches an environment: a class `T(cfg, env, **params)` with at least one of the hooks.

    `record_pre_reset(env_ids)`: rows are about to be reset, and their finished transition is still visible; the reset
    may still be rejected, so nothing may leave the process. `record_post_reset(env_ids)`: the rows hold their first
    observation. `record_post_step()`: a transition is complete, and no row has been reset yet. `close()`: the
    environment is being closed, perhaps after a fault. `env_ids` is (K,) int64, ascending.

    A recorder has no `__call__`, so its constructor takes the parameters.
    """

    func: Func
    params: Params = {}

    @field_validator("func")
    @classmethod
    def _has_hooks(cls, func: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isclass(func):
            raise ValueError(
                f"{func.__name__} is no class; a recorder is a class with at least one of {RECORDER_HOOKS}"
            )
        for name in dir(func):
            if name not in RECORDER_HOOKS and difflib.get_close_matches(name, RECORDER_HOOKS, cutoff=0.85):
                raise ValueError(
                    f"{func.__name__}.{name} would never be called; {nearest(name, RECORDER_HOOKS)}"
                )
        if not any(callable(getattr(func, hook, None)) for hook in RECORDER_HOOKS):
            raise ValueError(f"{func.__name__} implements none of {RECORDER_HOOKS}")
        return func

    @field_validator("params")
    @classmethod
    def _match_signature(cls, params: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        func = info.data.get("func")
        if func is None:
            return params
        accepted = list(inspect.signature(func).parameters.values())
        if len([p for p in accepted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) < 2:
            raise ValueError(
                f"{func.__name__}.__init__ takes no (cfg, env); expected (self, cfg, env, **params)"
            )
        own = {p.name: p for p in accepted[2:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in accepted):
            for name in params:
                if name not in own:
                    raise ValueError(f"{func.__name__} has no parameter {name!r}; {nearest(name, own)}")
        for name, p in own.items():
            if p.default is p.empty and name not in params:
                raise ValueError(f"{func.__name__} needs parameter {name!r}")
        return params
