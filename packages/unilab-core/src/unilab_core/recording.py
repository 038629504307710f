"""Before the plan is compiled: runs every term once and remembers what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from unilab_core.env_hooks import EnvHooks
from unilab_core.errors import ConfigError
from unilab_core.io import BackendIO
from unilab_core.rng import EnvRng
from unilab_core.staging import Staging

__all__ = ["check_groups", "record_reads"]

_GROUPS = ("obs", "critic")


def check_groups(owner: str, spec: Mapping[str, int]) -> dict[str, int]:
    """Returns the observation groups and their widths.

    Raises:
        ConfigError: No group `"obs"`, another group than `"obs"` and `"critic"`, or an empty one.
    """
    unknown = sorted(set(spec) - set(_GROUPS))
    if unknown or "obs" not in spec:
        raise ConfigError(f"{owner}: observation groups are {sorted(spec)}; expected 'obs' and optionally 'critic'")
    for group, width in spec.items():
        if width < 1:
            raise ConfigError(f"{owner}: observation group {group!r} is empty")
    return dict(spec)


def record_reads(env: EnvHooks, io: BackendIO, staging: Staging, rng: EnvRng) -> None:
    """Runs the reset hooks and every recordable call once, at the model's default state.

    What they write goes to a staging area that is dropped; the random sequence is put back. Buffers of terms are
    cleared by the reset that every row must have before its first step.

    Raises:
        ConfigError: A call failed; names it and the cause.
    """
    state = rng.get_state()
    ids = torch.arange(staging.qpos.shape[0], device=rng.device)
    _call("on_episodes_end", lambda: env._on_episodes_end(ids))
    staging.open(ids, io.column("qpos"), io.column("qvel"))
    try:
        _call("reset", lambda: env._stage_reset(ids))
    finally:
        staging.close()
    _call("before_commit", lambda: env._before_commit(ids))
    _call("clear_rows", lambda: env._clear_rows(ids))
    _call("after_commit", lambda: env._after_commit(ids))
    for label, call in env._recordable_calls():
        _call(label, call)
    rng.set_state(state)


def _call(label: str, call: Callable[[], object]) -> None:
    try:
        call()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{label}: {type(error).__name__}: {error}") from error
