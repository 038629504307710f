"""Curricula: change how hard a task is while it runs, from the step counter or from how episodes ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core.errors import ConfigError
from unilab_managers.cfg.curriculum import CurriculumTermCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, named
from unisim.config import FrozenDict

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["CurriculumManager"]


class CurriculumManager(ManagerBase):
    """Runs curriculum terms, in the order of declaration, and remembers what each said last."""

    def __init__(self, terms: Mapping[str, CurriculumTermCfg], env: TorchEnv) -> None:
        """Binds the terms."""
        super().__init__("curriculum", env, terms)
        by_mode = {mode: [t for n, t in self._terms.items() if terms[n].mode == mode] for mode in _MODES}
        self._by_step, self._by_episode = by_mode["step"], by_mode["episode"]
        self._all = torch.arange(env.num_envs, device=env.device)
        # Value as a number (None for a tensor) and as a tensor. A snapshot, replaced and never changed: what was said
        # is undone with a rejected reset, and is no state that the next step depends on.
        self._said: Mapping[str, tuple[float | None, torch.Tensor]] = FrozenDict()

    def compute_step(self) -> None:
        """Runs the step-driven terms with all rows."""
        for term in self._by_step:
            self._run(term, self._all)

    def compute_episode(self, ids: torch.Tensor) -> None:
        """Runs the episode-driven terms with the rows that are about to be reset, (K,) int64."""
        for term in self._by_episode:
            self._run(term, ids)

    def log(self) -> dict[str, torch.Tensor]:
        """Returns what terms said last, 0-d by `Curriculum/<term>`, or `Curriculum/<term>/<key>` if it was a dict."""
        return {key: value for key, (_, value) in self._said.items()}

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """One call per step-driven term; a reset runs the episode-driven ones."""
        return [(term.label, lambda term=term: self._run(term, self._all)) for term in self._by_step]  # type: ignore[misc]

    def _run(self, term: BoundTerm, ids: torch.Tensor) -> None:
        with named(term.label):
            value = term(ids)
        news = dict(_entries(value, f"Curriculum/{term.name}", term.label))
        said = {key: self._tensor(key, value) for key, value in news.items()}
        if any(self._said.get(key) is not entry for key, entry in said.items()):
            self._said = FrozenDict({**self._said, **said})

    def _tensor(self, key: str, value: float | torch.Tensor) -> tuple[float | None, torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return None, value.detach().clone()
        known = self._said.get(key)
        if known is not None and known[0] == value:
            return known
        return value, torch.full((), value, device=self._env.device)


_MODES = ("step", "episode")


def _entries(value: object, key: str, label: str) -> Iterator[tuple[str, float | torch.Tensor]]:
    """Yields what a term said as numbers and 0-d tensors by log key.

    Raises:
        ConfigError: It said anything else.
    """
    if value is None:
        return
    if isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(part, Mapping):
                raise ConfigError(f"{label} returned a dict in a dict at {name!r}, expected numbers in it")
            yield from _entries(part, f"{key}/{name}", label)
    elif isinstance(value, torch.Tensor):
        if value.ndim:
            raise ConfigError(f"{label} returned a tensor {tuple(value.shape)}, expected one number, ()")
        yield key, value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, float(value)
    else:
        raise ConfigError(
            f"{label} returned a {type(value).__name__}, expected a float, a 0-d tensor, a dict of these or None"
        )
