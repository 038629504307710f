"""Trackers: state that several terms look at and no single one owns, advanced once a step."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, TypeVarTuple

import torch

from unilab_managers.managers.manager_base import named

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["Tracker", "Trackers"]

Ts = TypeVarTuple("Ts")
T = TypeVar("T", bound="Tracker")


class Tracker(ABC):
    """What terms of several managers share: how long a foot has been in the air, what was done two steps ago.

    Made by `env.trackers.share(Kind, *arguments)` in the constructor of a class term, which keeps it and reads its
    attributes in every call; who asks with the same arguments gets the same object. A subclass keeps its state in
    tensors of N rows, made in `__init__(env, *arguments)`, and writes them in place: it is undone with a rejected
    reset and part of a checkpoint.
    """

    @abstractmethod
    def advance(self) -> None:
        """Takes in the state after physics; once a step, before curricula, terminations and rewards."""

    @abstractmethod
    def reset(self, env_ids: torch.Tensor) -> None:
        """Begins the episodes of the rows, (K,) int64: their reset is committed, everything can be read."""


class Trackers:
    """The trackers of an environment, in the order in which they were first asked for.

    One that looks at another asks for it in its constructor, and so comes after it.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_made", "_sealed")

    def __init__(self, env: TorchEnv) -> None:
        """Starts without any."""
        self._env = env
        self._made: dict[tuple[Any, ...], Tracker] = {}
        self._sealed = False

    def share(self, kind: Callable[[Any, *Ts], T], *args: *Ts) -> T:
        """Returns the tracker `kind(env, *args)`, made by whoever asks first; for constructors of class terms.

        Args:
            kind: A subclass of `Tracker`.
            *args: Its arguments after the environment; hashable, for they tell trackers of a kind apart.

        Raises:
            RuntimeError: There is no such tracker, and the terms have been made already.
        """
        key = (kind, *args)
        found = self._made.get(key)
        if found is None:
            name = getattr(kind, "__name__", repr(kind))
            if self._sealed:
                raise RuntimeError(
                    f"trackers: {name}{args} is asked for after the terms were made; ask in a term's constructor"
                )
            with named(f"tracker {name}"):
                found = kind(self._env, *args)
            self._made[key] = found
        return found  # type: ignore[return-value] # the key holds its kind

    def seal(self) -> None:
        """All terms are made: from now on nothing is added."""
        self._sealed = True

    def advance(self) -> None:
        """Lets one step pass for all of them."""
        for tracker in self._made.values():
            with named(f"tracker {type(tracker).__name__}"):
                tracker.advance()

    def reset_resolved(self, ids: torch.Tensor) -> None:
        """Begins the episodes of rows, (K,) int64, in all of them; asks the device nothing."""
        for tracker in self._made.values():
            with named(f"tracker {type(tracker).__name__}"):
                tracker.reset(ids)

    def row_state_roots(self) -> dict[str, object]:
        """Returns each tracker by its kind and arguments, so that the order of terms in a config means nothing."""
        roots: dict[str, object] = {"trackers": self}
        for (kind, *args), tracker in self._made.items():
            own = f"{kind.__module__}.{kind.__qualname__}{tuple(args)!r}"
            digest = hashlib.sha256(own.encode()).hexdigest()[:8]
            roots[f"trackers.{kind.__name__}.{digest}"] = tracker
        return roots
