"""A reset leaves nothing behind: all other rows are as they were, and its own rows begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from unilab_managers.checking.carrying import carried_over
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import NOBODY, Place, equal, labelled, observed, owner_of
from unilab_managers.checking.under_test import StoppedError, TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.watching import RolloutWatch, around_terms
from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["check_reset_isolation"]

_CHECK = "reset-isolation"
_ROUNDS = 3
_STEPS_BETWEEN = 3
_STEPS_AFTER = 4
_COUNTS = ("_episode_length", "_model_current[")
_NOBODYS = (*_COUNTS, "_obs[")
_ROWS_ONLY = "change only the rows it is called with: values[env_ids] = ..., or torch.where with the mask"


def check_reset_isolation(task: TaskUnderTest) -> list[Finding]:
    """Resets some rows of one of two twins, and compares the others: at once, and in the steps that follow.

    Then both end episodes with different pasts, and what terms say of those that follow is compared.
    """
    # What a curriculum changes when rows end is for all rows, by design.
    cfg = task.hurried.model_copy(update={"curriculum": {}})
    watch = RolloutWatch()
    found: dict[Finding, None] = {}
    failed: StoppedError | None = None
    with around_terms(watch), task.env(cfg) as env, task.env(cfg) as twin:
        try:
            found |= dict.fromkeys(_compared(task, env, twin))
            if task.is_exact:
                found |= dict.fromkeys(carried_over(task, env, twin))
        except StoppedError as error:
            if not watch.strayed:
                raise
            failed = error
    if watch.strayed:
        found.clear()  # what else is unlike in the two follows from it, whosever it is
    for place in watch.strayed:
        what = "it writes rows that it was not called for"
        refused = f"; {failed}" if failed is not None else ""
        found[Finding(_CHECK, *place, what + refused, _ROWS_ONLY)] = None
    if not task.is_exact:
        what = "physics and later steps of rows that are not reset, and what episodes leave behind, are not compared"
        found[task.inexact(_CHECK, what)] = None
    return list(found)


def _compared(task: TaskUnderTest, env: ManagerBasedRlEnv, twin: ManagerBasedRlEnv) -> Iterator[Finding]:
    rows = torch.arange(env.num_envs, device=env.device)
    act = draw_actions(env, "random", task.seed)
    for one in (env, twin):
        with stopping("reset"):
            one.reset()
    for round_ in range(_ROUNDS):
        for step in range(_STEPS_BETWEEN):
            actions = act()
            for one in (env, twin):
                with stopping(f"step {step + 1} of round {round_ + 1}"):
                    one.step(actions)
        _put(env.state_dict(), twin)
        ids = rows[rows % 3 == round_ % 3]
        others = rows[rows % 3 != round_ % 3]
        before = _held(env, task.is_exact)
        with stopping(f"reset of rows {ids.tolist()}"):
            env.reset(ids)
        after = _held(env, task.is_exact)
        for place, what in before:
            if not equal(before[place, what][others], after[place, what][others]):
                yield _changed(place, what)
        if task.is_exact:
            twin.rng.set_state(env.rng.get_state())
            yield from _afterwards(env, twin, others, act)
        _put(env.state_dict(), twin)


def _put(state: dict[str, Any], twin: ManagerBasedRlEnv) -> None:
    with stopping("load_state_dict of what state_dict returned"):
        twin.load_state_dict(state)


def _held(env: ManagerBasedRlEnv, is_exact: bool) -> dict[tuple[Place, str], torch.Tensor]:
    """Returns what belongs to rows, (N, ...), by whose it is and what it is: terms' own tensors, timers, physics.

    What physics computes is left out where it need not come to the same bits.
    """
    state = env.state_dict()
    held: dict[tuple[Place, str], torch.Tensor] = {}
    for path, value in state["values"].items():
        if isinstance(value, torch.Tensor) and value.ndim and value.shape[0] == env.num_envs:
            place = owner_of(env, path)
            if place.term or path.startswith(_NOBODYS if is_exact else _COUNTS):
                held[place, path] = value
    for name in env.event_manager.active_terms:
        if name in env.cfg.events and env.cfg.events[name].interval_range_s is not None:
            held[Place("events", name), "its timer"] = env.event_manager.steps_left(name)
    for name, value in state["backend"].items() if is_exact else ():
        if value.ndim and value.shape[0] == env.num_envs:
            held[NOBODY, f"physics ({name})"] = value
    return held


def _changed(place: Place, what: str) -> Finding:
    said = f"a reset of some rows changes {what} of others"
    return Finding(_CHECK, *place, said, _ROWS_ONLY, kind="symptom")


def _afterwards(
    env: ManagerBasedRlEnv, twin: ManagerBasedRlEnv, others: torch.Tensor, act: Callable[[], torch.Tensor]
) -> Iterator[Finding]:
    """Steps both on, as long as both draw the same numbers; yields where rows that were not reset part ways."""
    columns = labelled(env)
    for step in range(1, _STEPS_AFTER + 1):
        actions = act()
        for one in (env, twin):
            with stopping(f"step {step} after a reset of some rows"):
                one.step(actions)
        yield from _judged_unlike(env, twin, others, step)
        if not torch.equal(env.rng.get_state(), twin.rng.get_state()):
            return  # a timer of a row that was reset made the two draw for different rows, after the rewards
        yield from _seen_unlike(env, twin, others, columns, step)


def _judged_unlike(
    env: ManagerBasedRlEnv, twin: ManagerBasedRlEnv, others: torch.Tensor, step: int
) -> Iterator[Finding]:
    mine, its = env.reward_manager.term_values(), twin.reward_manager.term_values()
    for name in mine:
        if not equal(mine[name][others], its[name][others]):
            yield _parted(Place("rewards", name), step, "reward")
    for name in env.termination_manager.active_terms:
        one, other = (e.termination_manager.get_term(name)[others] for e in (env, twin))
        if not equal(one, other):
            yield _parted(Place("terminations", name), step, "end")


def _seen_unlike(
    env: ManagerBasedRlEnv,
    twin: ManagerBasedRlEnv,
    others: torch.Tensor,
    columns: list[tuple[Place, str]],
    step: int,
) -> Iterator[Finding]:
    a, b = observed(env)[others], observed(twin)[others]
    parted: list[int] = (a != b).any(dim=0).nonzero().flatten().tolist()
    for place in dict.fromkeys(columns[i][0] for i in parted):
        yield _parted(place, step, "observation")


def _parted(place: Place, step: int, what: str) -> Finding:
    said = f"{step} step{'s'[: step != 1]} after a reset of some rows, others have another {what}"
    fix = "keep what belongs to rows in tensors of N rows, and change in a reset only those of the rows it is given"
    return Finding(_CHECK, *place, said, fix, kind="echo")
