"""Events: what happens to rows at the start, when they are reset, in steps, and when timers run down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, get_args, runtime_checkable

import torch

from unilab_core.errors import ConfigError, nearest
from unilab_core.timing import seconds_to_steps
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.managers.manager_base import ManagerBase, Selector
from unisim.config import FrozenDict

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["EventManager", "TimedTerm"]

_LOGGER = logging.getLogger(__name__)
_MODES: tuple[str, ...] = get_args(EventTermCfg.model_fields["mode"].annotation)
_NEVER = -(2**62)


@runtime_checkable
class TimedTerm(Protocol):
    """A class term of mode `"step"` that counts down by itself and wants to be told when it need not look."""

    def fires_next(self) -> torch.Tensor:
        """Returns (N,) bool: rows for which the next call has something to do."""

    def timer_judged(self, due: bool) -> None:
        """Tells whether any of these rows is true."""


class EventManager(ManagerBase):
    """Applies event terms, in the order of declaration.

    Timers count control steps. One that is a row's own is a column of `(N, T)`; the host learns with the verdict of a
    step whether it may fire in the next one, and until then looks at no row of it.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_timers",)
    row_records: ClassVar[tuple[str, ...]] = ("_may_fire", "_global_left")

    def __init__(self, terms: Mapping[str, EventTermCfg], env: TorchEnv) -> None:
        """Binds the terms and draws the first value of every timer.

        Raises:
            ConfigError: A term that counts down by itself is of another mode than `"step"`.
        """
        super().__init__("events", env, terms)
        self._cfgs = dict(terms)
        self._by_mode = FrozenDict({m: tuple(n for n, cfg in terms.items() if cfg.mode == m) for m in _MODES})
        self._all = torch.arange(env.num_envs, dtype=torch.int64, device=env.device)
        # Environment step at which each row last triggered a term; kept across resets, which it counts between.
        self._last_trigger = {
            name: torch.full((env.num_envs,), _NEVER, dtype=torch.int64, device=env.device)
            for name, cfg in terms.items()
            if cfg.min_step_count_between_reset
        }
        self._steps: dict[str, tuple[int, int]] = {}
        for name, cfg in terms.items():
            if cfg.interval_range_s is not None:
                low, high = cfg.interval_range_s
                self._steps[name] = seconds_to_steps(low, env.step_dt), seconds_to_steps(high, env.step_dt)
        own = [name for name in self._steps if not terms[name].is_global_time]
        self._columns = {name: column for column, name in enumerate(own)}
        self._left = torch.zeros(env.num_envs, len(own), dtype=torch.int64, device=env.device)
        self._timers = dict(zip(own, self._left.unbind(dim=1), strict=True))  # views, made once
        self._global_left = {name: 0 for name in self._steps if terms[name].is_global_time}
        self._may_fire = dict.fromkeys(own, True)
        self._timed = {
            name: term.instance for name, term in self._terms.items() if isinstance(term.instance, TimedTerm)
        }
        for name in self._timed:
            if terms[name].mode != "step":
                raise ConfigError(
                    f"{self._terms[name].label}: {terms[name].func.__name__} counts down by itself, once per call; "
                    f"mode is {terms[name].mode!r}, expected 'step'"
                )
        for name in self._steps:
            self._restart(name, self._all)
            self._warn_if_never(name)

    def _warn_if_never(self, name: str) -> None:
        shortest, limit = self._steps[name][0], self._env.max_episode_length
        if name in self._columns and self._cfgs[name].resample_on_reset and shortest > limit:
            _LOGGER.warning(
                "%s never fires: its timer starts anew at every reset and takes at least %d steps, an episode takes "
                "%d; set resample_on_reset=False or is_global_time=True, or a shorter interval_range_s",
                self._terms[name].label,
                shortest,
                limit,
            )

    # ------------------------------------------------------------------ calls

    def apply(
        self,
        *,
        mode: str,
        env_ids: Selector = None,
        dt: float | None = None,
        global_env_step_count: int | None = None,
    ) -> None:
        """Runs all terms of one mode.

        Args:
            mode: `"startup"`, `"reset"`, `"interval"` or `"step"`.
            env_ids: The rows; (K,) integer ids, a slice, or None for all. Timers run for all rows together.
            dt: Time since the last call, s, a whole number of control steps; needed for `"interval"`, which looks at
                it alone.
            global_env_step_count: Environment steps so far; needed for `"reset"`, which looks at it alone.

        Raises:
            ValueError: An unknown mode, no counter, no or another `dt`, an id out of range or given twice, or
                `"interval"` for some rows only.
            TypeError: `env_ids` is a mask or no integer tensor.
        """
        if mode not in _MODES:
            raise ValueError(f"events.apply: unknown mode {mode!r}; {nearest(mode, _MODES)}")
        ids = self._resolve(env_ids, "apply")
        if mode == "interval":
            self._run_timers_for(dt, ids)
            return
        if mode == "reset" and global_env_step_count is None:
            raise ValueError("events.apply: mode 'reset' needs global_env_step_count")
        self.apply_resolved(mode, ids, global_env_step_count or 0)

    def apply_resolved(self, mode: str, ids: torch.Tensor, global_env_step_count: int) -> None:
        """Does what `apply` does, except for `"interval"`, for row ids that were resolved before, (K,) int64.

        It asks the device for nothing but the rows of terms that have `min_step_count_between_reset`.
        """
        for name in self._by_mode[mode]:
            self._run(name, self._admitted(name, ids, global_env_step_count))

    def apply_step(self) -> None:
        """Runs the step events for all rows, lets a step of time pass, and runs the interval events that are due."""
        self.apply_resolved("step", self._all, 0)
        self._run_timers(1)

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """Returns one call per step and interval term, for all rows, whatever its timer says.

        They are labelled `"advance"`, the phase of a step in which state may be written.
        """
        return [
            ("advance", lambda name=name: self._run(name, self._all))  # type: ignore[misc] # a default argument
            for mode in ("step", "interval")
            for name, cfg in self._cfgs.items()
            if cfg.mode == mode
        ]

    def _run(self, name: str, rows: torch.Tensor) -> None:
        if rows.numel():
            term = self._terms[name]
            with term.named:
                term(rows)

    def _admitted(self, name: str, ids: torch.Tensor, now: int) -> torch.Tensor:
        last = self._last_trigger.get(name)
        if last is None:
            return ids
        gap = now - last[ids]
        # A training state that sets the counter back leaves marks ahead of it, which say nothing of the steps since.
        rows = ids[(gap >= self._cfgs[name].min_step_count_between_reset) | (gap < 0)]
        last[rows] = now
        return rows

    # ------------------------------------------------------------------ timers

    def steps_left(self, name: str) -> torch.Tensor:
        """Returns the control steps until an interval term fires, (N,) int64; fresh.

        Raises:
            KeyError: No interval term of that name; the message lists the nearest.
        """
        if name in self._global_left:
            return torch.full_like(self._all, self._global_left[name])
        if name not in self._columns:
            raise KeyError(f"events: unknown interval term {name!r}; {nearest(name, self._steps)}")
        return self._timers[name].clone()

    def timers(self) -> dict[str, torch.Tensor]:
        """Returns, by `"events/<term>"`, whether each row's timer fires in the next step, (N,) bool.

        A global timer is counted on the host and needs no asking.
        """
        own = {f"events/{name}": left <= 1 for name, left in self._timers.items()}
        return own | {f"events/{name}": term.fires_next() for name, term in self._timed.items()}

    def timers_judged(self, due: Mapping[str, bool]) -> None:
        """Takes in whether any row of each of `timers()` is true."""
        for name in self._may_fire:
            self._may_fire[name] = due[f"events/{name}"]
        for name, term in self._timed.items():
            term.timer_judged(due[f"events/{name}"])

    def _run_timers_for(self, dt: float | None, ids: torch.Tensor) -> None:
        step_dt = self._env.step_dt
        if dt is None:
            raise ValueError("events.apply: mode 'interval' needs dt, the time since the last call in s")
        steps = round(dt / step_dt)
        if steps < 1 or abs(dt / step_dt - steps) > 1e-6:
            raise ValueError(
                f"events.apply: dt is {dt} s, expected a whole number of control steps of {step_dt} s"
            )
        if ids.numel() != self._env.num_envs:
            raise ValueError(
                f"events.apply: mode 'interval' got {ids.numel()} of {self._env.num_envs} rows; timers run for all "
                "rows together, pass env_ids=None"
            )
        self._may_fire = dict.fromkeys(self._may_fire, True)  # no verdict has looked so far ahead
        self._run_timers(steps)

    def _run_timers(self, steps: int) -> None:
        if self._columns:
            self._left.sub_(steps)
        for name in self._steps:
            rows = self._due(name, steps)
            if rows is not None and rows.numel():
                self._restart(name, rows)
                self._run(name, rows)

    def _due(self, name: str, steps: int) -> torch.Tensor | None:
        """Returns the rows for which an interval term fires, perhaps none; None where that is known without asking."""
        if name in self._global_left:
            self._global_left[name] -= steps
            return self._all if self._global_left[name] <= 0 else None
        if not self._may_fire[name]:
            return None
        return torch.masked_select(self._all, self._timers[name] <= 0)

    def _restart(self, name: str, rows: torch.Tensor) -> None:
        low, high = self._steps[name]
        if name in self._global_left:
            self._global_left[name] = low if low == high else int(self._env.rng.integers(low, high + 1, 1))
        elif low == high:
            self._timers[name][rows] = low
        else:
            self._timers[name][rows] = self._env.rng.integers(low, high + 1, rows.numel())

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        for name in self._columns:
            if self._cfgs[name].resample_on_reset:
                self._restart(name, ids)
                # The verdict on the next step is taken already; it knows nothing of a timer of one step.
                self._may_fire[name] |= self._steps[name][0] == 1
        return {}
