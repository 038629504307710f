"""Reading changes nothing: terms that are called twice, and what code remembers outside of its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from unilab_managers.checking.findings import Finding
from unilab_managers.checking.hidden_memory import hidden_memory
from unilab_managers.checking.places import Place, differing, equal, owner_of, place_of
from unilab_managers.checking.under_test import TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.watching import global_rng_state, same_rng
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.managers.manager_base import BoundTerm

__all__ = ["check_purity"]

_CHECK = "purity"
_READ = ("observations", "rewards", "terminations", "metrics")
_MOMENTS = (0, 1, 3, 6, 10)
"""Steps after which every term is called twice."""
_UPDATE = "advance what it remembers in update(env), which runs once per step"
_OWN = "compute from the state alone, or keep what it remembers in attributes of a class term"


def check_purity(task: TaskUnderTest) -> list[Finding]:
    """Calls every term that only reads twice on the same state, and looks for memory outside of objects."""
    found: dict[Finding, None] = {}
    with task.env(task.hurried) as env:
        code = dict(_code(env))
        before = {place: hidden_memory(*parts) for place, parts in code.items()}
        act, keys = draw_actions(env, "random", task.seed), env.describe().reads
        with stopping("reset"):
            env.reset()
        for step in range(max(_MOMENTS) + 1):
            if step:
                with stopping(f"step {step}"):
                    env.step(act())
            if step in _MOMENTS:
                found |= dict.fromkeys(_called_twice(env, keys))
        for place, parts in code.items():
            changed = next(differing(before[place], hidden_memory(*parts)), None)
            if changed is not None:
                found[_remembers(place, changed)] = None
    return list(found)


def _remembers(place: Place, what: str) -> Finding:
    return Finding(
        _CHECK,
        *place,
        f"it changes {what}, which a rejected reset does not put back and no checkpoint holds",
        "make it a class term and keep this in an attribute made in __init__",
    )


def _code(env: ManagerBasedRlEnv) -> Iterator[tuple[Place, tuple[object, ...]]]:
    """Yields the code of every term: its function or class, and the class of what a config makes."""
    for manager in env._managers:
        for term in manager._terms.values():
            noise = getattr(term.cfg, "noise", None)
            yield place_of(term.label), (term.cfg.func, *(() if noise is None else (type(noise),)))
    for name in env.command_manager.active_terms:
        yield Place("commands", name), (type(env.command_manager.get_term(name)),)
    for name, action in env.action_manager._action_terms.items():
        yield Place("actions", name), (type(action),)


def _called_twice(env: ManagerBasedRlEnv, keys: tuple[str, ...]) -> Iterator[Finding]:
    """Calls all terms that only read twice, in the state that the environment is in; `keys` are what a step reads."""
    at = _Moment(env, keys)
    for manager in env._managers:
        if manager.owner in _READ:
            for term in manager._terms.values():
                yield from at.twice(place_of(term.label), term, _evaluate(term))
    for name in env.command_manager.active_terms:
        command = env.command_manager.get_term(name)
        yield from at.twice(Place("commands", name), None, lambda command=command: command.command)  # type: ignore[misc] # a default argument
    yield from at.observed_again()


def _evaluate(term: BoundTerm) -> Callable[[], torch.Tensor]:
    return lambda: term()


class _Moment:
    """An environment between two steps, what it remembers and what it has read there."""

    def __init__(self, env: ManagerBasedRlEnv, keys: tuple[str, ...]) -> None:
        self._env = env
        self._keys = keys
        self._state = env.state_dict()
        self._reads = self._read()

    def _read(self) -> dict[str, torch.Tensor]:
        return {key: self._env.state_column(key).clone() for key in self._keys}

    def twice(
        self, place: Place, term: BoundTerm | None, call: Callable[[], torch.Tensor]
    ) -> Iterator[Finding]:
        """Yields what two calls change; puts it back."""
        env, global_rng = self._env, global_rng_state()
        with stopping(f"{place.manager} term {place.term!r}, called once more"):
            first, second = call().clone(), call().clone()
        paths = list(differing(self._state["values"], env.state_dict()["values"]))
        if paths:
            env.load_state_dict(self._state)
        # A reward, a termination or a metric runs once per step, and there is nowhere else for it to advance.
        own = place.manager != "observations" and term is not None and term.instance is not None
        changed = [path for path in paths if not (own and owner_of(env, path) == place)]
        if changed:
            yield _changes(place, changed[0])
        elif (key := next(differing(self._reads, self._read()), None)) is not None:
            fix = "write into a clone() of what is read"
            yield Finding(_CHECK, *place, f"it writes into {key!r}, which it shares with all terms", fix)
            self._reads = self._read()
        elif not own and not equal(first, second):
            drew = "a global random generator" if _moved(global_rng) else "memory that is not the term's"
            what = f"two calls on the same state return different values: they depend on {drew}"
            yield Finding(_CHECK, *place, what, _OWN, kind="symptom")

    def observed_again(self) -> Iterator[Finding]:
        """Yields what computing all observations once more changes."""
        env = self._env
        first = {group: rows.clone() for group, rows in env.observation_manager.compute(None).items()}
        again = env.observation_manager.compute(None)
        changed = next(differing(self._state["values"], env.state_dict()["values"]), None)
        for path in (changed, *differing(first, again)):
            if path is not None:
                place = owner_of(env, path)
                yield Finding(_CHECK, *place, f"computing observations again changes {path}", _UPDATE)


def _changes(place: Place, path: str) -> Finding:
    if path.startswith("rng."):
        fix = "leave noise of observations to noise=; a class term draws in update(env), an event when it is called"
        return Finding(
            _CHECK, *place, "it draws from env.rng when it is read, so that reading moves all draws", fix
        )
    return Finding(_CHECK, *place, f"reading it changes {path}", _UPDATE)


def _moved(before: tuple[Any, ...]) -> bool:
    return not all(same_rng(old, new) for old, new in zip(before, global_rng_state(), strict=True))
