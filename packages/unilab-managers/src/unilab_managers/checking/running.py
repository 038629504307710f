"""Runs checks on a task: which there are, in which order, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import torch

from unilab_core.errors import ConfigError, nearest
from unilab_core.factory import Overrides, load_env_cfg
from unilab_managers.checking.coverage import check_constant_columns, check_dead_rewards
from unilab_managers.checking.descriptions import check_description
from unilab_managers.checking.determinism import check_determinism
from unilab_managers.checking.findings import CheckReport, Finding, Kind, merge
from unilab_managers.checking.isolation import check_reset_isolation
from unilab_managers.checking.places import NOBODY, place_of
from unilab_managers.checking.purity import check_purity
from unilab_managers.checking.randomizing import check_randomization
from unilab_managers.checking.rollout import check_rollout, check_spaces
from unilab_managers.checking.silent_events import check_silent_events
from unilab_managers.checking.transfers import check_transfers
from unilab_managers.checking.under_test import StoppedError, TaskUnderTest, quiet
from unilab_managers.checking.watching import global_rng_kept
from unilab_managers.env_cfg import TermsCfg

__all__ = ["CHECKS", "NUM_ENVS", "Check", "run_checks"]

Check = Callable[[TaskUnderTest], list[Finding]]
NUM_ENVS = 11
"""Rows of a check: enough to reset some and keep others, and a number that is hardly the size of anything else."""

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "rollout": check_rollout,
        "spaces": check_spaces,
        "description": check_description,
        "purity": check_purity,
        "reset-isolation": check_reset_isolation,
        "determinism": check_determinism,
        "constant-columns": check_constant_columns,
        "dead-rewards": check_dead_rewards,
        "silent-events": check_silent_events,
        "randomization": check_randomization,
        "transfers": check_transfers,
    }
)
"""All checks by name, in the order in which they run."""


def run_checks(
    task: str | TermsCfg,
    *,
    overrides: Overrides = (),
    backend: str = "mujoco",
    device: str = "cpu",
    num_envs: int = NUM_ENVS,
    seed: int = 0,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    each: Callable[[str], None] | None = None,
) -> CheckReport:
    """Builds a task and short variants of it, drives them, and returns what is wrong.

    Recorders and a guard are left out: nothing leaves the process. The global random generators end as they began.

    Other arguments and errors are those of `unilab_managers.testing.check_task`, but that findings are no error.

    Args:
        each: Called with the name of each check before it runs.
    """
    names = _chosen(tuple(only), tuple(skip))
    if num_envs < 3:
        raise ConfigError(
            f"check: num_envs is {num_envs}; expected at least 3, to reset some rows and keep others"
        )
    cfg = load_env_cfg(task, overrides=overrides) if isinstance(task, str) else _with(task, overrides)
    name = task.lower() if isinstance(task, str) else type(task).__name__
    if not isinstance(cfg, TermsCfg):
        raise ConfigError(
            f"check: {name} is a {type(cfg).__name__}, which has no terms to check; expected a ManagerBasedRlEnvCfg"
        )
    under_test = TaskUnderTest(name, cfg, backend=backend, device=device, num_envs=num_envs, seed=seed)
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call] # its generators have a state only then
    with quiet(), global_rng_kept():
        found = _built(under_test) or _run(under_test, names, each)
    findings, notes = merge(found)
    return CheckReport(name, backend, device, num_envs, seed, names, findings, notes)


def _with(cfg: TermsCfg, overrides: Overrides) -> TermsCfg:
    from unisim.config import parse_overrides

    changes = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
    return cfg.with_(changes) if changes else cfg


def _chosen(only: tuple[str, ...], skip: tuple[str, ...]) -> tuple[str, ...]:
    for name in (*only, *skip):
        if name not in CHECKS:
            raise ConfigError(f"check: unknown check {name!r}; {nearest(name, CHECKS)}")
    names = tuple(name for name in CHECKS if (not only or name in only) and name not in skip)
    if not names:
        raise ConfigError("check: every check is left out; expected at least one")
    return names


def _built(task: TaskUnderTest) -> list[Finding]:
    try:
        with task.env():
            return []
    except ConfigError as error:
        return [_unbuilt(task, error, "finding")]


def _unbuilt(task: TaskUnderTest, error: ConfigError, kind: Kind) -> Finding:
    place, fix = place_of(str(error)), "change what the message names"
    if place == NOBODY and (culprit := task.staging.blamed_for(error)) != NOBODY:
        place, fix = culprit, "stage only what is valid, whatever is drawn"
    return Finding("construction", *place, f"it cannot be built: {error}", fix, kind)


def _run(task: TaskUnderTest, names: tuple[str, ...], each: Callable[[str], None] | None) -> list[Finding]:
    found: list[Finding] = []
    for name in names:
        if each is not None:
            each(name)
        try:
            found += CHECKS[name](task)
        except StoppedError as error:
            fix = "make it valid for every state that an episode can reach"
            found.append(Finding(name, *error.place, f"not to be judged: {error}", fix, kind="symptom"))
        except ConfigError as error:  # of a variant, or with other draws; it was built once
            found.append(_unbuilt(task, error, "symptom"))
    if (why := task.kept.get("not hurried")) is not None:
        what = f"episodes and timers are the task's own, so that fewer resets and draws were seen: {why}"
        found.append(
            Finding("construction", *place_of(why), what, "let the term take shorter times", kind="note")
        )
    return found
