"""One observation term with its settings, checked: what its group does with the columns it computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch

from unilab_core.env import TorchEnv
from unilab_core.errors import ConfigError
from unilab_core.host_terms import is_host_term
from unilab_core.row_state import RowStateRegistry
from unilab_managers.buffers import DelayBuffer, DelayLags
from unilab_managers.cfg.observations import ObservationTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, check_value
from unilab_managers.noise import NoiseModel

__all__ = ["ObservationPipeline"]


class ObservationPipeline:
    """One bound observation term with its settings.

    Attributes:
        name: The term's name.
        width: D, the columns of one frame.
        noise: Its noise; None if there is none, or if the group goes without.
        clip: Lowest and highest value that it is shown with, before scale; None: any.
        scale: () or (D,) float32 factor; None: 1.
        twin: An earlier term, of this group or another, that computes the very same; None if there is none.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("name", "width", "clip", "scale", "twin")
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(self, term: BoundTerm, env: TorchEnv, *, corrupt: bool) -> None:
        """Evaluates the term once to learn its width; draws nothing and leaves no trace.

        Raises:
            ConfigError: The term changes when it is read, or a setting does not fit its columns; names the term.
        """
        cfg = term.cfg
        assert isinstance(cfg, ObservationTermCfg)
        self.name = term.name
        self._term = term
        self._env = env
        self.twin: ObservationPipeline | None = None
        self.width = self._probe().shape[1]
        if self.width == 0:
            raise ConfigError(f"{term.label} returned no columns")
        self.column_names()
        self.column_units()
        noise = self._make_noise(cfg)  # made in any case: a wrong setting is wrong without corruption too
        self.noise = noise if corrupt else None
        self.clip = cfg.clip
        self.scale = self._column_scale(cfg.scale)
        self._delay = self._make_delay(cfg)

    def _probe(self) -> torch.Tensor:
        """Evaluates the term once to learn its width, and makes sure that reading it changes nothing.

        Raises:
            ConfigError: The term's `__call__` changed the term: rows would advance whenever others are reset.
        """
        instance, n = self._term.instance, self._env.num_envs
        roots: dict[str, object] = {"rng": self._env.rng} | ({} if instance is None else {"term": instance})
        registry = RowStateRegistry(roots, n, stop=(TorchEnv, ManagerBase))
        saved = registry.save(torch.arange(n, device=self._env.device))
        before = registry.state_dict()
        values = self.evaluate()
        after = registry.state_dict()
        registry.restore(saved)
        changed = [
            path for path in after if path.startswith("term") and not _equal(before.get(path), after[path])
        ]
        if changed:
            raise ConfigError(
                f"{self._term.label}: __call__ changed {changed[0].removeprefix('term.')!r}; reading an observation "
                "must change nothing: advance state in update(env), which runs once per step"
            )
        return values

    def _make_noise(self, cfg: ObservationTermCfg) -> NoiseModel | None:
        if cfg.noise is None:
            return None
        env = self._env
        try:
            return cfg.noise.make(env.num_envs, self.width, env.device, env.rng)
        except ConfigError as error:
            raise ConfigError(f"{self._term.label}: noise.{error}") from error

    def _column_scale(self, scale: float | tuple[float, ...] | None) -> torch.Tensor | None:
        if scale is None:
            return None
        if isinstance(scale, tuple) and len(scale) != self.width:
            raise ConfigError(f"{self._term.label}: scale has {len(scale)} numbers, expected {self.width}")
        return torch.tensor(scale, dtype=torch.float32, device=self._env.device)

    def _make_delay(self, cfg: ObservationTermCfg) -> DelayBuffer | None:
        if cfg.delay_max_lag == 0:
            return None
        lags = DelayLags(
            self._env.num_envs,
            cfg.delay_min_lag,
            cfg.delay_max_lag,
            rng=self._env.rng,
            per_env=cfg.delay_per_env,
            hold_prob=cfg.delay_hold_prob,
            update_period=cfg.delay_update_period,
            per_env_phase=cfg.delay_per_env_phase,
        )
        return DelayBuffer(lags, self.width)

    def column_names(self) -> tuple[str, ...]:
        """Returns what the term calls its columns; their numbers where it says nothing.

        Raises:
            ConfigError: It names another number of columns than it has.
        """
        names = getattr(self._term.cfg.func, "__unilab_columns__", None)
        return tuple(map(str, range(self.width))) if names is None else self._of_columns(names, "names")

    def column_units(self) -> tuple[str, ...]:
        """Returns the unit of each column of what the term computes, before scale; `""` where it says nothing.

        Raises:
            ConfigError: It gives units of another number of columns than it has.
        """
        unit = getattr(self._term.cfg.func, "__unilab_unit__", "")
        return (unit,) * self.width if isinstance(unit, str) else self._of_columns(unit, "gives units of")

    def _of_columns(self, ask: Callable[..., tuple[str, ...]], what: str) -> tuple[str, ...]:
        with self._term.named:
            found = tuple(ask(self._env, **self._term.params))
        if len(found) != self.width:
            raise ConfigError(
                f"{self._term.label} {what} {len(found)} columns {found}, but returned {self.width}"
            )
        return found

    @property
    def remembers(self) -> bool:
        """Whether a reset of rows means anything to its noise, or to what delays it."""
        has_memory = self.noise is not None and type(self.noise).reset is not NoiseModel.reset
        return has_memory or self._delay is not None

    def reset(self, ids: torch.Tensor, mask: torch.Tensor) -> None:
        """Begins the episodes of the rows `ids`, (K,) int64 ascending; `mask` is the same as (N,) bool."""
        if self.noise is not None:
            with self._term.named:
                self.noise.reset(mask)
        if self._delay is not None:
            self._delay.reset(ids)

    def evaluate(self) -> torch.Tensor:
        """Returns what the term computes, (N, D) float32, checked; to be read only.

        Raises:
            ConfigError: It is of another dtype or shape; names the term.
        """
        with self._term.named:
            values = self._term()
        return check_value(values, self._term.label, torch.float32, self._env.num_envs, columns=True)

    def find_twin(self, earlier: Iterable[ObservationPipeline]) -> None:
        """Looks for a term whose function computes the very same with the same parameters: one call serves both.

        Class terms have none, for they may remember something.
        """
        cfg = self._term.cfg
        if self._term.instance is not None or is_host_term(cfg.func):
            return
        for other in earlier:
            if other._term.cfg.func is cfg.func and other._params_in_text() == self._params_in_text():
                self.twin = other
                return

    def _params_in_text(self) -> str:
        """Returns the parameters so that types and the order of keys count, which a function may go by."""
        return json.dumps(self._term.cfg.to_data()["params"])

    def takes_over(self, found: Mapping[ObservationPipeline, torch.Tensor] | None) -> bool:
        """Whether `values` returns what its twin found: that computed, drew nothing, and has the same parameters."""
        return (
            found is not None
            and self.twin is not None
            and self.twin in found
            and self._term.has_changes_of(self.twin._term)
        )

    def values(self, found: dict[ObservationPipeline, torch.Tensor] | None) -> torch.Tensor:
        """Returns what `evaluate` does, or what its twin found just now without drawing: each draws its own.

        Args:
            found: What terms have computed of the present state, to which it adds; None: it computes in any case.
        """
        if found is None:
            return self.evaluate()
        if self.takes_over(found):
            value = found[self.twin]  # type: ignore[index] # it has one
        else:
            asked = self._env.rng.asked
            value = self.evaluate()
            if self._env.rng.asked != asked:
                return value
        found[self] = value
        return value

    def add_noise(self, values: torch.Tensor, ids: torch.Tensor | None) -> None:
        """Gives `values` the noise of the term, in place: (N, D) float32, or (K, D) of the rows `ids`.

        Raises:
            ConfigError: The noise returned something else; names the term and the noise.
        """
        assert self.noise is not None
        with self._term.named:
            noisy: Any = self.noise.apply(values, ids)
        if not torch.is_tensor(noisy) or noisy.shape != values.shape or noisy.dtype != values.dtype:
            got = f"{noisy.dtype} {tuple(noisy.shape)}" if torch.is_tensor(noisy) else type(noisy).__name__
            raise ConfigError(
                f"{self._term.label}: {type(self.noise).__name__}.apply returned {got}, "
                f"expected {values.dtype} {tuple(values.shape)}"
            )
        values.copy_(noisy)

    @property
    def is_delayed(self) -> bool:
        """Whether rows are shown frames of some steps ago."""
        return self._delay is not None

    def delay(self, values: torch.Tensor) -> None:
        """Lets one step pass that brings `values`, (N, D) float32; replaces them by those that arrive in it."""
        assert self._delay is not None
        self._delay.push(values)
        values.copy_(self._delay.read())

    def begin_delay(self, ids: torch.Tensor, values: torch.Tensor) -> None:
        """Begins the episodes of the rows `ids` with `values`, (K, D) float32, which they are shown at once."""
        assert self._delay is not None
        self._delay.fill(ids, values)


def _equal(a: Any, b: Any) -> bool:  # noqa: ANN401 - values of a state
    """Whether two values of a state are the same; NaN is the same as NaN."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype
        return same and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b))
