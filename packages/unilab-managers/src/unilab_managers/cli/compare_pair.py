"""Two environments of one task on two backends, stepped side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from unilab_core.errors import NonFiniteError, ResetRejectedError
from unilab_core.factory import make_env
from unilab_managers.cli.compare_tally import Column, ColumnDifference, Moment, Tally, Tolerance
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.env_cfg import TermsCfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv
    from unilab_core.env_cfg import TorchEnvCfg

__all__ = ["Comparison", "ComparisonCfg", "compare"]

Actions = Literal["random", "zero"]


@dataclass(frozen=True)
class ComparisonCfg:
    """How two environments are compared.

    Attributes:
        backends: Names of the two physics backends; what the first gives is the reference.
        device: Torch device of both, so that both draw the same numbers.
        seed: Of both environments and of random actions.
        steps: Control steps.
        resync: Whether the second takes over the first one's state before each step, so that every difference is that
            of one step; otherwise both run on from where they are.
        actions: What both are sent: uniform draws between the action's bounds (an infinite one taken for -1 or 1), or
            zeros.
        tolerance: What counts as equal.
    """

    backends: tuple[str, str]
    device: str
    seed: int
    steps: int
    resync: bool
    actions: Actions
    tolerance: Tolerance


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Attributes:
        columns: Every column, the worst first.
        steps: Steps that were compared.
        num_envs: N.
        ended: Episodes that ended on both backends in the same step.
        ended_on_first: Episodes that ended on the first only.
        ended_on_second: Episodes that ended on the second only.
        unequal_draws: Steps (0: the first reset) in which the two drew a different number of random numbers.
        stopped: Why it ended before its last step; empty if it did not.
    """

    columns: tuple[ColumnDifference, ...]
    steps: int
    num_envs: int
    ended: int
    ended_on_first: int
    ended_on_second: int
    unequal_draws: tuple[int, ...]
    stopped: str

    @property
    def within_tolerance(self) -> bool:
        """Whether every pair of values was compared, drawn alike, and is equal within the tolerance."""
        return not (self.stopped or self.unequal_draws or any(column.beyond for column in self.columns))

    def to_data(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        names = ("steps", "num_envs", "ended", "ended_on_first", "ended_on_second")
        return {
            **{name: getattr(self, name) for name in names},
            "unequal_draws": list(self.unequal_draws),
            "stopped": self.stopped or None,
            "within_tolerance": self.within_tolerance,
            "columns": [column.to_data() for column in self.columns],
        }


def compare(cfg: TorchEnvCfg, how: ComparisonCfg) -> Comparison:
    """Steps environments of `cfg` on two backends side by side; recorders are left out.

    Both start from the same reset. An episode that ends on either is reset on both, so that unlike rows never meet.

    Raises:
        ConfigError: The config doesn't work.
        CapabilityError: A backend or the device can't do what it needs.
    """
    if isinstance(cfg, TermsCfg):
        cfg = cfg.model_copy(update={"recorders": {}})  # two would write the same files
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                make_env(cfg, backend=name, device=how.device, seed=how.seed, autoreset=False)
            )
            for name in how.backends
        )
        return _Pair(first, second, how).run()


class _StoppedError(Exception):
    """The two can't be compared any further; the message says why."""


