"""The terms of one observation group side by side, with their history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import torch

from unilab_core.env import TorchEnv
from unilab_managers.buffers import FrameRing
from unilab_managers.cfg.observations import ObservationGroupCfg
from unilab_managers.managers.observation_frame import Chosen, Found, ObservationFrame
from unilab_managers.managers.observation_pipeline import ObservationPipeline

__all__ = ["GroupColumn", "ObservationGroup"]


class GroupColumn(NamedTuple):
    """Where a column of a group comes from: which term, how many steps ago, which of the term's columns."""

    term: int
    age: int
    column: int


class ObservationGroup:
    """One published group. All terms with a history share one ring, whose columns are then put in order.

    Attributes:
        pipelines: The terms, in the order of declaration.
        published: (N, width) float32: what was computed last; rewritten in place.
    """

    row_settings: ClassVar[tuple[str, ...]] = (
        *("_by_term", "_lengths", "_is_in_order", "_is_first_in_order", "_kept", "_plain"),
        *("_order", "_first"),
    )
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, cfg: ObservationGroupCfg, pipelines: Sequence[ObservationPipeline], env: TorchEnv
    ) -> None:
        """Allocates what is published and remembered."""
        self.pipelines = tuple(pipelines)
        self._lengths = tuple(cfg.history_of(pipe.name) for pipe in pipelines)
        self._by_term = cfg.flatten_history_dim
        has_history = [length > 1 for length in self._lengths]
        self._frame = ObservationFrame(self.pipelines, has_history, env)
        num_kept = sum(pipe.width for pipe, kept in zip(pipelines, has_history, strict=True) if kept)
        longest = max(self._lengths, default=1)
        order, first = self._sources(num_kept, longest)
        self._is_in_order = order == list(range(len(order)))
        self._is_first_in_order = first == list(range(len(first)))
        self._order = torch.tensor(order, dtype=torch.int64, device=env.device)
        self._first = torch.tensor(first, dtype=torch.int64, device=env.device)
        frame = self._frame.values
        self._kept, self._plain = frame[:, :num_kept], frame[:, num_kept:]  # views, made once
        self._ring = FrameRing(env.num_envs, longest, num_kept, env.device) if num_kept else None
        as_it_is = self._ring is None and self._is_in_order
        self.published = frame if as_it_is else torch.zeros(env.num_envs, len(order), device=env.device)

    def columns(self) -> Iterator[GroupColumn]:
        """Yields where each published column comes from, in order."""
        terms = range(len(self.pipelines))
        if self._by_term:
            frames = [(term, age) for term in terms for age in reversed(range(self._lengths[term]))]
        else:
            longest = max(self._lengths, default=1)  # of all terms, as the config has made sure
            frames = [(term, age) for age in reversed(range(longest)) for term in terms]
        for term, age in frames:
            for column in range(self.pipelines[term].width):
                yield GroupColumn(term, age, column)

    def _sources(self, num_kept: int, longest: int) -> tuple[list[int], list[int]]:
        """Returns where each published column is found: in a step, and when rows begin.

        In a step the columns lie in the ring's frames of `num_kept` columns, oldest first, followed by the terms
        without a history: so the end of it is the newest frame, which alone is there when rows begin.
        """
        order, first = [], []
        for term, age, column in self.columns():
            place = self._frame.starts[term] + column
            first.append(place)
            order.append(place + (longest - 1 - age) * num_kept)
        return order, first

    def advance(self, computed: Found) -> None:
        """Lets one step pass for every row: evaluates the terms and publishes what they show.

        Args:
            computed: What other groups have computed; see `ObservationPipeline.values`.
        """
        self._frame.advance(computed)
        found = self._frame.values
        if self._ring is not None:
            self._ring.push(self._kept)
            found = self._ring.frames().flatten(1)
            if self._plain.shape[1]:
                found = torch.cat([found, self._plain], dim=1)
        if not self._is_in_order:
            torch.index_select(found, 1, self._order, out=self.published)
        elif found is not self.published:
            self.published.copy_(found)

    def begin(self, ids: torch.Tensor, computed: Found, chosen: Chosen) -> torch.Tensor:
        """Begins the episodes of the rows `ids`, (K,) int64 ascending: their first frame fills their history.

        Args:
            ids: The rows.
            computed: As of `advance`.
            chosen: The rows of what other groups have computed; see `ObservationFrame.begin`.

        Returns:
            What they are shown, (K, width) float32, fresh; published as well.
        """
        frame = self._frame.begin(ids, computed, chosen)
        if self._ring is not None:
            self._ring.fill(ids, frame[:, : self._ring.dim])
        rows = frame if self._is_first_in_order else frame.index_select(1, self._first)
        self.published.index_copy_(0, ids, rows)
        return rows

    def labels(self) -> tuple[str, ...]:
        """Returns a label per column: `term[column]`, and `term[column][t-2]` where there is a history."""
        names = [pipe.column_names() for pipe in self.pipelines]
        return tuple(
            f"{self.pipelines[term].name}[{names[term][column]}]"
            + (f"[t-{age}]" if self._lengths[term] > 1 else "")
            for term, age, column in self.columns()
        )

    def units(self) -> tuple[str, ...]:
        """Returns the unit of each column, before scale."""
        units = [pipe.column_units() for pipe in self.pipelines]
        return tuple(units[term][column] for term, _, column in self.columns())
