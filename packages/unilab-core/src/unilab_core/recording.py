"""The dry first reset: runs every hook and term before the plan is compiled, and remembers what they read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from unilab_core.env_hooks import EnvHooks
from unilab_core.errors import CapabilityError, ConfigError
from unilab_core.io import BackendIO
from unilab_core.reads import declared_reads
from unilab_core.row_state import RowStateRegistry
from unilab_core.staging import Part, Staging
from unilab_core.verdict import check_control, check_timers
from unisim.reset import ResetPayload

__all__ = ["Recorded", "check_bounds", "check_groups", "check_observations", "record_reads"]

_LOGGER = logging.getLogger(__name__)
_GROUPS = ("obs", "critic")
_RANDOM_SEED = 20240607
"""Any seed will do: it decides which finite values the second run sees, not what an environment draws."""
_HOOKS = (
    *(
        "_control",
        "_begin_step",
        "_follow",
        "_terminations",
        "_rewards",
        "_advance",
        "_measure",
        "_observe",
        "_timers",
        "_timers_judged",
        "_after_step",
    ),
    *("_on_episodes_end", "_stage_reset", "_before_commit", "_clear_rows", "_after_commit", "_after_reset"),
    "_stage_startup",
)


@dataclass
class Recorded:
    """What resets and steps did when they were tried.

    Attributes:
        reset_fields: The model fields that resets write.
        step_parts: The parts of the state that events and commands of a step write.
        timers: The timers that the verdict of a step carries, by name: whether each row has its own.
        observed_hosts: Host terms that observations ask for, which run again for rows that reset.
    """

    reset_fields: set[str] = field(default_factory=set)
    step_parts: set[Part] = field(default_factory=set)
    timers: dict[str, bool] = field(default_factory=dict)
    observed_hosts: frozenset[str] = frozenset()


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


def check_bounds(owner: str, bounds: object, num_actions: int) -> None:
    """Checks the bounds of actions: a policy would broadcast others in silence.

    Raises:
        ConfigError: Not a pair of (A,) tensors.
    """
    pair = isinstance(bounds, tuple) and len(bounds) == 2
    if not pair or any(tuple(getattr(bound, "shape", ())) != (num_actions,) for bound in bounds):  # type: ignore[attr-defined]
        raise ConfigError(
            f"{owner}.action_bounds is {bounds}, expected two tensors of shape ({num_actions},)"
        )


def check_observations(
    owner: str, declared: Mapping[str, int], observed: Mapping[str, torch.Tensor], num_rows: int
) -> None:
    """Checks what `_observe` returned; reads shapes only, never the device.

    Args:
        owner: Whose observations, for the error message.
        declared: Group to its width, as in `obs_groups_spec`.
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
        expected = (num_rows, declared[group])
        if rows.dtype != torch.float32 or tuple(rows.shape) != expected:
            raise ConfigError(
                f"{owner}._observe: group {group!r} is {rows.dtype} {tuple(rows.shape)}, "
                f"expected torch.float32 {expected}"
            )


def record_reads(
    env: EnvHooks,
    io: BackendIO,
    staging: Staging,
    registry: RowStateRegistry,
    control_width: int,
    validate: Callable[[ResetPayload], None],
    check: Callable[[Mapping[str, torch.Tensor]], None],
) -> Recorded:
    """Runs everything that a start, a reset and a step run, twice, and puts back whatever that changed.

    The first run sees the model's default state after a forward, where nothing may fail. The second is served random
    finite values without touching the engine, so that most branches are taken; there a failure only ends the call.

    Args:
        env: The environment.
        io: Records the reads.
        staging: Takes the writes, which are dropped.
        registry: Puts back what terms remember.
        control_width: How many columns `_control` must return.
        validate: Called with what was staged, as before a commit.
        check: Called with the observations of the first run.

    Returns:
        What else the two runs showed.

    Raises:
        ConfigError: A call failed in the first run, or wrote into what it read; names it and the cause.
        CapabilityError: A call asks for what the backend cannot do.
    """
    ids = torch.arange(staging.qpos.shape[0], device=staging.qpos.device)
    for key in {key: None for hook in _HOOKS for key in declared_reads(getattr(env, hook))}:
        with_label(f"@reads({key!r})", lambda key=key: io.column(key))  # type: ignore[misc] # a default argument
    recorded = Recorded()
    saved = registry.save(ids)
    try:
        for label, call in _calls(env, io, staging, ids, control_width, validate, recorded):
            with_label(label, lambda label=label, call=call: _call_as_reader(io, label, call))  # type: ignore[misc]
        with_label("observations", lambda: check(env._observe(None)))
        recorded.observed_hosts = io.host_callers(
            lambda: with_label("observations of a reset", lambda: env._observe(ids))
        )
        registry.check_constants(saved)
        registry.restore(saved)
        with io.random_values(_RANDOM_SEED):
            for label, call in _calls(env, io, staging, ids, control_width, validate, recorded):
                _try(label, call)
    finally:
        staging.close()
        registry.restore(saved)
    return recorded


