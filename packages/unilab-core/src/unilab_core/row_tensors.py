"""Copies of the tensors that a reset may change: all small ones by one operator, large ones by rows, no byte twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from unilab_core.errors import ConfigError
from unilab_core.row_values import Place

__all__ = ["ConstantChangedError", "RowTensors", "SavedTensors"]

_WHOLE_BYTES = 64 * 1024
"""Tensors below this size are saved whole; larger ones by rows."""


class ConstantChangedError(ConfigError):
    """A large tensor without rows was changed where only rows may change."""


class _Followed(NamedTuple):
    """A tensor, what shows that it still is where it was, and how it is saved."""

    tensor: torch.Tensor
    alias: torch.Tensor
    """The same memory in the same form, detached."""
    how: Literal["skipped", "flat", "whole", "rows", "constant"]
    memory: torch.Tensor
    """(B,) uint8: of one that is saved flat, its bytes in the order of memory; of any other, the alias."""

    @property
    def extent(self) -> tuple[int, int]:
        """Addresses of its first byte and of the one behind its last."""
        start, alias = self.alias.data_ptr(), self.alias
        last = sum((n - 1) * stride for n, stride in zip(alias.shape, alias.stride(), strict=True))
        return start, start + (last + 1) * alias.itemsize


@dataclass
class SavedTensors:
    """What `RowTensors.save` remembers, beside the buffers of small tensors.

    Attributes:
        ids: The rows that were saved of large tensors.
        whole: Values of small tensors with gaps in memory.
        rows: Rows `ids` of large tensors.
        constants: Place of a large tensor that must not change while rows are staged, its version or values.
    """

    ids: torch.Tensor
    whole: list[torch.Tensor]
    rows: list[torch.Tensor]
    constants: list[tuple[Place, int | torch.Tensor]]


class RowTensors:
    """Tensors under 64 KiB are saved whole, larger ones with leading size N by rows, any other counts as a constant."""

    def __init__(self, num_envs: int, skip_storage: Sequence[torch.Tensor]) -> None:
        """Remembers N, and the tensors whose storage belongs to the packets."""
        self._n = num_envs
        self._skip = {t.untyped_storage().data_ptr() for t in skip_storage if t.numel()}
        self._followed: dict[int, _Followed] = {}
        self._places = _Places(())
        self._flat: dict[torch.device, list[torch.Tensor]] = {}
        self._buffers: dict[torch.device, torch.Tensor] = {}
        self._whole: list[torch.Tensor] = []
        self._rows: list[torch.Tensor] = []
        self._constants: list[Place] = []

    def is_skipped(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is expanded, or shares the storage of a packet."""
        if 0 in tensor.stride() and any(
            s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)
        ):
            return True
        return bool(tensor.numel()) and tensor.untyped_storage().data_ptr() in self._skip

    @property
    def are_in_place(self) -> bool:
        """Whether every tensor followed still has its memory and its form: `set_`, `resize_` or `.data` change them."""
        return self._places.are_same()

    def follow(self, places: Iterable[Place]) -> None:
        """Saves from now on the tensors at these places, and no others."""
        before, self._followed = self._followed, {}
        by: dict[str, list[_Followed]] = {"flat": [], "whole": [], "rows": []}
        self._constants = []
        for place in places:
            tensor = place.value
            one = self._followed.get(id(tensor))
            if one is None:
                one = before.get(id(tensor))
                if one is None or not tensor.is_set_to(one.alias):
                    one = self._look_at(tensor)
                self._followed[id(tensor)] = one
                if one.how in by:
                    by[one.how].append(one)
            if one.how == "constant":  # its place is checked too, so all of them count
                self._constants.append(place)
        self._places = _Places(self._followed.values())
        flat = _outermost(by["flat"])
        self._whole = [one.alias for one in by["whole"] if not _is_inside(one, flat)]
        self._rows = [one.alias for one in _outermost_rows(by["rows"])]
        self._flat = {}
        for one in flat:
            self._flat.setdefault(one.alias.device, []).append(one.memory)
        self._allocate()

    def _look_at(self, tensor: torch.Tensor) -> _Followed:
        alias = tensor.detach()
        if not alias.numel() or self.is_skipped(alias):
            return _Followed(tensor, alias, "skipped", alias)
        if alias.nbytes >= _WHOLE_BYTES:
            by_rows = alias.ndim and alias.shape[0] == self._n
            return _Followed(tensor, alias, "rows" if by_rows else "constant", alias)
        # What is small and without gaps is copied as bytes, whatever its dtype and the order of its dimensions.
        dense = alias.permute(sorted(range(alias.ndim), key=alias.stride, reverse=True))
        if dense.is_contiguous() and not (alias.is_conj() or alias.is_neg() or alias.is_quantized):
            # As strided, because a single element counts as contiguous whatever its stride, and bytes need stride 1.
            line = alias.as_strided((alias.numel(),), (1,), alias.storage_offset())
            return _Followed(tensor, alias, "flat", line.view(torch.uint8))
        return _Followed(tensor, alias, "whole", alias)

    def _allocate(self) -> None:
        """Makes the buffers that small tensors are saved to, unless the ones there are as large."""
        sizes = {device: sum(memory.numel() for memory in parts) for device, parts in self._flat.items()}
        if sizes != {device: buffer.numel() for device, buffer in self._buffers.items()}:
            # A buffer born in inference mode could never be written in place outside it.
            with torch.inference_mode(False):
                self._buffers = {
                    device: torch.empty(size, dtype=torch.uint8, device=device)
                    for device, size in sizes.items()
                }

    def save(self, ids: torch.Tensor) -> SavedTensors:
        """Copies every tensor that is followed, large ones at the rows `ids`; overwrites the copy before."""
        for device, parts in self._flat.items():
            torch.cat(parts, out=self._buffers[device])
        return SavedTensors(
            ids,
            [alias.clone() for alias in self._whole],
            [alias.index_select(0, ids) for alias in self._rows],
            # A tensor born in inference mode counts no versions.
            [(p, p.value.clone() if p.value.is_inference() else p.value._version) for p in self._constants],
        )

    def restore(self, saved: SavedTensors) -> None:
        """Writes back what `save` copied last."""
        with torch.inference_mode():
            for device, parts in self._flat.items():
                copies = self._buffers[device].split_with_sizes([part.numel() for part in parts])
                for part, copy in zip(parts, copies, strict=True):
                    part.copy_(copy)
            for alias, values in zip(self._whole, saved.whole, strict=True):
                alias.copy_(values)
            for alias, values in zip(self._rows, saved.rows, strict=True):
                alias[saved.ids] = values

    def check_constants(self, saved: SavedTensors) -> None:
        """Checks that no large tensor without rows was changed since it was saved.

        Raises:
            ConstantChangedError: One was, and names it; unless only replaced, it cannot be taken back.
        """
        for place, before in saved.constants:
            tensor = place.value
            same = torch.equal(tensor, before) if torch.is_tensor(before) else tensor._version == before
            if place.now() is not tensor or not same:
                raise ConstantChangedError(
                    f"{place.path}, a tensor of shape {tuple(tensor.shape)}, was changed where only rows may change "
                    "(in a reset, or when terms are tried before the first one), and is too large to be saved whole; "
                    f"put the {self._n} environments in its first dimension"
                )


