"""Events that never fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unilab_core.timing import seconds_to_steps
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import Place, place_of
from unilab_managers.checking.under_test import TaskUnderTest, stopping
from unilab_managers.checking.watching import around_terms
from unilab_managers.managers.event_manager import TimedTerm
from unilab_managers.managers.manager_base import BoundTerm

__all__ = ["check_silent_events"]

_CHECK = "silent-events"
_LONGEST = 1500
"""Control steps for which terms that count down by themselves are waited for."""
_PRACTICALLY_ONCE = 1000
"""An event that skips more than so many whole episodes happens once in a training."""


def check_silent_events(task: TaskUnderTest) -> list[Finding]:
    """Compares timers with the length of an episode, and waits for terms that count down by themselves."""
    longest = seconds_to_steps(task.cfg.episode_length_s, task.cfg.step_dt)
    found = [item for name, cfg in task.cfg.events.items() if (item := _judged(task, name, cfg, longest))]
    with task.env() as env:
        timed = {Place("events", name) for name in task.cfg.events if _counts(env.event_manager._terms[name])}
    if not timed:
        return found
    steps = min(longest, _LONGEST)
    silent = timed - _fired(task, steps)
    for place in sorted(silent):
        if steps < longest:
            what, fix = (
                f"it did not act in {steps} steps, the first part of an episode",
                "nothing, if that is meant",
            )
        else:
            what = f"it never acts in an episode of {longest} steps, and each reset starts its countdown anew"
            fix = "shorten its times (cooldown_range_s), or lengthen episode_length_s"
        found.append(Finding(_CHECK, *place, what, fix, kind="note" if steps < longest else "finding"))
    return found


def _judged(task: TaskUnderTest, name: str, cfg: EventTermCfg, longest: int) -> Finding | None:
    place = Place("events", name)
    if cfg.interval_range_s is not None and cfg.resample_on_reset and not cfg.is_global_time:
        shortest = seconds_to_steps(cfg.interval_range_s[0], task.cfg.step_dt)
        if shortest > longest:
            what = (
                f"it never fires: its timer starts anew at every reset and takes at least {shortest} steps, an episode "
                f"takes {longest}"
            )
            fix = "set resample_on_reset=False or is_global_time=True, or a shorter interval_range_s"
            return Finding(_CHECK, *place, what, fix)
    episodes = -(-cfg.min_step_count_between_reset // longest)
    if episodes > 1:
        rarely = episodes > _PRACTICALLY_ONCE
        skipped = f"{cfg.min_step_count_between_reset} steps, {episodes} whole episodes"
        what = f"after its first time it leaves out rows for {skipped}"
        fix = "use mode 'startup' if once is meant, or a smaller min_step_count_between_reset"
        return Finding(_CHECK, *place, what, fix, kind="note" if not rarely else "finding")
    return None


def _counts(term: BoundTerm) -> bool:
    return isinstance(term.instance, TimedTerm)


def _fired(task: TaskUnderTest, steps: int) -> set[Place]:
    """Returns the terms that had something to do in an episode that only ends by its time limit."""
    acted: set[Place] = set()

    def watch(bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        timed = bound.instance
        if not isinstance(timed, TimedTerm) or bound._env.scene.is_recording:
            return call()
        if bool(timed.fires_next().any()):
            acted.add(place_of(bound.label))
        return call()

    # Without ends: a robot that falls is as good for this as one that walks.
    cfg = task.cfg.model_copy(update={"terminations": {}, "num_envs": 2})
    with around_terms(watch), task.env(cfg) as env:
        with stopping("reset"):
            env.reset()
        task.run(env, steps, "zero")
    return acted
