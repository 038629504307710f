"""Tensors that two processes see: their names are gone as soon as they are made, so that no death leaves any behind."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from unilab_core import CapabilityError

__all__ = ["shared_zeros"]

_FOLDER = Path("/dev/shm")


def shared_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns zeros in shared memory, which a process is handed as a file descriptor.

    Raises:
        CapabilityError: Less is free than asked for; without this check the first write would end the process.
    """
    needed = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    free = _free_bytes()
    if free is not None and needed > free:
        raise CapabilityError(
            f"shared memory: {needed:,} bytes are needed and {free:,} are free in {_FOLDER}; give the container more "
            "(docker run --shm-size=1g), or collect in this process with --set learner.collectors=0"
        )
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    if strategy != "file_descriptor":
        raise CapabilityError(
            f"shared memory: torch shares by {strategy!r}, expected 'file_descriptor', whose names vanish with the "
            "processes; collect in this process with --set learner.collectors=0"
        )
    tensor = torch.zeros(shape, dtype=dtype)
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor


def _free_bytes() -> int | None:
    """Returns what is free in the file system of shared memory; `None` where there is no such folder to ask."""
    try:
        found = os.statvfs(_FOLDER)
    except FileNotFoundError:
        return None
    return found.f_bavail * found.f_frsize
