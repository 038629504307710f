"""Counts the moments at which the host waits for a device, those inside a backend excepted."""

from __future__ import annotations

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from unisim.testing import FakeBackend


class HostWork:
    """Whether the backend is at work: what happens there is on the host and waits for nobody."""

    depth = 0


class CountedBackend(FakeBackend):
    """A fake whose own work is not counted."""

    def step_tensor(self, *arguments, **options):
        return self._at_work(super().step_tensor, *arguments, **options)

    def pack_rows(self, *arguments):
        return self._at_work(super().pack_rows, *arguments)

    def apply_reset(self, *arguments):
        return self._at_work(super().apply_reset, *arguments)

    def bad_rows(self):
        return self._at_work(super().bad_rows)

    @staticmethod
    def _at_work(call, *arguments, **options):
        HostWork.depth += 1
        try:
            return call(*arguments, **options)
        finally:
            HostWork.depth -= 1


class CountOperators(TorchDispatchMode):
    """Counts the operators that make the host wait for a device."""

    def __init__(self, counts: Counter) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        masks = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if HostWork.depth == 0 and (
            masks or name in ("_local_scalar_dense", "nonzero", "masked_select", "unique")
        ):
            self.counts["boolean index" if masks else name] += 1
        return func(*args, **(kwargs or {}))


class CountReads(TorchFunctionMode):
    """Counts `tolist`, which reads a tensor's memory without an operator when that is on the host."""

    def __init__(self, counts: Counter) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if HostWork.depth == 0 and func in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu):
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def waits(call) -> Counter:
    counts: Counter = Counter()
    with CountReads(counts), CountOperators(counts):
        call()
    return counts