class _Places:
    """Where tensors lie and in which form, so that it shows whether they still do; without an operator for most."""

    def __init__(self, followed: Iterable[_Followed]) -> None:
        """Looks at the tensors."""
        everything = list(followed)
        # Of what is of one piece, these numbers say which memory it is.
        self._pieces = [one.tensor for one in everything if one.tensor.is_contiguous()]
        self._addresses = list(map(torch.Tensor.data_ptr, self._pieces))
        self._sizes = list(map(torch.Tensor.size, self._pieces))
        others = [one for one in everything if not one.tensor.is_contiguous()]
        self._others = [one.tensor for one in others]
        self._aliases = [one.alias for one in others]

    def are_same(self) -> bool:
        """Whether every tensor still has its memory and its form."""
        return (
            self._addresses == list(map(torch.Tensor.data_ptr, self._pieces))
            and self._sizes == list(map(torch.Tensor.size, self._pieces))
            and all(map(torch.Tensor.is_contiguous, self._pieces))
            and all(map(torch.Tensor.is_set_to, self._others, self._aliases))
        )


def _is_inside(one: _Followed, others: Iterable[_Followed]) -> bool:
    """Whether all memory of a tensor is also that of another one, without gaps: whoever saves that one saves it too."""
    start, stop = one.extent
    return any(
        low <= start and stop <= high and other.alias.device == one.alias.device
        for other in others
        for low, high in (other.extent,)
    )


def _outermost(followed: Iterable[_Followed]) -> list[_Followed]:
    """Returns those without gaps whose memory is not all inside that of another one, as that of a view is."""
    kept: list[_Followed] = []
    for one in sorted(followed, key=lambda one: -one.alias.nbytes):
        if not _is_inside(one, kept):
            kept.append(one)
    return kept


def _outermost_rows(followed: Iterable[_Followed]) -> list[_Followed]:
    """Returns those with rows whose rows are not all inside the same rows of another one."""
    kept: list[_Followed] = []
    for one in sorted(followed, key=lambda one: -one.alias.nbytes):
        if not any(_has_rows_inside(one.alias, other.alias) for other in kept):
            kept.append(one)
    return kept


def _has_rows_inside(view: torch.Tensor, rows: torch.Tensor) -> bool:
    """Whether each row of a view, (N, ...), lies inside the same row of a tensor of one piece, (N, ...)."""
    if not rows.is_contiguous() or view.device != rows.device:
        return False
    width = rows.numel() // rows.shape[0] * rows.itemsize  # of a single row a stride may be anything
    start = view.data_ptr() - rows.data_ptr()
    inner = zip(view.shape[1:], view.stride()[1:], strict=True)
    length = (sum((n - 1) * stride for n, stride in inner) + 1) * view.itemsize
    is_row_by_row = rows.shape[0] == 1 or view.stride(0) * view.itemsize == width
    return is_row_by_row and start >= 0 and start + length <= width
