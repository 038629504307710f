"""Before the plan is compiled: runs every term once and remembers what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from unilab_core.env_hooks import EnvHooks
from unilab_core.errors import ConfigError
from unilab_core.io import BackendIO
from unilab_core.reads import declared_reads
from unilab_core.rng import EnvRng
from unilab_core.staging import Staging

__all__ = ["check_groups", "check_observations", "record_reads"]

_GROUPS = ("obs", "critic")
_HOOKS = (
    *(
        "_control",
        "_begin_step",
        "_terminations",
        "_rewards",
        "_advance",
        "_measure",
        "_observe",
        "_after_step",
    ),
    *("_on_episodes_end", "_stage_reset", "_before_commit", "_clear_rows", "_after_commit", "_after_reset"),
)


def check_groups(owner: str, spec: Mapping[str, int]) -> dict[str, int]:
    """Returns the observation groups and their widths.

    Raises:
        ConfigError: No group `"obs"`, another group than `"obs"` and `"critic"`, or an empty one.
    """
    unknown = sorted(set(spec) - set(_GROUPS))
    if unknown or "obs" not in spec:
        raise ConfigError(
            f"{owner}: observation groups are {sorted(spec)}; expected 'obs' and optionally 'critic'"
        )
    for group, width in spec.items():
        if width < 1:
            raise ConfigError(f"{owner}: observation group {group!r} is empty")
    return dict(spec)


def check_observations(
    owner: str, declared: Mapping[str, torch.Tensor], observed: Mapping[str, torch.Tensor], num_rows: int
) -> None:
    """Checks what `_observe` returned; reads shapes only, never the device.

    Args:
        owner: Whose observations, for the error message.
        declared: The buffers of the groups of `obs_groups_spec`, (N, dim).
        observed: What `_observe` returned.
        num_rows: N, or K when rows were asked for.

    Raises:
        ConfigError: Other groups than declared, or one of another shape or dtype.
    """
    if observed.keys() != declared.keys():
        raise ConfigError(
            f"{owner}._observe returned groups {sorted(observed)}, expected {sorted(declared)} as in obs_groups_spec"
        )
    for group, rows in observed.items():
        expected = (num_rows, declared[group].shape[1])
        if rows.dtype != torch.float32 or tuple(rows.shape) != expected:
            raise ConfigError(
                f"{owner}._observe: group {group!r} is {rows.dtype} {tuple(rows.shape)}, "
                f"expected torch.float32 {expected}"
            )


def record_reads(env: EnvHooks, io: BackendIO, staging: Staging, rng: EnvRng) -> None:
    """Runs every hook and recordable call once, at the model's default state and with zero actions.

    What they write goes to a staging area that is dropped; the random sequence is put back. Buffers of terms are
    cleared by the reset that every row must have before its first step.

    Raises:
        ConfigError: A call failed; names it and the cause.
    """
    state = rng.get_state()
    num_envs = staging.qpos.shape[0]
    ids = torch.arange(num_envs, device=rng.device)
    for key in {key: None for hook in _HOOKS for key in declared_reads(getattr(env, hook))}:
        _call(f"@reads({key!r})", lambda key=key: io.column(key))  # type: ignore[misc] # a default argument
    _call("on_episodes_end", lambda: env._on_episodes_end(ids))
    staging.open(ids, io.column("qpos"), io.column("qvel"))
    try:
        _call("reset", lambda: env._stage_reset(ids))
    finally:
        staging.close()
    _call("before_commit", lambda: env._before_commit(ids))
    _call("clear_rows", lambda: env._clear_rows(ids))
    _call("after_commit", lambda: env._after_commit(ids))
    _call("control", lambda: env._control(torch.zeros(num_envs, env.num_actions, device=rng.device)))
    _call("begin_step", env._begin_step)
    for label, call in env._recordable_calls():
        _call(label, call)
    _call("after_step", env._after_step)
    _call("after_reset", lambda: env._after_reset(ids))
    rng.set_state(state)


def _call(label: str, call: Callable[[], object]) -> None:
    try:
        call()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{label}: {type(error).__name__}: {error}") from error
