"""Storage of the packets between tensors and a backend whose state lives in host memory."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

__all__ = ["Packet"]


class Packet:
    """Storage of one packet kind: allocated once, its addresses never change.

    Unstaged, host and device see the same bytes. Staged, the host's are apart (pinned for CUDA), and `to_host` and
    `to_device` are the only operators that move them.
    """

    def __init__(self, num_bytes: int, device: torch.device, *, staged: bool) -> None:
        """Allocates it, all zeros, on `device` and, if `staged`, also on the host."""
        self.device_bytes = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self.host_bytes = self.device_bytes
        if staged:
            self.host_bytes = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        # As numbers, viewed once: every packet holds floats, after the row ids where it has any.
        self.device_floats = self.device_bytes.view(torch.float32)
        self.host_floats = self.host_bytes.view(torch.float32) if staged else self.device_floats
        self.staged = staged
        self._asynchronous = device.type != "cpu"
        self._in_flight: torch.Event | None = None

    def to_host(self, there: torch.Tensor, here: torch.Tensor) -> None:
        """One transfer to `there`, on the host, and one synchronisation: the host reads right afterwards."""
        if self.staged:
            there.copy_(here, non_blocking=True)
            if self._asynchronous:
                torch.accelerator.current_stream(self.device_bytes.device).synchronize()

    def to_device(self, there: torch.Tensor, here: torch.Tensor) -> None:
        """One transfer from `there`, on the host, ordered on the current stream: nobody waits on the host."""
        if self.staged:
            here.copy_(there, non_blocking=True)
            if self._asynchronous:
                self._in_flight = torch.Event(self.device_bytes.device)
                self._in_flight.record(torch.accelerator.current_stream(self.device_bytes.device))

    def wait(self) -> None:
        """Waits until the last transfer of the host's bytes has left, so that they may be written."""
        if self._in_flight is not None:
            self._in_flight.synchronize()
            self._in_flight = None

    def blocks(self, start: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns float32 of a shape from the byte `start` on, as the host and as the device see it."""
        here = _block(self.device_floats, start, shape)
        return _block(self.host_floats, start, shape) if self.staged else here, here


def _block(floats: torch.Tensor, start: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns contiguous float32 of a packet, from its byte `start` on."""
    # One operator, where a slice and a view of it are two.
    return floats.as_strided(shape, _strides(shape), start // 4)


@lru_cache(maxsize=1024)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
