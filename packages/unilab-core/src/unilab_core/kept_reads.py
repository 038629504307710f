"""Values derived from one read, computed once however many terms ask for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, get_args

import torch

from unilab_core.io import BackendIO
from unilab_core.staging import Staging

__all__ = ["KeptReads", "Source"]

Source = Literal["columns", "state", "pose"]
"""What a value follows from: any columns; positions and velocities alone; positions and model fields alone."""
_SOURCES: tuple[Source, ...] = get_args(Source)
_Version = tuple[int, int, int]


class KeptReads:
    """Keeps derived values until what they follow from changes: by physics, a reset, or a write of a step.

    What follows from the state alone outlasts the commit of velocities that a step wrote, for it followed from the
    written ones before: a backend writes what it is given and keeps the rest. What follows from positions alone
    outlasts that write as well. Nothing at all is kept while a reset is staged, nor before the reads are frozen, when
    every read has to be noted, nor after close, when there is nothing to be read.
    """

    def __init__(self, io: BackendIO, staging: Staging) -> None:
        """Starts with nothing; the versions of `io` and the changes of `staging` say when values are outdated."""
        self._io = io
        self._staging = staging
        nothing: tuple[_Version, dict[Hashable, torch.Tensor]] = ((-1, 0, 0), {})
        self._values: dict[Source, tuple[_Version, dict[Hashable, torch.Tensor]]] = dict.fromkeys(
            _SOURCES, nothing
        )
        self._views: dict[Hashable, torch.Tensor] = {}
        self._staged: dict[Hashable, torch.Tensor] = {}
        self._blocks: dict[Hashable, torch.Tensor | Callable[[], torch.Tensor]] = {}

    def get(
        self, key: Hashable, compute: Callable[[], torch.Tensor], source: Source = "columns"
    ) -> torch.Tensor:
        """Returns what `compute` returned for the present values of its source, to be read only.

        Args:
            key: What it is.
            compute: Reads and derives it.
            source: What it follows from.
        """
        if self._staging.is_reset:
            return compute()
        if not self._io.serves_step:
            return self._io.lend(_name(key), compute())
        version = self._version(source)
        kept, values = self._values[source]
        if version != kept:
            values = {}
            self._values[source] = version, values  # what was of another version is dropped
        value = values.get(key)
        # What was computed in inference mode is of no use outside of it: autograd refuses it.
        if value is None or (value.is_inference() and not torch.is_inference_mode_enabled()):
            value = values[key] = compute()
        return value

    def _version(self, source: Source) -> _Version:
        changes = self._staging.changes
        if source == "pose":
            return self._io.pose_version, changes["qpos"], 0
        version = self._io.version if source == "columns" else self._io.pose_version
        return version, changes["qpos"], changes["qvel"]

    def view(self, key: Hashable, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` returned once, to be read only: a view, which follows what it shows by itself.

        Columns and what a step stages lie elsewhere: a key must say which of the two is shown.
        """
        if self._staging.is_reset:
            return compute()  # which refuses what is not defined now
        if not self._io.serves_step:
            return compute() if self._staging.shows_state else self._io.lend(_name(key), compute())
        value = self._views.get(key)
        if value is None:
            value = self._views[key] = compute()
        return value

    def staged(self, key: Hashable, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` returned once, to be read only: a view of what a reset stages, always in one place."""
        value = self._staged.get(key)
        if value is None:
            with torch.inference_mode(False):  # a view of that mode would be of no use outside of it
                value = self._staged[key] = compute()
        return value

    def side_by_side(
        self, key: Hashable, columns: Callable[[], list[torch.Tensor]], part: slice | int, source: Source
    ) -> torch.Tensor:
        """Returns a part of each of K columns, (N, K, width), of a single one (N, K), to be read only.

        It is a view of the columns where they lie as far apart as each other, as in a packet, and otherwise one tensor
        that is filled anew when it is asked for after they have changed. So who keeps one without a copy and asks again
        finds no difference, wherever columns lie.

        Args:
            key: What it is.
            columns: Reads the columns, (N, C) each; the same tensors in every step.
            part: Which of the C.
            source: What the part follows from.
        """
        if self._staging.is_reset or not self._io.serves_step:
            return self.get(key, lambda: torch.stack(_parts(columns(), part), dim=1), source)
        block = self._blocks.get(key)
        if block is None:
            found = columns()
            view = _even_view(found, part)
            block = self._blocks[key] = _stacking(_parts(found, part)) if view is None else view
        return block if isinstance(block, torch.Tensor) else self.get(key, block, source)


def _stacking(parts: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Returns what puts parts, (N, width) or (N,) each, into one tensor, always the same one."""
    first = parts[0]
    with torch.inference_mode(False):  # autograd would refuse it later
        stacked = first.new_empty((first.shape[0], len(parts), *first.shape[1:]))
    return lambda: torch.stack(parts, dim=1, out=stacked)


def _parts(columns: list[torch.Tensor], part: slice | int) -> list[torch.Tensor]:
    return [column[:, part] for column in columns]


def _even_view(columns: list[torch.Tensor], part: slice | int) -> torch.Tensor | None:
    """Returns a part of columns of one storage, (N, C) each, as one view, see above; None if they are no such."""
    first, starts = columns[0], [each.storage_offset() for each in columns]
    step = starts[1] - starts[0] if len(columns) > 1 else 1
    if step < 1 or starts != [starts[0] + i * step for i in range(len(columns))]:
        return None
    storage, (row, column) = first.untyped_storage().data_ptr(), first.stride()
    if any(
        each.untyped_storage().data_ptr() != storage or each.stride() != (row, column) for each in columns
    ):
        return None
    if isinstance(part, int):
        return first.as_strided((first.shape[0], len(columns)), (row, step), starts[0] + part * column)
    size = first.shape[0], len(columns), part.stop - part.start
    return first.as_strided(size, (row, step, column), starts[0] + part.start * column)


def _name(key: Hashable) -> str:
    """What a value is called in messages: of bodies, the field."""
    return repr(key[0] if isinstance(key, tuple) else key)
