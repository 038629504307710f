"""A finite rollout whose tensors are as declared."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from unilab_core.state import TorchEnvState
from unilab_managers.checking.findings import Finding, Kind
from unilab_managers.checking.places import NOBODY
from unilab_managers.checking.under_test import StoppedError, TaskUnderTest, stopping
from unilab_managers.checking.variants import EPISODE_STEPS
from unilab_managers.checking.watching import RolloutWatch, around_terms
from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["check_rollout", "check_spaces"]

_STEPS = 3 * EPISODE_STEPS


def check_rollout(task: TaskUnderTest) -> list[Finding]:
    """Runs short episodes of random and zero actions: nothing fails, all is finite, no episode ends at once."""
    watch = RolloutWatch()
    try:
        with around_terms(watch), around_terms(task.staging), task.env(task.hurried) as env:
            return list(dict.fromkeys(_run(task, env)))
    except StoppedError as error:
        if watch.strayed:
            place = next(iter(watch.strayed))
            return [_failed(error, place, "symptom")]
        places = (error.place, task.staging.blamed_for(error), watch.not_finite)
        return [_failed(error, next((place for place in places if place != NOBODY), NOBODY))]


def _failed(error: StoppedError, place: tuple[str, str], kind: Kind = "finding") -> Finding:
    fix = "make it valid for every state that an episode can reach"
    return Finding("rollout", *place, str(error), fix, kind)


def _run(task: TaskUnderTest, env: ManagerBasedRlEnv) -> Iterator[Finding]:
    ends: list[torch.Tensor] = []
    bad: list[int] = []

    def each(state: TorchEnvState) -> None:
        ends.append((state.terminated | state.truncated).clone())
        bad.append(int(state.info["log"].get("bad_rows", 0)))

    with stopping("reset"):
        env.reset()
    task.run(env, _STEPS, "random", each, seed=task.seed)
    with stopping("reset of some rows"):
        env.reset(torch.arange(0, env.num_envs, 2, device=env.device))
    task.run(env, _STEPS // 2, "zero", each, seed=task.seed)
    if sum(bad):
        what = f"the engine called {sum(bad)} rows bad in {len(ends)} steps of {env.num_envs} rows"
        fix = "a smaller sim.timestep, smaller gains, or starts that do not lie inside each other"
        yield Finding("rollout", "", "", what, fix)
    if env.max_episode_length > 1 and bool(torch.stack(ends).all()):
        at_once = [
            name
            for name in env.termination_manager.active_terms
            if bool(env.termination_manager.get_term(name).all())
        ]
        for name in at_once or [""]:
            what = "every episode ends in its first step"
            fix = "check its threshold against the state that episodes begin with"
            yield Finding("rollout", "terminations" if name else "", name, what, fix)


def check_spaces(task: TaskUnderTest) -> list[Finding]:
    """Compares what an environment hands out with what it says of itself."""
    found: list[Finding] = []
    with task.env(task.hurried) as env:
        with stopping("reset"):
            first, _ = env.reset()
        described, n = env.describe(), env.num_envs
        with stopping("step 1"):
            state = env.step(torch.zeros(n, env.num_actions, device=env.device))
        wanted = {group: (n, width) for group, width in env.obs_groups_spec.items()}
        for said, groups in (("reset", first), ("step", state.obs)):
            got = {group: tuple(rows.shape) for group, rows in groups.items()}
            if got != wanted:
                found.append(_unlike("", f"{said} returns observations {got}, obs_groups_spec says {wanted}"))
        for group, labels in described.observations.items():
            if len(labels) != env.obs_groups_spec[group] or len(set(labels)) != len(labels):
                twice = sorted({label for label in labels if labels.count(label) > 1})
                found.append(
                    _unlike(
                        group,
                        f"{len(labels)} labels, {twice} twice, for {env.obs_groups_spec[group]} columns",
                    )
                )
        low, high = env.action_bounds
        if len(described.actions) != env.num_actions or bool((low >= high).any()):
            pairs = list(zip(low.tolist(), high.tolist(), strict=True))
            found.append(
                Finding(
                    "spaces",
                    "actions",
                    "",
                    f"bounds {pairs} of {env.num_actions} columns",
                    "give each a width",
                )
            )
    return found


def _unlike(group: str, what: str) -> Finding:
    return Finding("spaces", "observations", group, what, "make names and shapes agree")
