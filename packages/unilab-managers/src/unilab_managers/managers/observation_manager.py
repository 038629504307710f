"""Observations: compute, then noise, clip, scale; terms side by side in groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unilab_core.env import TorchEnv
from unilab_core.errors import ConfigError
from unilab_core.row_state import RowStateRegistry
from unilab_core.state import Observations
from unilab_managers.cfg.observations import ObservationGroupCfg, ObservationTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, bind_terms, check_value, named

__all__ = ["ObservationManager"]


class _Pipeline:
    """One bound observation term: its settings as tensors, its width and its columns in the group."""

    def __init__(self, term: BoundTerm, env: TorchEnv, *, corrupt: bool) -> None:
        assert isinstance(term.cfg, ObservationTermCfg)
        self.term = term
        self._env = env
        self._clip = term.cfg.clip
        self._noise = term.cfg.noise if corrupt else None
        self.width = self._probe().shape[1]
        if self.width == 0:
            raise ConfigError(f"{term.label} returned no columns")
        self._scale = self._column_scale(term.cfg.scale)
        if term.cfg.noise is not None:
            self._check_noise(term.cfg.noise)

    def _check_noise(self, noise: object) -> None:
        for name, value in vars(noise).items():
            if isinstance(value, tuple) and len(value) != self.width:
                raise ConfigError(
                    f"{self.term.label}: noise.{name} has {len(value)} numbers, expected {self.width}"
                )

    def _column_scale(self, scale: float | tuple[float, ...] | None) -> torch.Tensor | None:
        if scale is None:
            return None
        if isinstance(scale, tuple) and len(scale) != self.width:
            raise ConfigError(f"{self.term.label}: scale has {len(scale)} numbers, expected {self.width}")
        return torch.tensor(scale, dtype=torch.float32, device=self._env.device)

    def _evaluate(self) -> torch.Tensor:
        return check_value(self.term(), self.term.label, torch.float32, self._env.num_envs, columns=True)

    def _probe(self) -> torch.Tensor:
        """Evaluates the term once to learn its width, and makes sure that reading it changes nothing.

        Raises:
            ConfigError: The term's `__call__` changed the term: rows would advance whenever others are reset.
        """
        instance, n = self.term.instance, self._env.num_envs
        roots: dict[str, object] = {"rng": self._env.rng} | ({} if instance is None else {"term": instance})
        registry = RowStateRegistry(roots, n, stop=(TorchEnv, ManagerBase))
        saved = registry.save(torch.arange(n, device=self._env.device))
        before = registry.state_dict()
        values = self._evaluate()
        after = registry.state_dict()
        registry.restore(saved)
        changed = [
            path for path in after if path.startswith("term") and not _equal(before.get(path), after[path])
        ]
        if changed:
            raise ConfigError(
                f"{self.term.label}: __call__ changed {changed[0].removeprefix('term.')!r}; reading an observation "
                "must change nothing: advance state in update(env), which runs once per step"
            )
        return values

    def compute(self, ids: torch.Tensor | None) -> torch.Tensor:
        """Returns (N or K, width) float32."""
        values = self._evaluate()
        if ids is not None:
            values = values[ids]
        if self._noise is not None:
            values = self._noise.apply(values, self._env.rng)
        if self._clip is not None:
            values = values.clamp(*self._clip)
        if self._scale is not None:
            values = values * self._scale
        return values


class ObservationManager(ManagerBase):
    """Computes the observation groups. Columns follow the order in which terms are declared.

    Attributes:
        groups_spec: Group name to its width.
    """

    def __init__(self, groups: Mapping[str, ObservationGroupCfg], env: TorchEnv) -> None:
        """Binds the terms and evaluates each once, to learn its width and to check it.

        Raises:
            ConfigError: A term fails or returns what is not (N, dim) float32, or a setting does not fit its width.
        """
        super().__init__("observations", env, {})
        self._groups: dict[str, list[_Pipeline]] = {}
        for group, cfg in groups.items():
            terms = bind_terms(cfg.terms, env, f"observations.{group}")
            self._groups[group] = [_make(term, env, corrupt=cfg.enable_corruption) for term in terms.values()]
            self._terms |= {f"{group}/{name}": term for name, term in terms.items()}
        self.groups_spec = {group: sum(p.width for p in pipes) for group, pipes in self._groups.items()}

    def update(self) -> None:
        """Advances class terms that have `update(env)`; once per step, before observations are computed."""
        for term in self._terms.values():
            with named(term.label):
                term.update()

    def compute(self, ids: torch.Tensor | None) -> Observations:
        """Returns the groups of all rows (None), or of the rows `ids` only; draws noise for these rows.

        Args:
            ids: (K,) int64 row ids, or None.

        Returns:
            Group name to (N or K, dim) float32, fresh tensors.
        """
        return {g: torch.cat([p.compute(ids) for p in pipes], dim=-1) for g, pipes in self._groups.items()}

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Returns a label for every column of every group: the term's name and the column within it."""
        return {
            group: tuple(f"{p.term.name}[{i}]" for p in pipes for i in range(p.width))
            for group, pipes in self._groups.items()
        }


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


def _make(term: BoundTerm, env: TorchEnv, *, corrupt: bool) -> _Pipeline:
    with named(term.label):
        return _Pipeline(term, env, corrupt=corrupt)