class _Pair:
    """Two environments and what they have differed by so far."""

    def __init__(self, first: TorchEnv, second: TorchEnv, how: ComparisonCfg) -> None:
        self._first, self._second, self._how = first, second, how
        self._both = (("first", first), ("second", second))
        self._tally = Tally(_columns(first), how.tolerance)
        self._act = _actions(first, how)
        self._ended = torch.zeros(3, dtype=torch.int64)
        self._unequal_draws: list[int] = []

    def run(self) -> Comparison:
        done, stopped = 0, ""
        try:
            self._reset(None, Moment(0, after_reset=True))
            for step in range(1, self._how.steps + 1):
                self._step(step)
                done = step
        except _StoppedError as error:
            stopped = str(error)
        both, on_first, on_second = self._ended.tolist()
        return Comparison(
            columns=self._tally.differences(),
            steps=done,
            num_envs=self._first.num_envs,
            ended=both,
            ended_on_first=on_first,
            ended_on_second=on_second,
            unequal_draws=tuple(self._unequal_draws),
            stopped=stopped,
        )

    def _step(self, step: int) -> None:
        if self._how.resync:
            with self._working("second", step):
                self._second.copy_state_from(self._first)
        actions = self._act()
        for which, env in self._both:
            with self._working(which, step):
                env.step(actions)
        rows = torch.arange(self._first.num_envs)
        self._tally.add(_values(self._first), _values(self._second), rows, Moment(step))
        self._check_draws(step)
        ended, also = (env.state.terminated | env.state.truncated for env in (self._first, self._second))
        self._ended += torch.stack([(ended & also).sum(), (ended & ~also).sum(), (also & ~ended).sum()]).cpu()
        ids = (ended | also).nonzero().flatten()
        if ids.numel():
            self._reset(ids, Moment(step, after_reset=True))

    def _reset(self, ids: torch.Tensor | None, moment: Moment) -> None:
        for which, env in self._both:
            with self._working(which, moment.step):
                env.reset(ids)
        first, second = _observations(self._first), _observations(self._second)
        rows = torch.arange(first.shape[0]) if ids is None else ids.cpu()
        self._tally.add(first[rows], second[rows], rows, moment)
        self._check_draws(moment.step)

    @contextmanager
    def _working(self, which: str, step: int) -> Iterator[None]:
        """Ends the comparison if the first or second environment fails on what it computes."""
        try:
            yield
        except (NonFiniteError, ResetRejectedError) as error:
            name = self._how.backends[which == "second"]
            raise _StoppedError(f"step {step} failed on the {which} backend, {name}: {error}") from error

    def _check_draws(self, step: int) -> None:
        """Finds out whether noise, commands and resets can still be the same on both."""
        if torch.equal(self._first.rng.get_state(), self._second.rng.get_state()):
            return
        if step not in self._unequal_draws:
            self._unequal_draws.append(step)
        if not self._how.resync:
            raise _StoppedError(
                f"in step {step} a term drew random numbers on one backend that it didn't draw on the other; "
                "from here on noise, commands and resets are unlike"
            )


def _actions(env: TorchEnv, how: ComparisonCfg) -> Callable[[], torch.Tensor]:
    """Returns what makes the actions of each step, (N, A) float32."""
    shape = (env.num_envs, env.num_actions)
    if how.actions == "zero":
        return lambda: torch.zeros(shape, device=env.device)
    low, high = env.action_bounds
    low, high = torch.where(low.isfinite(), low, -1.0), torch.where(high.isfinite(), high, 1.0)
    generator = torch.Generator(env.device).manual_seed(how.seed)
    return lambda: low + (high - low) * torch.rand(shape, generator=generator, device=env.device)


def _columns(env: TorchEnv) -> list[Column]:
    """Returns what `_values` holds, in its order."""
    described = env.describe()
    observed = [
        Column("observation", f"{group}/{label}", unit)
        for group in env.obs_groups_spec
        for label, unit in zip(described.observations[group], described.units[group], strict=True)
    ]
    rewards, ends = ["reward"], ["terminated", "truncated"]
    if isinstance(env, ManagerBasedRlEnv):
        rewards += [f"rewards/{term.name}" for term in described.terms["rewards"]]
        ends += [f"terminations/{term.name}" for term in described.terms["terminations"]]
    return [
        *observed,
        *(Column("reward", name) for name in rewards),
        *(Column("done", name) for name in ends),
    ]


def _observations(env: TorchEnv) -> torch.Tensor:
    groups = env.observations()
    return _side_by_side([groups[name] for name in env.obs_groups_spec])


def _values(env: TorchEnv) -> torch.Tensor:
    """Returns (N, C) float64 of the last transition: observations, rewards, ends."""
    state = env.state
    rewards, ends = [state.reward], [state.terminated, state.truncated]
    if isinstance(env, ManagerBasedRlEnv):
        rewards += env.reward_manager.term_values().values()
        ends += [env.termination_manager.get_term(name) for name in env.termination_manager.active_terms]
    return _side_by_side([_observations(env), *(values[:, None] for values in [*rewards, *ends])])


def _side_by_side(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.to("cpu", torch.float64) for part in parts], dim=1)