def _calls(
    env: EnvHooks,
    io: BackendIO,
    staging: Staging,
    ids: torch.Tensor,
    control_width: int,
    validate: Callable[[ResetPayload], None],
    recorded: Recorded,
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields labelled calls in the order of construction, reset and step."""
    for label, startup, hook in (("startup", True, env._stage_startup), ("reset", False, env._stage_reset)):
        if not startup:
            yield "on_episodes_end", lambda: env._on_episodes_end(ids)
        staging.open_reset(ids, io.column("qpos"), io.column("qvel"), startup=startup)
        yield label, lambda hook=hook: hook(ids)  # type: ignore[misc] # a default argument
        yield label, lambda: validate(staging.reset_payload())
        if not startup:
            recorded.reset_fields.update(staging.model.touched)
        staging.close()
    yield "before_commit", lambda: env._before_commit(ids)
    yield "clear_rows", lambda: env._clear_rows(ids)
    yield "after_commit", lambda: env._after_commit(ids)
    zeros = torch.zeros(ids.numel(), env.num_actions, device=ids.device)
    owner = type(env).__name__
    yield "control", lambda: check_control(env._control(zeros), ids.numel(), control_width, ids.device, owner)
    yield "begin_step", env._begin_step
    if env._following():
        before = torch.zeros(ids.numel(), control_width, device=ids.device)
        yield (
            "follow",
            lambda: check_control(
                env._follow(before), ids.numel(), control_width, ids.device, owner, "_follow"
            ),
        )
    for label, call in env._recordable_calls():
        if label == "advance":  # the only phase of a step in which state may be written
            staging.open_step(io.column("qpos"), io.column("qvel"))
        yield label, call
        recorded.step_parts |= staging.written_parts
        staging.close()
    yield "timers", lambda: _try_timers(env, ids, recorded)
    yield "after_step", env._after_step
    yield "after_reset", lambda: env._after_reset(ids)


def _call_as_reader(io: BackendIO, label: str, call: Callable[[], object]) -> None:
    """Calls, and checks that what was read stayed as it was.

    Raises:
        ConfigError: It was written into.
    """
    with io.noting() as noted:
        call()
    noted.check(label)


def _try_timers(env: EnvHooks, ids: torch.Tensor, recorded: Recorded) -> None:
    """Asks for the timers, and tells that each of them may fire."""
    timers = check_timers(env._timers(), ids.numel(), ids.device, f"{type(env).__name__}._timers")
    recorded.timers = {name: fires.ndim > 0 for name, fires in timers.items()}
    env._timers_judged(dict.fromkeys(timers, True))


def with_label(label: str, call: Callable[[], object]) -> None:
    """Calls and names the failure.

    Raises:
        ConfigError: The call failed; the message has its label and the notes that managers add.
    """
    try:
        call()
    except (CapabilityError, ConfigError):
        raise
    except Exception as error:
        notes = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
        raise ConfigError(f"{notes or label + ': '}{type(error).__name__}: {error}") from error


def _try(label: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - random values may be out of any term's range; its reads count
        _LOGGER.debug("%s failed on random values: %s", label, error)
