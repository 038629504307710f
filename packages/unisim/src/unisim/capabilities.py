"""What a backend can do, as data that is consistent with itself."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Diagnostic", "TensorCapabilities", "TensorExecution", "device_problem"]


class TensorExecution(enum.Enum):
    """Where the authoritative state lives."""

    HOST_BRIDGE = "host_bridge"
    """In host memory; packed packets carry it to and from the tensors' device."""
    DEVICE_RESIDENT = "device_resident"
    """On one declared device; tensors are live views."""


@dataclass(frozen=True)
class TensorCapabilities:
    """What a backend can do. Decisions are made from this, never from a backend's name.

    Raises:
        ValueError: A combination that contradicts itself.
    """

    execution: TensorExecution
    process_topology: Literal["any_process", "learner_process"]
    """Whether the backend may live in a spawned collector."""
    data_plane: Literal["packets", "views"]
    accepted_devices: tuple[str, ...]
    """Torch device types that tensors may live on, for example `("cpu", "cuda")`."""
    owns_stream: bool
    """Whether work is ordered on a stream of its own."""
    state_fields: tuple[str, ...]
    """What a payload can write, and a view reads by default."""
    sensors: tuple[str, ...]
    selected_reset: bool
    row_writes: bool
    """Whether state can be written mid-episode (`write_rows`)."""
    randomizable_fields: tuple[str, ...]
    """Model fields that may differ per row."""
    body_reads: bool
    contact_reads: bool
    wrenches: bool
    graph_capture: bool
    rendering: bool
    snapshots: bool
    acceleration_fields: tuple[str, ...] = ()
    """Of `packets.ACCELERATION_FIELDS`: what can be read of the last integrated substep beside sensors."""

    def __post_init__(self) -> None:
        """Refuses what contradicts itself."""
        host = self.execution is TensorExecution.HOST_BRIDGE
        rules = (
            (
                host == (self.data_plane == "packets"),
                "HOST_BRIDGE goes with packets, DEVICE_RESIDENT with views",
            ),
            (not (host and self.graph_capture), "graph_capture needs DEVICE_RESIDENT"),
            (not (host and self.owns_stream), "owns_stream needs DEVICE_RESIDENT"),
            (
                host or self.process_topology == "learner_process",
                "DEVICE_RESIDENT lives in the learner's process",
            ),
            (bool(self.accepted_devices), "accepted_devices is empty"),
            ({"qpos", "qvel"} <= set(self.state_fields), "state_fields lacks 'qpos' or 'qvel'"),
            (self.selected_reset or not self.randomizable_fields, "randomizable_fields need selected_reset"),
        )
        broken = [text for holds, text in rules if not holds]
        if broken:
            raise ValueError("TensorCapabilities contradict themselves: " + "; ".join(broken))


@dataclass(frozen=True)
class Diagnostic:
    """One optimisation: asked for, in use, and if not in use, why."""

    name: str
    requested: bool
    enabled: bool
    reason: str = ""


def device_problem(device: str, accepted: Sequence[str]) -> str | None:
    """Returns why tensors cannot live on `device`, or None; nothing falls back to another device.

    Args:
        device: A torch device, for example `"cuda:1"`.
        accepted: The device types that may be asked for.
    """
    import torch

    try:
        wanted = torch.device(device)
    except RuntimeError:
        return (
            f"device {device!r} is no torch device; expected one of {tuple(accepted)}, for example 'cuda:0'"
        )
    if wanted.type == "cpu" and wanted.index is not None:
        return f"device {device!r}: the CPU has no index; use 'cpu'"
    if wanted.type not in accepted:
        return f"device {device!r} is not one of {tuple(accepted)}"
    if wanted.type == "cuda":
        if torch.version.hip is not None:
            return f"device {device!r}: this torch is built for ROCm, which nothing here was made for"
        if not torch.cuda.is_available():
            return f"device {device!r} is not there: torch finds no CUDA device"
        if (wanted.index or 0) >= torch.cuda.device_count():
            return f"device {device!r} is not there: torch finds {torch.cuda.device_count()} CUDA device(s)"
    return None
