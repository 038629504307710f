"""Looks over the shoulder of terms while an environment runs: what each call draws, writes and returns.

`BoundTerm.__call__` is exchanged for the time of a block, construction of environments included: whatever the
class of an environment, and without anything in the way of terms when nobody looks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from unilab_core.errors import ResetRejectedError
from unilab_managers.checking.places import NOBODY, Place, equal, place_of
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.managers.command_manager import CommandTerm
from unilab_managers.managers.manager_base import BoundTerm
from unisim.randomization import FieldLayout, check_model_values

__all__ = [
    "GlobalRngWatch",
    "RolloutWatch",
    "StagingWatch",
    "around_commands",
    "around_terms",
    "generalised_state",
    "global_rng_kept",
    "global_rng_state",
    "same_rng",
]

Around = Callable[[BoundTerm, tuple[torch.Tensor, ...], Callable[[], Any]], Any]
"""`around(term, leading, call)` returns what `call()` returns: `leading` is `(env_ids,)` for events and curricula."""
AroundCommand = Callable[[CommandTerm, Callable[[], Any]], Any]


@contextmanager
def around_terms(around: Around) -> Iterator[None]:
    """Has `around` make every call of a bound term while the block lasts."""
    original = BoundTerm.__call__

    def call(bound: BoundTerm, *leading: torch.Tensor) -> Any:  # noqa: ANN401 - as the original
        return around(bound, leading, lambda: original(bound, *leading))

    setattr(BoundTerm, "__call__", call)  # noqa: B010 - to a type checker, methods are not to be exchanged
    try:
        yield
    finally:
        setattr(BoundTerm, "__call__", original)  # noqa: B010 - likewise


@contextmanager
def around_commands(around: AroundCommand) -> Iterator[None]:
    """Has `around` make every call of a command by its manager while the block lasts."""
    names = ("advance", "reset_resolved", "refresh")
    originals = {name: getattr(CommandTerm, name) for name in names}

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda term, *args: around(term, lambda: original(term, *args))

    for name, original in originals.items():
        setattr(CommandTerm, name, make(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(CommandTerm, name, original)


# ---------------------------------------------------------------- global randomness


def global_rng_state() -> tuple[Any, ...]:
    """Returns the states of the global generators of torch, Python and NumPy, and of torch's on each CUDA device.

    The last is empty as long as this process has not used CUDA.
    """
    is_used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # of torch
    on_devices = tuple(torch.cuda.get_rng_state_all()) if is_used else ()
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), on_devices


@contextmanager
def global_rng_kept() -> Iterator[None]:
    """Puts the global generators back when the block ends."""
    torch_state, python_state, numpy_state, device_states = global_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if device_states:
            torch.cuda.set_rng_state_all(list(device_states))


class GlobalRngWatch:
    """Notes who draws from a global generator, and from which.

    Attributes:
        drew: Term to the name of the generator.
    """

    NAMES = ("torch's", "Python's", "NumPy's", "torch's CUDA")

    def __init__(self) -> None:
        """Starts with nobody."""
        self.drew: dict[Place, str] = {}

    def term(self, bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """For `around_terms`."""
        return self._watch(place_of(bound.label), call)

    def command(self, term: CommandTerm, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """For `around_commands`."""
        return self._watch(place_of(term.label), call)

    def _watch(self, place: Place, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        before = global_rng_state()
        result = call()
        self.note(place, before)
        return result

    def note(self, place: Place, before: tuple[Any, ...]) -> None:
        """Notes which generators have moved since `before`."""
        moved = [
            name
            for name, old, new in zip(self.NAMES, before, global_rng_state(), strict=True)
            if not same_rng(old, new)
        ]
        if moved and place not in self.drew:
            self.drew[place] = moved[0]


def same_rng(old: Any, new: Any) -> bool:  # noqa: ANN401 - states of three kinds
    """Whether two states of a generator are the same."""
    if isinstance(old, torch.Tensor):
        return torch.equal(old, new)
    if isinstance(old, tuple):
        return len(old) == len(new) and all(same_rng(a, b) for a, b in zip(old, new, strict=True))
    return bool(np.array_equal(old, new)) if isinstance(old, np.ndarray) else bool(old == new)


# ---------------------------------------------------------------- what a rollout shows


def generalised_state(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns joint and free-root state of all entities, (N, S) float32, fresh; staged values where there are any."""
    parts: list[torch.Tensor] = []
    for entity in env.model_layout.entities:
        data = env.scene[entity.name].data
        parts += [data.joint_pos, data.joint_vel]
        if entity.root_joint is not None:
            parts += [data.root_pos_w, data.root_quat_w, data.root_lin_vel_w, data.root_ang_vel_b]
    return torch.cat(parts, dim=1)


