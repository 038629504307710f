"""Curriculum terms: each is called with `(env, env_ids)` and edits what managers hold at run time.

The stages of a term are mappings with a `step`, from which on they hold, in the order of their steps. Which one holds
follows from `env.step_counter` alone, so a training that is resumed continues at the right one. While the environment
is built, every stage is tried in turn, so that a wrong one is refused then and not when its step comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from unilab_core.errors import ConfigError, nearest
from unilab_managers.managers.command_manager import CommandTerm
from unilab_managers.mdp.commands.ranges import UniformRanges

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv
    from unilab_managers.managers.manager_base import ManagerBase

__all__ = [
    "command_ranges_by_tracking",
    "command_velocity_ranges",
    "event_params",
    "reward_params",
    "reward_weight",
    "termination_params",
]

Stage = Mapping[str, Any]


def reward_weight(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, reward_name: str, stages: Sequence[Stage]
) -> float:
    """Sets the weight of a reward by stages `{"step": 100, "weight": 0.5}`; logs the weight.

    Before the first stage the weight stays what it is.

    Raises:
        UnknownNameError: No such reward; the message lists the nearest.
        ConfigError: A stage is not of this form, or they are not in the order of their steps.
    """
    del env_ids  # a weight is that of all rows
    rewards = env.reward_manager
    for stage in _stages_to_set(env, stages, ("weight",)):
        if rewards.get_weight(reward_name) != stage["weight"]:
            rewards.set_weight(reward_name, stage["weight"])
    return rewards.get_weight(reward_name)


def reward_params(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, reward_name: str, stages: Sequence[Stage]
) -> None:
    """Sets parameters of a reward by stages `{"step": 100, "params": {"std": 0.3}}`; others stay what they are.

    Raises:
        UnknownNameError: No such reward; the message lists the nearest.
        ConfigError: A stage is not of this form, or the reward does not take its parameters.
    """
    del env_ids  # parameters are those of all rows
    _set_params(env, env.reward_manager, reward_name, stages)


def termination_params(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, termination_name: str, stages: Sequence[Stage]
) -> None:
    """Sets parameters of a termination by stages `{"step": 100, "params": {...}}`; others stay what they are.

    Errors are those of `reward_params`.
    """
    del env_ids
    _set_params(env, env.termination_manager, termination_name, stages)


def event_params(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, event_name: str, stages: Sequence[Stage]
) -> None:
    """Sets parameters of an event by stages `{"step": 100, "params": {...}}`; others stay what they are.

    Errors are those of `reward_params`.
    """
    del env_ids
    _set_params(env, env.event_manager, event_name, stages)


def command_velocity_ranges(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, command_name: str, stages: Sequence[Stage]
) -> dict[str, float]:
    """Sets the ranges of a command by stages `{"step": 100, "lin_vel_x": (-1.0, 1.5)}`; logs them.

    A range that a stage does not name stays what it is. Mode `"episode"` sets them before the very reset draws from
    them; mode `"step"` also for rows that are redrawn in mid-episode.

    Raises:
        UnknownNameError: No such command or range; the message lists the nearest.
        ConfigError: A stage is not of this form, or the command has no ranges.
        ValueError: A range is inverted or not finite.
    """
    del env_ids  # ranges are those of all rows
    ranges = _ranges(env.command_manager.get_term(command_name))
    now: dict[str, Any] = {}
    for stage in _stages_to_set(env, stages, None):
        now = {name: pair for name, pair in stage.items() if name != "step"}
        ranges.set(now)
    log: dict[str, float] = {}
    for name, (low, high) in now.items():
        log |= {f"{name}_min": low, f"{name}_max": high}
    return log


def command_ranges_by_tracking(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    command_name: str,
    reward_name: str,
    widen: Mapping[str, float],
    limits: Mapping[str, tuple[float, float]],
    threshold: float = 0.8,
) -> dict[str, torch.Tensor]:
    """Widens ranges of a command when the episodes that end have earned enough of a tracking reward; logs them.

    What an episode earned is its reward sum over the longest episode in seconds (in steps if rewards are not scaled by
    dt): a term that is fully tracked to the time limit has earned its weight.

    Args:
        env: The environment.
        env_ids: (K,) rows whose episodes end.
        command_name: Whose ranges.
        reward_name: The reward that says how well the command is tracked.
        widen: Range to how far each of its ends moves outwards at a time, in the range's unit.
        limits: Range to its lowest and highest ends ever; one for each range in `widen`.
        threshold: Share of the reward's weight that the episodes must have earned on average.

    Raises:
        UnknownNameError: No such command, reward or range; the message lists the nearest.
        ConfigError: The command has no ranges, or a range to widen has no limits.
    """
    ranges = _ranges(env.command_manager.get_term(command_name))
    rewards = env.reward_manager
    weight = rewards.get_weight(reward_name)
    longest = env.max_episode_length * (env.step_dt if env.cfg.scale_rewards_by_dt else 1.0)
    episodes = (env.episode_length[env_ids] > 0).sum()
    earned = rewards.episode_sums()[reward_name][env_ids].sum() / longest
    good = earned > threshold * weight * episodes  # never so without an episode
    log: dict[str, torch.Tensor] = {}
    for name, by in widen.items():
        if name not in limits:
            raise ConfigError(f"limits has no {name!r}, which is to be widened; {nearest(name, limits)}")
        ranges.widen(name, by, limits[name], good)
        log[f"{name}_min"], log[f"{name}_max"] = ranges.ends(name)
    return log


command_ranges_by_tracking.curriculum_mode = "episode"  # type: ignore[attr-defined] # what a curriculum says of itself


def _stages_to_set(
    env: ManagerBasedRlEnv, stages: Sequence[object], keys: tuple[str, ...] | None
) -> Sequence[Stage]:
    """Returns the last stage whose step the counter has reached, if any; while terms are tried, first all stages.

    Args:
        env: The environment.
        stages: In the order of their steps.
        keys: What each stage must hold beside `step`; None: its user knows.

    Raises:
        ConfigError: A stage is not of this form, or they are not in the order of their steps.
    """
    checked: list[Stage] = []
    reached: list[Stage] = []
    before = -1
    for i, stage in enumerate(stages):
        step = stage.get("step") if isinstance(stage, Mapping) else None
        if not isinstance(stage, Mapping) or type(step) is not int or step <= before:
            raise ConfigError(
                f"stages[{i}] is {stage!r}; expected a mapping with an int 'step' above {before}"
            )
        if keys is not None and stage.keys() != {"step", *keys}:
            raise ConfigError(f"stages[{i}] has keys {sorted(stage)}, expected {sorted(('step', *keys))}")
        before = step
        checked.append(stage)
        if step <= env.step_counter:
            reached = [stage]
    if not checked:
        raise ConfigError("stages is empty; expected at least one stage")
    return [*checked, *reached] if env.scene.is_recording else reached


def _set_params(env: ManagerBasedRlEnv, manager: ManagerBase, name: str, stages: Sequence[Stage]) -> None:
    to_set = _stages_to_set(env, stages, ("params",))
    params = manager.get_params(name)
    for stage in to_set:
        if any(params.get(key) != value for key, value in stage["params"].items()):
            manager.set_params(name, **stage["params"])
            params = manager.get_params(name)


def _ranges(term: CommandTerm) -> UniformRanges:
    ranges = getattr(term, "ranges", None)
    if not isinstance(ranges, UniformRanges):
        raise ConfigError(f"{term.label} has no ranges that a curriculum could change")
    return ranges
