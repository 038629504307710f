"""What a config says about recorders."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationInfo, field_validator

from unilab_managers.cfg.term import check_names
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
        # Not `close`, to which a recorder's own `closed` is near.
        records = [hook for hook in RECORDER_HOOKS if hook.startswith("record_")]
        for name in dir(func):
            if name.startswith("_") or name in RECORDER_HOOKS:
                continue
            if difflib.get_close_matches(name, records, cutoff=0.85):
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
        check_names(func, params, own, accepted)
        return params
