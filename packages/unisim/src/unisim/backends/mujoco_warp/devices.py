"""Which device Warp computes on, and the order of work between Warp's stream and torch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import warp as wp

from unisim.backends.mujoco_warp.kernel_cache import start_warp
from unisim.capabilities import device_problem

__all__ = [
    "ACCEPTED",
    "CompletionToken",
    "WarpStream",
    "capture_problem",
    "exact_device",
    "warp_device_problem",
]

ACCEPTED = ("cuda", "cpu")
"""The CPU only where it is asked for by name: that is how the code is tested."""


def warp_device_problem(device: str) -> str | None:
    """Returns why Warp cannot compute on a torch device, or None; nothing falls back to another device.

    That torch finds a device proves nothing: Warp has its own driver interface.
    """
    if problem := device_problem(device, ACCEPTED):
        return problem
    start_warp()
    if torch.device(device).type == "cpu":
        return None
    if not wp.is_cuda_available():
        toolkit = ".".join(map(str, wp.get_cuda_toolkit_version() or ("?",)))
        return (
            f"device {device!r} is not there for Warp, though torch finds it; Warp is built with CUDA {toolkit}: "
            "update the NVIDIA driver"
        )
    try:
        wp.device_from_torch(exact_device(device))
    except (IndexError, RuntimeError, ValueError) as error:
        return f"device {device!r} is not there for Warp: {error}"
    return None


def capture_problem(device: Any) -> str | None:  # noqa: ANN401 - a device of Warp
    """Returns why launches on a device cannot be captured in a graph, or None."""
    if device.is_cpu:
        return None
    if not wp.is_mempool_supported(device) or not wp.is_mempool_enabled(device):
        return "the device has no memory pool, which temporary arrays of a graph come from"
    return None


def exact_device(device: str) -> torch.device:
    """Returns a torch device with the index that one without has now."""
    wanted = torch.device(device)
    index: int | None = wanted.index  # torch declares an int, and gives None where none was named
    if wanted.type == "cuda" and index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return wanted


class CompletionToken:
    """The end of everything a backend was asked for so far.

    Work that torch does on the stream that was current in the call need not wait: the call itself made that stream
    wait. Any other stream has to.
    """

    def __init__(self, event: torch.cuda.Event | None, device: torch.device) -> None:
        """Of an event on the backend's stream; None on the CPU, where everything is done when a call returns."""
        self._event = event
        self._device = device

    def wait_before_read(self, stream: torch.cuda.Stream | None = None) -> None:
        """Makes a stream wait, not the host: what is put on it afterwards sees the finished values.

        Args:
            stream: The stream that reads; None: torch's current one on the backend's device.
        """
        if self._event is None:
            return
        (stream or torch.cuda.current_stream(self._device)).wait_event(self._event)

    def done(self) -> bool:
        """Whether it has been reached; never waits."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Makes the host wait."""
        if self._event is not None:
            self._event.synchronize()


class WarpStream:
    """The one stream that a backend's work is put on; torch's default stream could not be captured.

    Attributes:
        device: Warp's device.
        token: The end of the last block of `work`.
    """

    def __init__(self, device: str) -> None:
        """Makes the stream on a device that `warp_device_problem` finds nothing wrong with."""
        self.torch_device = exact_device(device)
        self.device: Any = wp.device_from_torch(self.torch_device)
        self.token = CompletionToken(None, self.torch_device)
        self._stream: Any = None
        self._torch_stream: torch.cuda.Stream | None = None
        if self.device.is_cuda:
            self._stream = wp.Stream(self.device)
            self._torch_stream = wp.stream_to_torch(self._stream)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Puts what Warp and torch launch in the block on the backend's stream, after what the caller's holds so far.

        When the block ends, the caller's stream waits for it, and `token` tells other streams.
        """
        if self._torch_stream is None:
            with wp.ScopedDevice(self.device):
                yield
            return
        caller = torch.cuda.current_stream(self.torch_device)
        self._torch_stream.wait_stream(caller)
        try:
            with wp.ScopedStream(self._stream, sync_enter=False), torch.cuda.stream(self._torch_stream):
                yield
        finally:  # what was launched before an error runs too
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._torch_stream)
            caller.wait_event(event)
            self.token = CompletionToken(event, self.torch_device)

    def synchronize(self) -> None:
        """Makes the host wait for everything on the stream."""
        if self._torch_stream is not None:
            self._torch_stream.synchronize()
