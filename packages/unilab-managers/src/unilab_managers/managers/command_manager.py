"""Commands: what each row is asked to do, redrawn by timers, on a condition and on reset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field, field_validator

from unilab_core.errors import ConfigError, UnknownNameError, nearest
from unilab_core.reset_selectors import ResetMaskBuffer, reset_env_ids_mask, resolve_reset_env_ids
from unilab_core.timing import seconds_to_steps
from unilab_managers.cfg.commands import ResampleConditionCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, Selector, check_value, named
from unisim.config import Cfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["CommandManager", "CommandTerm", "CommandTermCfg"]


class CommandTermCfg(Cfg):
    """Base of command configs; each makes its own term."""

    entity: str = "robot"
    """Name of the entity it commands."""
    resampling_time_range: tuple[float, float]
    """Shortest and longest time for which a row keeps a command, s; drawn anew with every command."""
    resample_when: ResampleConditionCfg | None = None
    """What, beside the time, makes a row's command be drawn anew, for example that it is reached."""
    metrics_start_s: Annotated[float, Field(ge=0)] = 0.0
    """How much of an episode's beginning its metrics leave out, s."""

    @field_validator("resampling_time_range")
    @classmethod
    def _positive_and_ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0.0 < value[0] <= value[1]:
            raise ValueError(f"{value} is no range of seconds; expected 0 < shortest <= longest")
        return value

    def make(self, env: TorchEnv, name: str) -> CommandTerm:
        """Returns the term for `env`; `name` is its name in the config.

        Raises:
            ConfigError: A name or setting does not fit the model.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement make()")


class CommandTerm(ABC):
    """One command of every row, and the timers that say when it is redrawn.

    A subclass keeps its state in tensors of N rows, made in `__init__`, and writes them in place.

    Attributes:
        metric_names: What the term measures; without names nothing is measured.
        cfg: Its config.
        label: Whose it is, for error messages.
        entity: The entity it commands.
        steps_left: (N,) int64 control steps until a row is redrawn.
        metric_sums: (N, M) sums over the counted steps of the current episodes, columns as `metric_names`.
        due: Whether a timer may run out in the next step; True while nobody knows.
    """

    metric_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, cfg: CommandTermCfg, env: TorchEnv, name: str) -> None:
        """Allocates timers and sums; the first reset draws the first command.

        Raises:
            UnknownNameError: There is no such entity.
        """
        self.cfg = cfg
        self.name = name
        self.label = f"commands term {name!r}"
        self.entity = env.scene[cfg.entity]
        self._env = env
        n, device = env.num_envs, env.device
        shortest, longest = cfg.resampling_time_range
        self._fewest = seconds_to_steps(shortest, env.step_dt)
        self._most = seconds_to_steps(longest, env.step_dt)
        self.steps_left = torch.full((n,), self._fewest, dtype=torch.int64, device=device)
        self.due = True
        when, owner = cfg.resample_when, f"resample condition of {self.label}"
        self._when = None if when is None else BoundTerm("resample_when", when, env, owner)
        # A term's own count, for `env.episode_length` may be set to what no row has lived through.
        self._age = torch.zeros(n, dtype=torch.int64, device=device)
        self._left_out = seconds_to_steps(cfg.metrics_start_s, env.step_dt) if cfg.metrics_start_s else 0
        self.metric_sums = torch.zeros(n, len(self.metric_names), device=device)

    @property
    def condition(self) -> object | None:
        """The object of the config's condition where that is a class term."""
        return None if self._when is None else self._when.instance

    @property
    @abstractmethod
    def command(self) -> torch.Tensor:
        """(N, dim) float32 current command: a view that the next step rewrites."""

    @property
    def labels(self) -> tuple[str, ...]:
        """A label for each column of the command."""
        return tuple(f"[{i}]" for i in range(self.command.shape[1]))

    @abstractmethod
    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        """Redraws the command of the rows in `reset_mask`, (N,) bool; all other rows keep theirs.

        Draws are full-width, so that nobody has to ask the device how many rows there are. It runs while a reset is
        staged, where only joint and root values can be read, and in a step, after the rewards.
        """

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        """Brings the command up to date with the state and with time.

        Args:
            dt: Time that has passed, s; 0 for rows that were just reset.
            env_ids: None: all rows, once per step. (K,) int64: only these were reset; no other row may change.
        """

    def _update_metrics(self) -> None:
        """Adds this step's values to `metric_sums`; runs before the step redraws any command."""

    def _resample_condition(self) -> torch.Tensor | None:
        """Returns which rows need a new command whatever their timers say, (N,) bool; None: only timers decide.

        For commands that know by themselves; what `resample_when` of the config finds comes on top.
        """
        return None

    def _rows_by_condition(self) -> torch.Tensor | None:
        """Returns which rows the command's own condition or the config's finds, (N,) bool; None: there is neither."""
        n, found = self._env.num_envs, self._resample_condition()
        if found is not None:
            check_value(found, f"{self.label}: _resample_condition", torch.bool, n, columns=False)
        if self._when is None:
            return found
        rows: torch.Tensor = check_value(self._when(), self._when.label, torch.bool, n, columns=False)
        return rows if found is None else rows | found

    def reset(self, env_ids: Selector = None) -> dict[str, torch.Tensor]:
        """Ends the episodes of rows for this term: returns their metrics and draws new commands and timers.

        Args:
            env_ids: (K,) integer row ids, a slice of the rows, or None for all.

        Raises:
            TypeError: A bool mask, or not an integer tensor.
            ValueError: An id out of range or given twice.
        """
        n, device = self._env.num_envs, self._env.device
        ids = resolve_reset_env_ids(env_ids, num_envs=n, device=device, owner=f"{self.label}: reset")
        return self.reset_resolved(ids, reset_env_ids_mask(ids, num_envs=n, device=device))

    def reset_resolved(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Does what `reset` does for rows given as ids, (K,) int64, and as a mask, (N,) bool; reads nothing."""
        log = self._episode_log(ids)
        if self.metric_names:
            self._age[ids] = 0
            self.metric_sums[ids] = 0.0
        if self._when is not None:
            self._when.reset(ids)
        self._resample(mask)
        if self._fewest == 1:
            self.due = True
        return log

    def advance(self, dt: float) -> None:
        """One control step of `dt` s: metrics, timers, redraws, update. Reads nothing from the device."""
        if self.metric_names:
            self._update_metrics()
            self._age += 1
            if self._left_out:
                self.metric_sums.masked_fill_((self._age <= self._left_out)[:, None], 0.0)
        self.steps_left -= 1
        rows = self._rows_by_condition()
        if self.due:
            over = self.steps_left <= 0
            rows = over if rows is None else rows | over
        if rows is not None:
            self._resample(rows)
        self._update_command(dt, None)

    def refresh(self, ids: torch.Tensor) -> None:
        """Brings the rows `ids`, (K,) int64, up to date with the state that their reset committed; no time passes."""
        self._update_command(0.0, ids)

    def forget_non_finite(self, ids: torch.Tensor) -> None:
        """Sets metric sums of the rows `ids` to 0 where they are not finite."""
        self.metric_sums[ids] = torch.where(torch.isfinite(self.metric_sums[ids]), self.metric_sums[ids], 0.0)

    def _resample(self, rows: torch.Tensor) -> None:
        self._resample_command(rows)
        if self._fewest == self._most:
            self.steps_left.masked_fill_(rows, self._fewest)
        else:
            steps = self._env.rng.integers(self._fewest, self._most + 1, self.steps_left.numel())
            torch.where(rows, steps, self.steps_left, out=self.steps_left)

    def _episode_log(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Sums the means of the rows' episodes; an episode too short for any counted step has none."""
        if not self.metric_names:
            return {}
        counted = self._age.index_select(0, ids)
        if self._left_out:
            counted -= self._left_out
        sums = self.metric_sums.index_select(0, ids)
        means = (sums / counted.clamp(min=1)[:, None]).sum(dim=0)
        count = (counted > 0).sum()
        log: dict[str, torch.Tensor] = {}
        for name, value in zip(self.metric_names, means.unbind(), strict=True):
            log[f"Metrics/{self.name}/{name}/sum"] = value
            log[f"Metrics/{self.name}/{name}/count"] = count
        return log


class CommandManager(ManagerBase):
    """Runs the command terms, in the order of declaration."""

    def __init__(self, terms: Mapping[str, CommandTermCfg], env: TorchEnv) -> None:
        """Makes the terms.

        Raises:
            ConfigError: A term does not fit the model, or its command is not (N, dim) float32 with a label per column.
            UnknownNameError: A term names what does not exist.
        """
        super().__init__("commands", env, {})
        self._command_terms: dict[str, CommandTerm] = {}
        for name, cfg in terms.items():
            with named(f"commands term {name!r}"):
                term = self._command_terms[name] = cfg.make(env, name)
                _check_command(term, env.num_envs)
        self._mask = ResetMaskBuffer(env.num_envs, env.device)
        self._log: dict[str, torch.Tensor] = {}

    @property
    def active_terms(self) -> tuple[str, ...]:
        """Names of the terms, in the order of declaration."""
        return tuple(self._command_terms)

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Returns a label for every column of every command."""
        return {name: term.labels for name, term in self._command_terms.items()}

    def get_term(self, name: str) -> CommandTerm:
        """Returns a term.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        if name not in self._command_terms:
            raise UnknownNameError(f"commands: unknown term {name!r}; {nearest(name, self._command_terms)}")
        return self._command_terms[name]

    def get_command(self, name: str) -> torch.Tensor:
        """Returns the current command of a term, (N, dim) float32: a view that the next step rewrites.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        return self.get_term(name).command

    def compute(self) -> None:
        """Advances all terms by one control step."""
        for term in self._command_terms.values():
            with named(term.label):
                term.advance(self._env.step_dt)

    def refresh(self, ids: torch.Tensor) -> None:
        """Brings the commands of rows that were just reset, (K,) int64, up to date with their new state."""
        for term in self._command_terms.values():
            with named(term.label):
                term.refresh(ids)

    def reset(self, env_ids: Selector = None) -> dict[str, torch.Tensor]:
        """Draws new commands and timers for rows; see `ManagerBase.reset`.

        Returns:
            `Metrics/<command>/<name>/sum`, the sum over the rows' episodes of each one's mean, and `/count`.
        """
        self.reset_resolved(self._resolve(env_ids, "reset"))
        return self.pop_log()

    def reset_resolved(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Does what `reset` does for row ids that were resolved before, (K,) int64; asks the device nothing.

        Returns:
            Nothing: a reset calls it before the commit, and `pop_log` hands out what it logs after the commit.
        """
        mask = self._mask.from_ids(ids)
        self._log.clear()
        for term in self._command_terms.values():
            with named(term.label):
                self._log.update(term.reset_resolved(ids, mask))
        return {}

    def pop_log(self) -> dict[str, torch.Tensor]:
        """Returns what the last reset said of the episodes it ended, once."""
        log = self._log.copy()
        self._log.clear()  # the same dict in every reset: another one would have to be followed
        return log

    def timers(self) -> dict[str, torch.Tensor]:
        """Returns for each timer which rows it redraws in the next step, (N,) bool by `"commands/<term>"`."""
        return {f"commands/{name}": term.steps_left <= 1 for name, term in self._command_terms.items()}

    def timers_judged(self, due: Mapping[str, bool]) -> None:
        """Takes the answers to `timers`: whether any row is redrawn in the next step."""
        for name, term in self._command_terms.items():
            term.due = due[f"commands/{name}"]

    def forget_non_finite(self, ids: torch.Tensor) -> None:
        """Sets metric sums of the rows `ids` to 0 where they are not finite."""
        for term in self._command_terms.values():
            term.forget_non_finite(ids)

    def row_state_roots(self) -> dict[str, object]:
        """Returns the manager and its terms by name; see `ManagerBase`."""
        roots = super().row_state_roots()
        for name, term in self._command_terms.items():
            roots[f"{self.owner}.{name}"] = term
            if term.condition is not None:
                roots[f"{self.owner}.{name}.resample_when"] = term.condition
        return roots


def _check_command(term: CommandTerm, num_envs: int) -> None:
    command = check_value(term.command, f"{term.label}: command", torch.float32, num_envs, columns=True)
    if len(term.labels) != command.shape[1]:
        raise ConfigError(
            f"{term.label}: labels {term.labels} are {len(term.labels)}, expected one for each of the "
            f"{command.shape[1]} columns of the command"
        )
