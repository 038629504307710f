"""Chooses how an environment reads and writes its backend."""

from __future__ import annotations

import torch

from unilab_core.bridge_io import HostBridgeIO
from unilab_core.io import BackendIO
from unilab_core.resident_io import ResidentIO
from unisim.capabilities import TensorExecution
from unisim.contract import SimBackend

__all__ = ["make_io"]


def make_io(backend: SimBackend, *, device: torch.device, decimation: int) -> BackendIO:
    """Returns the seam that fits how the backend executes."""
    kinds: dict[TensorExecution, type[BackendIO]] = {
        TensorExecution.HOST_BRIDGE: HostBridgeIO,
        TensorExecution.DEVICE_RESIDENT: ResidentIO,
    }
    return kinds[backend.tensor_execution()](backend, device=device, decimation=decimation)
