"""Copies of the tensors that a reset may change: all small ones by one operator, large ones by rows."""

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
        self._tensors: list[torch.Tensor] = []
        self._aliases: list[torch.Tensor] = []
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
        return all(map(torch.Tensor.is_set_to, self._tensors, self._aliases))

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
        self._tensors = [one.tensor for one in self._followed.values()]
        self._aliases = [one.alias for one in self._followed.values()]
        self._whole = [one.alias for one in by["whole"]]
        self._rows = [one.alias for one in by["rows"]]
        self._flat = {}
        for one in by["flat"]:
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
