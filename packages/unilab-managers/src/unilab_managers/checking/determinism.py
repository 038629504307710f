"""The same seed gives the same bits, another seed other draws, and a state continues where it was taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unilab_core.writes import declared_writes
from unilab_managers.cfg.term import called
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import (
    NOBODY,
    Place,
    differing,
    labelled,
    observed,
    owner_of,
    place_of,
)
from unilab_managers.checking.under_test import TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.watching import (
    GlobalRngWatch,
    around_commands,
    around_terms,
    generalised_state,
    global_rng_kept,
    global_rng_state,
)
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.managers.manager_base import BoundTerm

__all__ = ["check_determinism"]

_CHECK = "determinism"
_STEPS = 20
_RESUMED = 8
_RNG = "draw from env.rng: uniform, normal, integers, choice"


def check_determinism(task: TaskUnderTest) -> list[Finding]:
    """Looks for draws from global generators, compares seeds, and continues from a state that was saved."""
    with global_rng_kept():
        found = [*_global_draws(task), *_other_seed(task)]
        if task.is_exact:
            found += [*_same_seed(task), *_resumed(task)]
        else:
            found.append(task.inexact(_CHECK, "whether the same seed gives the same bits is not checked"))
    return found


# ---------------------------------------------------------------- global generators


def _global_draws(task: TaskUnderTest) -> Iterator[Finding]:
    watch = GlobalRngWatch()
    before = global_rng_state()
    with around_terms(watch.term), around_commands(watch.command), task.env(task.hurried) as env:
        if not watch.drew:
            watch.note(Place("", "construction"), before)
        with stopping("reset"):
            env.reset()
        task.run(env, _STEPS // 2, seed=task.seed)
        if not watch.drew:
            watch.note(NOBODY, before)
    for place, whose in watch.drew.items():
        named = place if place.manager else NOBODY
        said = {"": "an action, a noise model or the environment", "construction": "a constructor"}
        who = "it" if place.manager else said[place.term]
        yield Finding(
            _CHECK,
            *named,
            f"{who} draws from {whose} global generator, which no seed of a task reaches",
            _RNG,
        )


# ---------------------------------------------------------------- two runs


@dataclass
class _Step:
    """What one step came to."""

    observed: torch.Tensor
    rewards: dict[str, torch.Tensor]
    ends: dict[str, torch.Tensor]


def _recorded(env: ManagerBasedRlEnv, act: Callable[[], torch.Tensor], steps: int) -> list[_Step]:
    found: list[_Step] = []
    for step in range(1, steps + 1):
        with stopping(f"step {step}"):
            env.step(act())
        ends = env.termination_manager
        found.append(
            _Step(
                observed(env),
                {name: values.clone() for name, values in env.reward_manager.term_values().items()},
                {name: ends.get_term(name).clone() for name in ends.active_terms},
            )
        )
    return found


def _unlike(
    env: ManagerBasedRlEnv, first: Sequence[_Step], second: Sequence[_Step]
) -> tuple[int, dict[Place, str]]:
    """Returns the first step in which two runs differ, and what differs by whose it is; 0 and nothing if none does."""
    columns = labelled(env)
    for step, (a, b) in enumerate(zip(first, second, strict=True)):
        found: dict[Place, str] = {}
        unequal = ((a.observed != b.observed) & ~(a.observed.isnan() & b.observed.isnan())).any(dim=0)
        for column in unequal.nonzero().flatten().tolist():
            place, label = columns[column]
            found.setdefault(place, f"observation {label}")
        for manager, mine, its in (("rewards", a.rewards, b.rewards), ("terminations", a.ends, b.ends)):
            found |= {Place(manager, name): f"what {name} says" for name in differing(mine, its)}
        if found:
            return step, found
    return 0, {}


def _same_seed(task: TaskUnderTest) -> Iterator[Finding]:
    runs: list[tuple[list[_Step], dict[str, Any]]] = []
    for disturbance in (1, 2):
        _disturb(disturbance)
        with task.env(task.hurried) as env:
            with stopping("reset"):
                env.reset()
            start = observed(env)
            steps = _recorded(env, draw_actions(env, "random", task.seed), _STEPS)
            steps.insert(0, _Step(start, {}, {}))
            runs.append((steps, env.state_dict()["values"]))
            step, unlike = _unlike(env, runs[0][0], steps)
            for place, what in unlike.items():
                said = f"two runs of the same seed differ in {what}, first in step {step}"
                yield Finding(_CHECK, *place, said, _RNG, kind="echo")
            path = next(differing(runs[0][1], runs[-1][1]), None)
            if path is not None and not unlike:
                said = f"two runs of the same seed end with another {path}"
                yield Finding(_CHECK, *owner_of(env, path), said, _RNG, kind="echo")


def _disturb(seed: int) -> None:
    """Puts the global generators somewhere else, as a process would that has drawn from them before."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _resumed(task: TaskUnderTest) -> Iterator[Finding]:
    with task.env(task.hurried) as env, task.env(task.hurried, seed=task.seed + 1) as other:
        act = draw_actions(env, "random", task.seed)
        with stopping("reset"):
            env.reset()
        _recorded(env, act, _STEPS // 4)
        state = env.state_dict()
        actions = [act() for _ in range(_RESUMED)]
        wanted = _recorded(env, iter(actions).__next__, _RESUMED)
        try:
            other.load_state_dict(state)
        except ValueError as error:
            fix = "make every attribute in __init__, and keep its type, shape and dtype"
            path = next(differing(other.state_dict()["values"], state["values"]), "")
            place = next(
                (p for p in (owner_of(env, key) for key in _odd(state, other)) if p.term), owner_of(env, path)
            )
            yield Finding(_CHECK, *place, f"its state cannot be loaded again: {error}", fix)
            return
        step, unlike = _unlike(env, wanted, _recorded(other, iter(actions).__next__, _RESUMED))
    fix = "keep what it remembers in attributes of a class term, made in __init__"
    for place, what in unlike.items():
        said = f"a state that is loaded again leads elsewhere: {what} differs {step + 1} steps later"
        yield Finding(_CHECK, *place, said, fix, kind="echo")


def _odd(state: dict[str, Any], other: ManagerBasedRlEnv) -> list[str]:
    """Returns the paths that only one of two states has."""
    return sorted(state["values"].keys() ^ other.state_dict()["values"].keys())


# ---------------------------------------------------------------- another seed


_Outcome = tuple[torch.Tensor, torch.Tensor]
"""What the rows of a call hold after it, and by how much it moved them, (K, C) each."""


class _Outcomes:
    """Notes what each event makes of state and model fields."""

    def __init__(self) -> None:
        self.calls: dict[Place, list[_Outcome]] = {}

    def __call__(self, bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """For `around_terms`."""
        env = bound._env
        if not bound.label.startswith("events ") or env.scene.is_recording:
            return call()
        assert isinstance(env, ManagerBasedRlEnv)
        before = _staged(env, bound, leading[0])
        result = call()
        after = _staged(env, bound, leading[0])
        self.calls.setdefault(place_of(bound.label), []).append((after, after - before))
        return result


def _staged(env: ManagerBasedRlEnv, bound: BoundTerm, ids: torch.Tensor) -> torch.Tensor:
    parts = (bound.cfg.func, called(bound.cfg.func) or bound.cfg.func)
    fields = dict.fromkeys(field for part in parts for field in declared_writes(part))
    values = [entity.data.model_values(field, ids) for field in fields for entity in env.scene.values()]
    return torch.cat([generalised_state(env)[ids], *(part.flatten(1) for part in values)], dim=1)


def _other_seed(task: TaskUnderTest) -> Iterator[Finding]:
    """Finds what is drawn anew in every episode, and yet the same for every seed."""
    cfg = task.hurried.model_copy(update={"curriculum": {}})
    runs: list[tuple[dict[Place, list[_Outcome]], dict[str, list[torch.Tensor]]]] = []
    draws = False
    for seed in (task.seed, task.seed + 1):
        outcomes = _Outcomes()
        with around_terms(outcomes), task.env(cfg, seed=seed) as env:
            start, manager = env.rng.get_state(), env.command_manager
            commands: dict[str, list[torch.Tensor]] = {name: [] for name in manager.active_terms}
            for _ in range(3):
                with stopping("reset"):
                    env.reset()
                for name, drawn in commands.items():
                    drawn.append(manager.get_command(name).clone())
            runs.append((outcomes.calls, commands))
            draws |= not torch.equal(start, env.rng.get_state())
    (calls, commands), (calls_again, commands_again) = runs
    for place, first in calls.items():
        second = calls_again.get(place, [])
        # A column that it moved, judged by its value and by how far it went: others may have drawn before.
        moved = torch.stack([delta for _, delta in first]).ne(0.0).flatten(0, 1).any(dim=0)
        if any(_same_again([a[kind] for a in first], [b[kind] for b in second], moved) for kind in (0, 1)):
            yield _same_draws(place)
    for name, drawn in commands.items():
        if _same_again(drawn, commands_again[name], torch.ones(drawn[0].shape[1], dtype=torch.bool)):
            yield _same_draws(Place("commands", name))
    if not draws:
        what = "a reset draws nothing: all episodes begin alike, whatever the seed"
        yield Finding(_CHECK, "", "", what, "add a reset event if they should not", kind="note")


def _same_again(first: list[torch.Tensor], second: list[torch.Tensor], columns: torch.Tensor) -> bool:
    """Whether any of the columns, (C,) bool, changes from one episode to the next, and does so alike for two seeds."""
    if len(first) < 2 or len(first) != len(second):
        return False
    mine, its = torch.stack(first), torch.stack(second)
    varies = (mine[1:] != mine[:-1]).flatten(0, 1).any(dim=0)
    same = (mine == its).flatten(0, 1).all(dim=0)
    return bool((varies & same & columns.to(same.device)).any())


def _same_draws(place: Place) -> Finding:
    return Finding(
        _CHECK, *place, "it gives other values in every episode, but the same for every seed", _RNG
    )
