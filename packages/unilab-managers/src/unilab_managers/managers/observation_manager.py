"""Observations: groups of terms, advanced once per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from unilab_core.env import TorchEnv
from unilab_core.reset_selectors import reset_env_ids_mask
from unilab_core.state import Observations
from unilab_managers.cfg.observations import ObservationGroupCfg
from unilab_managers.managers.manager_base import BoundTerm, ManagerBase, bind_terms, clearing, named
from unilab_managers.managers.observation_frame import Chosen, Found
from unilab_managers.managers.observation_group import ObservationGroup
from unilab_managers.managers.observation_pipeline import ObservationPipeline

__all__ = ["ObservationManager"]


class ObservationManager(ManagerBase):
    """Computes the observation groups. Columns follow the order in which terms are declared.

    Each term goes through compute, noise, clip, scale, delay and history; see `ObservationTermCfg`.

    Attributes:
        groups_spec: Group name to its width.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("groups_spec", "_advancing", "_remembering")

    def __init__(self, groups: Mapping[str, ObservationGroupCfg], env: TorchEnv) -> None:
        """Binds the terms and evaluates each once, to learn its width and to check it.

        Raises:
            ConfigError: A term fails or returns what is not (N, dim) float32, or a setting does not fit its width.
        """
        super().__init__("observations", env, {})
        self._groups: dict[str, ObservationGroup] = {}
        for group, cfg in groups.items():
            terms = bind_terms(cfg.terms, env, f"observations.{group}")
            pipelines = [_make(term, env, corrupt=cfg.enable_corruption) for term in terms.values()]
            self._groups[group] = ObservationGroup(cfg, pipelines, env)
            self._terms |= {f"{group}/{name}": term for name, term in terms.items()}
        every = [pipe for item in self._groups.values() for pipe in item.pipelines]
        for place, pipe in enumerate(every):
            pipe.find_twin(every[:place])
        self._clearing = clearing(self._terms)
        self._advancing = tuple(term for term in self._terms.values() if term.advances)
        self._remembering = tuple(pipe for pipe in every if pipe.remembers)
        self._cfg = dict(groups)
        self.groups_spec = {group: item.published.shape[1] for group, item in self._groups.items()}
        self._is_due = False
        """Whether a step has passed that has not been observed yet; the first frames come from `compute(ids)`."""

    def row_state_roots(self) -> dict[str, object]:
        """Adds the groups and each term's pipeline, which would lie too deep to be found."""
        roots = super().row_state_roots()
        for group, item in self._groups.items():
            roots[f"{self.owner}.{group}"] = item
            roots |= {f"{self.owner}.{group}.{pipe.name}": pipe for pipe in item.pipelines}
        return roots

    def update(self) -> None:
        """Advances class terms that have `update(env)`; once per step, before observations are computed."""
        self._is_due = True
        for term in self._advancing:
            with term.named:
                term.update()

    def compute(self, ids: torch.Tensor | None) -> Observations:
        """Returns the groups of all rows (None), or of the rows `ids` only, whose episodes begin.

        Of all rows: delays and histories advance and noise is drawn once after each `update`; asked again in the same
        step, it returns what it returned and changes nothing. Of some rows: noise is drawn for these rows, and their
        frame, undelayed, becomes their whole past; no other row advances.

        Args:
            ids: (K,) int64 row ids, ascending, or None.

        Returns:
            Group name to (N, dim) float32, which the next call rewrites, or to (K, dim) float32, fresh.
        """
        # Groups often show the same terms. While reads are recorded, each computes for itself: whose reads are whose
        # is noted as it does.
        found: Found = None if self._env.scene.is_recording else {}
        if ids is not None:
            chosen: Chosen = {}
            return {group: item.begin(ids, found, chosen) for group, item in self._groups.items()}
        if self._is_due:
            for item in self._groups.values():
                item.advance(found)
            self._is_due = False
        return {group: item.published for group, item in self._groups.items()}

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        if self._remembering:
            # Noise models keep the fixed-width mask; one serves them all.
            mask = reset_env_ids_mask(ids, num_envs=self._env.num_envs, device=self._env.device)
            for pipe in self._remembering:
                pipe.reset(ids, mask)
        return {}

    def labels(self) -> dict[str, tuple[str, ...]]:
        """Returns a label for every column of every group: `term[column]`, with a history `term[column][t-2]`.

        A column is called what the term calls it, or by its number where the term says nothing.
        """
        return {group: item.labels() for group, item in self._groups.items()}

    def units(self) -> dict[str, tuple[str, ...]]:
        """Returns the unit of every column of every group, before scale; `""` where the term says nothing."""
        return {group: item.units() for group, item in self._groups.items()}

    def settings(self, group: str, term: str) -> dict[str, Any]:
        """Returns what is in force for a term, as plain data: the fields of its config, its width and its unit.

        `unit` holds each unit of its columns once, `noise` is None where the group goes without, `history_length` is
        the number of frames shown.

        Raises:
            UnknownNameError: No such group or term; the message lists the nearest.
        """
        bound = self._term(f"{group}/{term}")
        cfg = self._cfg[group]
        pipe = next(pipe for pipe in self._groups[group].pipelines if pipe.name == term)
        data = bound.cfg_now().to_data()
        data |= {"history_length": cfg.history_of(term), "width": pipe.width}
        data["unit"] = ", ".join(dict.fromkeys(pipe.column_units()))
        return data if pipe.noise is not None else data | {"noise": None}


def _make(term: BoundTerm, env: TorchEnv, *, corrupt: bool) -> ObservationPipeline:
    with named(term.label):
        return ObservationPipeline(term, env, corrupt=corrupt)
