"""A device that is not the CPU, on a machine that has none: its tensors keep their values in host memory.

It goes by the name of torch's `"meta"`, which no machine lacks. Who mixes its tensors with those of the host, but for
copies, gets torch's own error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["DEVICE", "other_device"]

DEVICE = torch.device("meta")


class _Elsewhere(torch.Tensor):
    """A tensor of the other device; `inner` holds its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> _Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    def tolist(self) -> Any:
        """Torch's own reads memory."""
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of other_device()")


_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


class _Operators(TorchDispatchMode):
    """Runs the operators of the other device on the values behind its tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        asked = kwargs.get("device")
        if asked == DEVICE:
            kwargs["device"] = torch.device("cpu")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        away = [isinstance(tensor, _Elsewhere) for tensor in tensors]
        if func not in _COPIES and any(away):
            mixed = [t for t, gone in zip(tensors, away, strict=True) if not gone and t.ndim]
            if mixed:
                raise RuntimeError(f"{func}: expected all tensors to be on the same device")
        out = func(*tree_map_only(_Elsewhere, _values, args), **tree_map_only(_Elsewhere, _values, kwargs))
        if func._schema.is_mutable and tensors and out is _values(tensors[0]):
            return tensors[0]
        there = asked == DEVICE if asked is not None else any(away)
        return tree_map_only(torch.Tensor, _Elsewhere, out) if there else out


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.inner if isinstance(tensor, _Elsewhere) else tensor


class _Stream:
    def synchronize(self) -> None:
        """Everything is done already."""


class _Event(_Stream):
    def __init__(self, device: torch.device) -> None:
        """Of the other device."""

    def record(self, stream: _Stream) -> None:
        """Nothing is waited for."""


_TENSOR = torch.tensor


def _tensor(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
    made = _TENSOR(data, **options)  # no operator makes it
    return made if device is None else made.to(device)


@contextmanager
def other_device() -> Iterator[None]:
    """While the block lasts, tensors can be made on `DEVICE`, copied to and from it, and computed with there."""
    with (
        mock.patch.object(torch.accelerator, "current_stream", return_value=_Stream()),
        mock.patch.object(torch, "Event", _Event),
        mock.patch.object(torch, "tensor", _tensor),
        _Operators(),
    ):
        yield
