"""What a term remembers of an episode that has ended, and says in the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import Place, equal, observed, owner_of
from unilab_managers.checking.under_test import TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.watching import generalised_state, global_rng_kept
from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["carried_over"]

_STEPS_BEFORE = 5
_STEPS_AFTER = 3
_KINDS = ("observations", "rewards", "terminations", "metrics", "actions")
"""Whose memory is of one episode. Events and commands may well go on across episodes: their timers can."""


def carried_over(task: TaskUnderTest, env: ManagerBasedRlEnv, twin: ManagerBasedRlEnv) -> Iterator[Finding]:
    """Gives two twins different pasts, resets both alike, and looks for terms that say something else then.

    A term may keep what it never looks at again. So the two are made the same but for what a term kept of its past, and
    only a difference in what follows counts.

    Args:
        task: The task.
        env: One environment.
        twin: Another one of the same config, in the same state.
    """
    for one, seed in ((env, task.seed), (twin, task.seed + 1)):
        act = draw_actions(one, "random", seed)
        for step in range(1, _STEPS_BEFORE + 1):
            with stopping(f"step {step}"):
                one.step(act())
    # The same in all else, draws included, so that a reset leaves a difference only where it leaves the past.
    state, past = env.state_dict(), twin.state_dict()["values"]
    with stopping("load_state_dict of what state_dict returned"):
        twin.load_state_dict(
            _with(state, past, [path for paths in _unlike(env, state, past).values() for path in paths])
        )
    for one in (env, twin):
        with global_rng_kept(), stopping("reset after episodes of a few steps"):
            one.reset()
    if not equal(generalised_state(env), generalised_state(twin)):
        return  # a reset draws from what is not the environment's, which is another check's to find
    state, past = env.state_dict(), twin.state_dict()["values"]
    kept = _unlike(env, state, past)
    for place, paths in kept.items():
        later = _differs(task, env, twin, state, _with(state, past, paths), place)
        if later is not None:
            when = f"{later} step{'s'[: later != 1]} after a reset"
            what = f"{paths[0]} remembers the episode before: {when} what follows depends on it"
            fix = "clear the rows that its reset is given"
            yield Finding("reset-isolation", *place, what, fix, kind="symptom")


def _unlike(env: ManagerBasedRlEnv, state: dict[str, Any], past: dict[str, Any]) -> dict[Place, list[str]]:
    """Returns by term the paths of what belongs to rows and is another thing in `past`."""
    found: dict[Place, list[str]] = {}
    for path, value in state["values"].items():
        if not (isinstance(value, torch.Tensor) and value.ndim and value.shape[0] == env.num_envs):
            continue
        place = owner_of(env, path)
        if place.term and place.manager in _KINDS and path in past and not equal(value, past[path]):
            found.setdefault(place, []).append(path)
    return found


def _with(state: dict[str, Any], past: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    return {**state, "values": state["values"] | {path: past[path] for path in paths}}


def _differs(
    task: TaskUnderTest,
    env: ManagerBasedRlEnv,
    twin: ManagerBasedRlEnv,
    state: dict[str, Any],
    mixed: dict[str, Any],
    place: Place,
) -> int | None:
    """Returns in which step two states that differ in a term's memory alone lead elsewhere; None if in none."""
    for one, start in ((env, state), (twin, mixed)):
        with stopping("load_state_dict of what state_dict returned"):
            one.load_state_dict(start)
    act = draw_actions(env, "random", task.seed + 2)
    for step in range(1, _STEPS_AFTER + 1):
        actions = act()
        for one in (env, twin):
            with stopping(f"step {step} after a reset"):
                one.step(actions)
        if not equal(_outcome(env, place), _outcome(twin, place)):
            return step
    return None


def _outcome(env: ManagerBasedRlEnv, place: Place) -> list[Any]:
    """Returns what a step has come to, but for what the term keeps for itself."""
    state, ends = env.state_dict(), env.termination_manager
    others = {path: value for path, value in state["values"].items() if owner_of(env, path) != place}
    said = [ends.get_term(name).clone() for name in ends.active_terms]
    return [observed(env), env.reward_manager.term_values(), said, others, state["backend"]]
