"""The newest frame of an observation group: its terms side by side, with noise, clip, scale and delay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

import torch

from unilab_core.env import TorchEnv
from unilab_managers.managers.observation_pipeline import ObservationPipeline
from unilab_managers.noise.noise import ColumnNoise

__all__ = ["Chosen", "Found", "ObservationFrame"]

Found = dict[ObservationPipeline, torch.Tensor] | None
"""What terms have computed of the present state; None where each shall compute for itself."""
Chosen = dict[ObservationPipeline, torch.Tensor]
"""The rows that are asked for, of what terms have computed."""


class _Block(NamedTuple):
    """Adjacent columns that something is done to."""

    columns: slice
    of_all_rows: torch.Tensor
    """Their view of the frame, made once."""


class ObservationFrame:
    """The columns of a group's terms, each term once, and what is done to them before there is a history.

    Terms whose noise is of one kind stand side by side, so that one draw and one sum serve them all; clip and scale
    are one operator for all columns. Terms with a history come before those without.

    Attributes:
        values: (N, F) float32: the newest frame; rewritten in place.
        starts: The first column of each term, in the order of declaration.
    """

    row_settings: ClassVar[tuple[str, ...]] = (
        *("values", "starts", "_order", "_clip", "_scale"),
        *("_corrupted", "_delayed"),
    )
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, pipelines: Sequence[ObservationPipeline], has_history: Sequence[bool], env: TorchEnv
    ) -> None:
        """Places the terms, which are given in the order of declaration."""
        self._pipelines = tuple(pipelines)
        kinds = _by_kind(pipelines, has_history)
        self._order = tuple(term for kind in kinds for term in kind)
        starts, width = [0] * len(pipelines), 0
        for term in self._order:
            starts[term] = width
            width += pipelines[term].width
        self.starts = tuple(starts)
        self.values = torch.zeros(env.num_envs, width, device=env.device)
        self._clip = self._clip_of_columns()
        self._scale = self._scale_of_columns()
        self._corrupted = tuple(
            self._corruption(kind) for kind in kinds if pipelines[kind[0]].noise is not None
        )
        self._delayed = tuple(
            (self._block([term]), pipe) for term, pipe in enumerate(pipelines) if pipe.is_delayed
        )

    def _block(self, terms: Sequence[int]) -> _Block:
        """Returns the columns of terms that stand side by side."""
        start, last = self.starts[terms[0]], terms[-1]
        columns = slice(start, self.starts[last] + self._pipelines[last].width)
        return _Block(columns, self.values[:, columns])

    def _corruption(
        self, terms: Sequence[int]
    ) -> tuple[_Block, Callable[[torch.Tensor, torch.Tensor | None], None]]:
        """Returns the columns of terms whose noise is of one kind, and what gives them their noise in place."""
        noises = [self._pipelines[term].noise for term in terms]
        of_columns = [noise for noise in noises if isinstance(noise, ColumnNoise)]
        if of_columns:
            return self._block(terms), ColumnNoise.side_by_side(of_columns).apply_in_place
        return self._block(terms), self._pipelines[terms[0]].add_noise

    def _of_columns(self, of_terms: Iterable[torch.Tensor]) -> torch.Tensor:
        """Returns a number for each column, (F,), given () or (D,) of each term."""
        values = [value.expand(pipe.width) for value, pipe in zip(of_terms, self._pipelines, strict=True)]
        return torch.cat([values[term] for term in self._order])

    def _clip_of_columns(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Returns the lowest and the highest value of each column; None if no term clips."""
        clips = [pipe.clip for pipe in self._pipelines]
        if not any(clips):
            return None
        low, high = (
            self._of_columns(
                self.values.new_tensor(any_value if clip is None else clip[end]) for clip in clips
            )
            for end, any_value in enumerate((-torch.inf, torch.inf))
        )
        return low, high

    def _scale_of_columns(self) -> torch.Tensor | None:
        """Returns the factor of each column; None if no term scales."""
        scales = [pipe.scale for pipe in self._pipelines]
        if all(scale is None for scale in scales):
            return None
        return self._of_columns(self.values.new_ones(()) if scale is None else scale for scale in scales)

    def advance(self, found: Found) -> None:
        """Lets one step pass for every row: evaluates the terms in the order of declaration, then writes `values`.

        Args:
            found: What other groups have computed; see `ObservationPipeline.values`.
        """
        computed = [pipe.values(found) for pipe in self._pipelines]
        torch.cat([computed[term] for term in self._order], dim=1, out=self.values)
        self._shape(self.values, None)
        for block, pipe in self._delayed:
            pipe.delay(block.of_all_rows)

    def begin(self, ids: torch.Tensor, found: Found, chosen: Chosen) -> torch.Tensor:
        """Returns the first frame of the rows `ids`, (K, F) float32, fresh and undelayed; no other row advances.

        Args:
            ids: The rows.
            found: As of `advance`.
            chosen: The rows of what other groups have computed, to which it adds.
        """
        computed = [_rows_of(pipe, ids, found, chosen) for pipe in self._pipelines]
        frame = torch.cat([computed[term] for term in self._order], dim=1)
        self._shape(frame, ids)
        for block, pipe in self._delayed:
            pipe.begin_delay(ids, frame[:, block.columns])
        return frame

    def _shape(self, frame: torch.Tensor, ids: torch.Tensor | None) -> None:
        """Adds noise, clips and scales, in place: `values`, or a frame of the rows `ids`."""
        for block, add_noise in self._corrupted:
            add_noise(block.of_all_rows if ids is None else frame[:, block.columns], ids)
        if self._clip is not None:
            torch.clamp(frame, *self._clip, out=frame)
        if self._scale is not None:
            frame *= self._scale


def _rows_of(pipe: ObservationPipeline, ids: torch.Tensor, found: Found, chosen: Chosen) -> torch.Tensor:
    """Returns rows of what a term computes, to be read only: its twin's where it takes over what that one found."""
    taken = pipe.takes_over(found)
    values = pipe.values(found)
    rows = chosen[pipe.twin] if taken and pipe.twin in chosen else values.index_select(0, ids)
    chosen[pipe] = rows
    return rows


def _by_kind(pipelines: Sequence[ObservationPipeline], has_history: Sequence[bool]) -> list[list[int]]:
    """Returns the terms, those with a history first, with those together whose noise can be given by one model."""
    kinds: dict[object, list[int]] = {}
    for term in sorted(range(len(pipelines)), key=lambda term: not has_history[term]):
        noise = pipelines[term].noise
        kind = noise.kind if isinstance(noise, ColumnNoise) else term
        kinds.setdefault((has_history[term], kind), []).append(term)
    return list(kinds.values())
