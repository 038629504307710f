"""Recorders: whole episodes as NumPy archives."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unilab_core.entity_cfg import column_index
from unilab_core.errors import ConfigError, nearest
from unilab_managers.cfg.recorders import RecorderTermCfg

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["EpisodeRecorder"]

_LOGGER = logging.getLogger(__name__)
_VERSION = 1
_FLAGS = ("terminated", "truncated")
_OF_STEPS = ("actions", "ctrl", "rewards", "reward_terms", *_FLAGS)
"""Fields that belong to a transition; all others to the moment after it, and to the start of the episode."""
_FIELDS = ("obs", "actions", "rewards", *_FLAGS, "qpos", "qvel")


class EpisodeRecorder:
    """Writes each episode of some rows into a file of its own, `episode_000000.npz` and so on.

    T transitions make T + 1 moments, the first and the final one included. An archive, for `numpy.load` without
    pickles, holds what was asked for:

    - per moment, (T + 1, dim) float32: `obs` and `critic`, as a policy had them (after noise, delay and history),
      `qpos` and `qvel`, `commands`, those of all command terms side by side;
    - per transition: `actions` (T, A) float32, raw; `ctrl` (T, nu) float32, what they made of it for the actuators;
      `rewards` (T,) float32; `reward_terms` (T, R) float32, what each term added; `terminated` and `truncated` (T,)
      bool;

    and always: `format` 1; `dt`, s per transition; `row`; `episode`, the number in the file's name; `complete`, false
    where a manual reset or the end of the environment cut the episode short; and as text `obs_labels` and so on (one
    per column of what is there: observations, actions, ctrl, commands, reward_terms) and `joints`, in the order of
    `qpos`. Where actions follow the state within a step, `ctrl` is that of the last substep; where a floor or a guard
    has changed the sum of the rewards, `reward_terms` do not add up to it.

    Episodes are gathered on the environment's device and copied to the host once, when they end. A file appears whole
    or not at all, and never replaces another: numbers that are taken are passed over, so several processes need a
    folder each. Nothing is written before a reset is committed. Of an environment that a failure left in no defined
    state, the open episodes are dropped.
    """

    def __init__(
        self,
        cfg: RecorderTermCfg,
        env: ManagerBasedRlEnv,
        folder: str,
        rows: tuple[int, ...] = (0,),
        fields: tuple[str, ...] = _FIELDS,
        max_episodes: int | None = None,
        max_steps: int | None = None,
    ) -> None:
        """Allocates room for one episode of each row; the folder is made with the first file.

        Args:
            cfg: Its config.
            env: The environment.
            folder: Where the files go.
            rows: Rows of the environment.
            fields: What to record; of observations, groups that the environment has; `ctrl`, `commands` and
                `reward_terms` only where asked for.
            max_episodes: How many files to write at most; None: no limit.
            max_steps: The longest episode there is room for, steps; None: the environment's time limit. A longer one,
                of an environment that does not end there, is not written.

        Raises:
            ConfigError: A field or row that does not exist, a limit below 1, or `folder` is no folder.
        """
        self._env = env
        self._folder = Path(folder)
        self._max_episodes = max_episodes
        self._max_steps = env.max_episode_length if max_steps is None else max_steps
        self._fields = tuple(fields)
        self._rows = tuple(rows)
        self._check()
        widths = _widths(env)
        # Whether an episode is complete is asked of its last flags, wanted or not.
        self._layout = {name: width for name, width in widths.items() if name in (*self._fields, *_FLAGS)}
        self._index = column_index(self._rows, env.device)
        # A frame for the start, one per step, and one that takes what is not wanted.
        self._room = self._max_steps + 2
        frame = sum(self._layout.values())
        # The registry of row state wants N first; nobody else minds how so many frames are spread.
        share = math.ceil(len(self._rows) * self._room / env.num_envs)
        self._store = torch.zeros(env.num_envs, share, frame, device=env.device)
        self._first = torch.arange(len(self._rows), device=env.device) * self._room
        self._waste = self._first + self._room - 1
        # Where the last frame of each recorded row went.
        self._slots = self._waste.clone()
        self._open: set[int] = set()  # positions in `rows` whose episode is being recorded
        self._written = 0
        self._number = 0

    def _check(self) -> None:
        n, known = self._env.num_envs, _widths(self._env)
        for name in self._fields:
            if name not in known:
                raise ConfigError(f"fields: unknown field {name!r}; {nearest(name, known)}")
        if (
            not self._rows
            or len(set(self._rows)) != len(self._rows)
            or any(not 0 <= r < n for r in self._rows)
        ):
            raise ConfigError(f"rows is {self._rows}, expected at least one, each once, 0 <= row < {n}")
        for name, limit in (("max_episodes", self._max_episodes), ("max_steps", self._max_steps)):
            if limit is not None and limit < 1:
                raise ConfigError(f"{name} is {limit}, expected at least 1")
        if self._folder.exists() and not self._folder.is_dir():
            raise ConfigError(f"folder: {str(self._folder)!r} is a file")

    def _is_full(self) -> bool:
        return self._max_episodes is not None and self._written >= self._max_episodes

    # ------------------------------------------------------------------ on the device

    def record_post_step(self) -> None:
        """Adds the transition of every recorded row."""
        if not self._open:
            return
        self._slots += 1
        torch.minimum(self._slots, self._waste, out=self._slots)
        state = self._env.state
        steps = {
            "actions": self._env.action_manager.action,
            "ctrl": self._env.state_column("ctrl"),
            "rewards": state.reward.unsqueeze(1),
            "terminated": state.terminated.unsqueeze(1),
            "truncated": state.truncated.unsqueeze(1),
        }
        if "reward_terms" in self._layout:
            steps["reward_terms"] = torch.stack(tuple(self._env.reward_manager.term_values().values()), dim=1)
        self._put(self._slots, {**state.obs, **steps})

    def record_post_reset(self, env_ids: torch.Tensor) -> None:
        """Writes the episodes that ended in the rows `env_ids`, and begins new ones; one small read of the device."""
        if self._is_full():
            return
        reset = torch.zeros(self._env.num_envs, dtype=torch.bool, device=env_ids.device)
        reset[env_ids] = True
        reset = reset[self._index]
        was_reset, lengths = torch.stack([reset.long(), self._slots - self._first]).tolist()
        begun = [position for position, hit in enumerate(was_reset) if hit]
        if not begun:
            return
        for position in begun:
            self._end(position, lengths[position])
        self._slots.copy_(torch.where(reset, self._first, self._slots))
        self._open.update(begun)
        nothing = self._env.action_manager.action.new_zeros(1, 1)
        steps = {name: nothing.expand(self._env.num_envs, self._layout.get(name, 0)) for name in _OF_STEPS}
        self._put(torch.where(reset, self._first, self._waste), {**self._env.observations(), **steps})
        if self._is_full():
            self._open.clear()

    def _put(self, slots: torch.Tensor, values: Mapping[str, torch.Tensor]) -> None:
        """Copies one frame of each recorded row to `slots`, (R,); `values` are (N, dim) by field, state excepted."""
        found = dict(values)
        for name in ("qpos", "qvel"):
            if name in self._layout:
                found[name] = self._env.state_column(name)
        if "commands" in self._layout:
            manager = self._env.command_manager
            found["commands"] = torch.cat([manager.get_command(n) for n in manager.active_terms], dim=1)
        frame = torch.cat([found[name][self._index] for name in self._layout], dim=1)
        frame = frame.to(self._store.dtype)  # flags alone are bool
        self._store.view(-1, frame.shape[1]).index_copy_(0, slots, frame)

    # ------------------------------------------------------------------ on the host

    def close(self) -> None:
        """Writes the open episodes as what they are; drops them if the environment is in no defined state."""
        if self._open and not self._env.faulted:
            lengths = (self._slots - self._first).tolist()
            for position in sorted(self._open):
                self._end(position, lengths[position])
        self._open.clear()

    def _end(self, position: int, steps: int) -> None:
        """Writes an episode of so many steps, if there is one, it fits, and there may be another file."""
        if position not in self._open or steps == 0 or self._is_full():
            return
        row = self._rows[position]
        if steps > self._max_steps:
            _LOGGER.warning(
                "an episode of row %d is longer than max_steps=%d and is not recorded", row, self._max_steps
            )
            return
        start, frame = position * self._room, self._store.shape[2]
        frames = self._store.view(-1, frame)[start : start + steps + 1].cpu()
        while (path := self._folder / f"episode_{self._number:06d}.npz").exists():
            self._number += 1
        _save(path, {**self._about(row), **self._arrays(frames)})
        self._number += 1
        self._written += 1

    def _about(self, row: int) -> dict[str, Any]:
        env = self._env
        commands = env.command_manager.labels().items()
        labels = {
            **env.observation_manager.labels(),
            "actions": env.action_manager.labels,
            "ctrl": tuple(actuator.name for actuator in env.model_layout.actuators),
            "commands": tuple(f"{name}[{label}]" for name, found in commands for label in found),
            "reward_terms": env.reward_manager.active_terms,
        }
        return {
            "format": _VERSION,
            "dt": env.step_dt,
            "row": row,
            "episode": self._number,
            "joints": [joint.name for joint in env.model_layout.joints],
            **{f"{name}_labels": list(names) for name, names in labels.items() if name in self._fields},
        }

    def _arrays(self, frames: torch.Tensor) -> dict[str, Any]:
        """Returns the fields of an episode, by name, of its frames, (T + 1, W) on the host."""
        parts = dict(
            zip(self._layout, frames.split_with_sizes(list(self._layout.values()), dim=1), strict=True)
        )
        arrays: dict[str, Any] = {"complete": any(bool(parts[name][-1]) for name in _FLAGS)}
        for name in self._fields:
            values = parts[name][1:] if name in _OF_STEPS else parts[name]
            if name in ("rewards", *_FLAGS):
                values = values.squeeze(1)
            arrays[name] = (values != 0 if name in _FLAGS else values).numpy()
        return arrays


def _widths(env: ManagerBasedRlEnv) -> dict[str, int]:
    """Returns every field that can be recorded and how many columns it has."""
    model = env.model_layout
    steps = {"actions": env.num_actions, "ctrl": model.nu, "rewards": 1, "terminated": 1, "truncated": 1}
    # What an environment does not have cannot be recorded.
    commands = sum(map(len, env.command_manager.labels().values()))
    others = {"commands": commands, "reward_terms": len(env.reward_manager.active_terms)}
    others = {name: width for name, width in others.items() if width}
    return {**env.obs_groups_spec, **steps, **others, "qpos": model.nq, "qvel": model.nv}


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes an archive under another name first, so that `path` is whole or not there."""
    import numpy as np  # on the cold path only

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".npz.tmp")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, **arrays)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
