"""The terms of one observation group side by side, with their history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import torch

from unilab_core.env import TorchEnv
from unilab_managers.buffers import FrameRing
from unilab_managers.cfg.observations import ObservationGroupCfg
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

    row_settings: ClassVar[tuple[str, ...]] = ("_by_term", "_lengths", "_order", "_first", "_is_in_order")

    def __init__(
        self, cfg: ObservationGroupCfg, pipelines: Sequence[ObservationPipeline], env: TorchEnv
    ) -> None:
        """Allocates what is published and remembered."""
        self.pipelines = list(pipelines)
        self._lengths = [cfg.history_of(pipe.name) for pipe in pipelines]
        self._by_term = cfg.flatten_history_dim
        self.published = torch.zeros(env.num_envs, len(list(self.columns())), device=env.device)
        self._ring: FrameRing | None = None
        longest = max(self._lengths, default=1)
        if longest > 1:
            widths = [pipe.width for pipe, length in self._with_lengths() if length > 1]
            self._ring = FrameRing(env.num_envs, longest, sum(widths), env.device)
            order, first = self._sources(self._ring)
            self._order = torch.tensor(order, device=env.device)
            self._first = torch.tensor(first, device=env.device)
            self._is_in_order = order == list(range(len(order)))

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

    def _with_lengths(self) -> Iterator[tuple[ObservationPipeline, int]]:
        return zip(self.pipelines, self._lengths, strict=True)

    def _sources(self, ring: FrameRing) -> tuple[list[int], list[int]]:
        """Returns where each published column is found: in a step, and when rows begin.

        In a step the columns lie in the ring's frames, oldest first, followed by the terms without a history; when
        rows begin, in one frame followed by those terms.
        """
        starts, kept, plain = [], 0, 0
        for pipe, length in self._with_lengths():
            starts.append(kept if length > 1 else plain)
            kept, plain = (kept + pipe.width, plain) if length > 1 else (kept, plain + pipe.width)
        order, first = [], []
        for term, age, column in self.columns():
            has_history, place = self._lengths[term] > 1, starts[term] + column
            order.append(place + (ring.length - 1 - age if has_history else ring.length) * ring.dim)
            first.append(place if has_history else place + ring.dim)
        return order, first

    def advance(self) -> None:
        """Lets one step pass for every row: evaluates the terms and publishes what they show."""
        values = [pipe.advance() for pipe in self.pipelines]
        if self._ring is None:
            torch.cat(values, dim=1, out=self.published)
            return
        kept, plain = self._split(values)
        self._ring.push(_side_by_side(kept))
        found = _side_by_side([self._ring.frames().flatten(1), *plain])
        if self._is_in_order:
            self.published.copy_(found)
        else:
            torch.index_select(found, 1, self._order, out=self.published)

    def begin(self, ids: torch.Tensor) -> torch.Tensor:
        """Begins the episodes of the rows `ids`, (K,) int64 ascending: their first frame fills their history.

        Returns:
            What they are shown, (K, width) float32, fresh; published as well.
        """
        values = [pipe.begin(ids) for pipe in self.pipelines]
        if self._ring is None:
            rows = torch.cat(values, dim=1)
        else:
            kept, plain = self._split(values)
            frame = _side_by_side(kept)
            self._ring.fill(ids, frame)
            rows = _side_by_side([frame, *plain]).index_select(1, self._first)
        self.published[ids] = rows
        return rows

    def _split(self, values: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Returns the values of the terms with a history, and of those without."""
        pairs = list(zip(values, self._lengths, strict=True))
        return [v for v, length in pairs if length > 1], [v for v, length in pairs if length == 1]

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


def _side_by_side(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
