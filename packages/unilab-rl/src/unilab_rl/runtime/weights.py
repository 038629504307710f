"""Weights that one process publishes and another reads: the newest, and never parts of two versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import torch

from unilab_rl.runtime.shared_memory import shared_zeros

__all__ = ["SharedWeights", "WeightPublisher", "WeightReader"]


@dataclass(frozen=True)
class SharedWeights:
    """The shared memory of one publisher and its readers; it can be sent to a spawned process.

    Version v lies in half v % 2 of `payload`, so while the next version is written the present one stays whole. Two
    counters tell a reader whether what it copied was written over meanwhile (a seqlock): `begun` rises before a half is
    written, `complete` after. A checksum per half keeps that true on processors which may show stores in another order.
    """

    payload: torch.Tensor
    """(2, P) uint8: all tensors' bytes in their own dtypes, so counts beyond 2^24 stay exact."""

    counters: torch.Tensor
    """(2,) int64: `begun` and `complete`."""

    checksums: torch.Tensor
    """(2,) int64: the sum over each half as 64-bit words, modulo 2^64."""

    layout: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]
    """Name, dtype and shape of each tensor."""

    @classmethod
    def of(cls, module: torch.nn.Module) -> SharedWeights:
        """Allocates room for everything in `module.state_dict()`; nothing is published yet.

        Raises:
            CapabilityError: There is not enough shared memory.
        """
        size = sum(_nbytes(tensor) for tensor in module.state_dict().values())
        words = max(1, (size + 7) // 8)
        return cls(
            payload=shared_zeros((2, 8 * words), torch.uint8),
            counters=shared_zeros((2,), torch.int64),
            checksums=shared_zeros((2,), torch.int64),
            layout=_layout(module),
        )


class WeightPublisher:
    """Publishes the parameters and buffers of one module; there may be only one for a `SharedWeights`."""

    def __init__(self, module: torch.nn.Module, shared: SharedWeights) -> None:
        """Makes a publisher; `module` may live on any device."""
        self._module = module
        self._shared = shared

    @property
    def version(self) -> int:
        """The newest complete version; 0 before the first."""
        return int(self._shared.counters[1])

    @torch.no_grad()
    def publish(self) -> int:
        """Publishes the present weights and returns their version; never waits for a reader."""
        version = self.version + 1
        half = version % 2
        # Asked for anew, since a module may replace a buffer; and one copy from the device, however many there are.
        packed = torch.cat([_bytes(tensor) for tensor in _widest_first(self._module)])
        self._shared.counters[0] = version
        self._shared.payload[half, : len(packed)].copy_(packed)
        self._shared.checksums[half] = _checksum(self._shared.payload[half])
        self._shared.counters[1] = version
        return version


class WeightReader:
    """Copies the newest version into a module of the same shape as the publisher's."""

    def __init__(self, module: torch.nn.Module, shared: SharedWeights) -> None:
        """Makes a reader.

        Raises:
            ValueError: A tensor of `module` is not like the published one; names it.
        """
        for own, published in zip_longest(_layout(module), shared.layout):
            if own != published:
                raise ValueError(
                    f"WeightReader: the module has {own} where {published} is published; build both from one config"
                )
        self._tensors = _widest_first(module)
        self._shared = shared
        self._copy = torch.zeros(shared.payload.shape[1], dtype=torch.uint8)
        self._views = list(_views(self._copy, self._tensors))
        self.version = 0
        """The version that the module holds; 0: the weights it was made with."""

        self.retries = 0
        """How often a copy was thrown away because it was written over meanwhile."""

    @torch.no_grad()
    def refresh(self) -> bool:
        """Takes the newest version, if it isn't held already; returns whether the module changed."""
        if int(self._shared.counters[1]) == self.version:
            return False
        while True:
            version = int(self._shared.counters[1])
            self._copy.copy_(self._shared.payload[version % 2])
            checksum = int(self._shared.checksums[version % 2])
            # The half of this version is written again only for the version after the next.
            if int(self._shared.counters[0]) <= version + 1 and _checksum(self._copy) == checksum:
                break
            self.retries += 1
        for tensor, view in zip(self._tensors, self._views, strict=True):
            tensor.copy_(view)
        self.version = version
        return True


def _widest_first(module: torch.nn.Module) -> list[torch.Tensor]:
    """Returns the module's tensors, those of the widest dtype first, so that each is aligned."""
    return sorted(module.state_dict().values(), key=lambda tensor: -tensor.element_size())


def _layout(module: torch.nn.Module) -> tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]:
    return tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in module.state_dict().items())


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _views(payload: torch.Tensor, tensors: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yields the part of `payload` that holds each tensor, in its dtype and shape."""
    start = 0
    for tensor in tensors:
        end = start + _nbytes(tensor)
        yield payload[start:end].view(tensor.dtype).view(tensor.shape)
        start = end


def _checksum(payload: torch.Tensor) -> int:
    return int(payload.view(torch.int64).sum())