class RolloutWatch:
    """Notes which events write rows they were not called for, and which term returns what is not finite.

    Attributes:
        strayed: Events that wrote rows other than theirs.
        not_finite: The first term that returned a NaN or an infinity; nobody if none did.
    """

    def __init__(self) -> None:
        """Starts with nobody."""
        self.strayed: dict[Place, None] = {}
        self.not_finite = NOBODY

    def __call__(self, bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """For `around_terms`."""
        place = place_of(bound.label)
        if place.manager != "events" or not leading or bound.cfg.mode == "startup":  # type: ignore[attr-defined] # an event has a mode
            result = call()
            if isinstance(result, torch.Tensor) and self.not_finite == NOBODY and not result.isfinite().all():
                self.not_finite = place
            return result
        env = bound._env
        assert isinstance(env, ManagerBasedRlEnv)
        before = generalised_state(env)
        try:
            return call()
        finally:
            others = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
            others[leading[0]] = False
            if not equal(generalised_state(env)[others], before[others]):
                self.strayed[place] = None


class StagingWatch:
    """Notes which event stages model values that no row can have: a rejection says what is wrong, and not whose.

    Attributes:
        culprit: The event; nobody while all that is staged is possible.
    """

    def __init__(self) -> None:
        """Starts with nobody."""
        self.culprit = NOBODY
        self._env: ManagerBasedRlEnv | None = None
        self._own: dict[tuple[str, str], FieldLayout] = {}

    def __call__(self, bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """For `around_terms`, from before an environment is built."""
        place, env = place_of(bound.label), bound._env
        if place.manager != "events" or bound.cfg.mode not in ("reset", "startup"):  # type: ignore[attr-defined] # an event has a mode
            return call()
        assert isinstance(env, ManagerBasedRlEnv)
        if env is not self._env:  # its first event, before which all values are the model's own
            self._env, self._own = env, dict(_own_fields(env))
        result = call()
        if self._is_possible(env):
            self.culprit = NOBODY
        elif self.culprit == NOBODY:  # else an earlier event has staged it
            self.culprit = place
        return result

    def _is_possible(self, env: ManagerBasedRlEnv) -> bool:
        rows = torch.arange(env.num_envs, device=env.device)
        for (entity, field), own in self._own.items():
            values = env.scene[entity].data.model_values(field, rows)
            if not bool(values.isfinite().all()) or check_model_values(field, values, own) is not None:
                return False
        return True

    def blamed_for(self, error: BaseException) -> Place:
        """Returns the event that a rejection of what is staged is due to; nobody if `error` has another cause."""
        return self.culprit if isinstance(error.__cause__, ResetRejectedError) else NOBODY


def _own_fields(env: ManagerBasedRlEnv) -> Iterator[tuple[tuple[str, str], FieldLayout]]:
    """Yields the present model values of each entity, those of row 0, by its name and the field."""
    row = torch.zeros(1, dtype=torch.int64, device=env.device)
    for name, entity in env.scene.items():
        for field in env.declared.model_fields:
            values = entity.data.model_values(field, row)[0]
            yield (name, field), FieldLayout(tuple(values.shape), tuple(values.flatten().tolist()))
