"""The packed plan between tensors and a backend whose state lives in host memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import torch

from unisim.errors import ResetRejectedError
from unisim.packet_storage import Packet
from unisim.packets import HostBridgeSpec, ReadLayout
from unisim.reset import ResetPayload, check_kinds

__all__ = ["HostBridgeTransferPlan", "HostPort", "PacketCount", "TransferStats"]

PacketKind = Literal["control", "read", "reset", "selected_read", "write", "verdict"]


@dataclass(frozen=True)
class PacketCount:
    """How often one kind of packet moved between host and device, and how much."""

    transfers: int = 0
    bytes: int = 0
    synchronizations: int = 0


@dataclass(frozen=True)
class TransferStats:
    """Counts per packet kind since the plan was compiled; they mean the same on a CPU target."""

    control: PacketCount = field(default_factory=PacketCount)
    read: PacketCount = field(default_factory=PacketCount)
    reset: PacketCount = field(default_factory=PacketCount)
    selected_read: PacketCount = field(default_factory=PacketCount)
    write: PacketCount = field(default_factory=PacketCount)
    verdict: PacketCount = field(default_factory=PacketCount)
    """Small results that the user of the plan reads back to decide something; see `count_verdict`."""


class HostPort(Protocol):
    """What the plan needs from a host-bridge backend; all tensors are in host memory."""

    num_envs: int

    def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
        """As `SimBackend.step_tensor`."""

    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """As `SimBackend.apply_reset`."""

    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """As `SimBackend.write_rows`."""

    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns of all rows, or of `env_ids`, into `out` (N or k, W) float32."""


class HostBridgeTransferPlan:
    """Drives a host-bridge backend by five packets of fixed layout.

    A control step is `write_control`, `step`, `read`; a reset or a row write is followed by `read_selected`. Any
    other order raises RuntimeError.

    Attributes:
        layout: Columns of the read packet.
        device: Where the packets live for their users.
    """

    def __init__(
        self,
        port: HostPort,
        spec: HostBridgeSpec,
        layout: ReadLayout,
        *,
        ctrl_width: int,
        row_width: int,
        staged: bool | None = None,
    ) -> None:
        """Allocates every packet.

        Args:
            port: The backend.
            spec: What is read, and the device of the packets.
            layout: Columns of the read packet.
            ctrl_width: C, the columns of the control packet.
            row_width: The most columns that one row of a reset or write packet can have.
            staged: Whether host and device storage are apart; None: unless the device is the CPU. On the CPU it
                only costs copies, and shows in tests that nothing but the plan moves a packet.

        Raises:
            ValueError: Unstaged packets on a device that the host cannot address.
        """
        self.layout = layout
        self.device = torch.device(spec.device)
        self._port = port
        self._n, self._c = port.num_envs, ctrl_width
        apart = self.device.type != "cpu" if staged is None else staged
        if not apart and self.device.type != "cpu":
            raise ValueError(f"HostBridgeTransferPlan: packets on {self.device} cannot be unstaged")
        self._control = Packet(4 * self._n * self._c, self.device, staged=apart)
        self._read = Packet(4 * self._n * layout.width, self.device, staged=apart)
        self._selected = Packet(4 * self._n * layout.width, self.device, staged=apart)
        self._rows = Packet(self._n * (8 + 4 * row_width), self.device, staged=apart)
        ids = 8 * self._n  # they come first
        self._row_ids = self._rows.device_bytes[:ids].view(torch.int64)
        self._row_ids_host = self._rows.host_bytes[:ids].view(torch.int64)
        self._ctrl_host, self._ctrl = self._control.blocks(0, (self._n, self._c))
        self._read_host, self.packet = self._read.blocks(0, (self._n, layout.width))
        """(N, W) float32: the last read; rewritten in place by `read` and `read_selected`."""
        self._stage: Literal["idle", "controlled", "stepped"] = "idle"
        self._pending: tuple[torch.Tensor, torch.Tensor] | None = None
        """Row ids whose selected read is due, as the host and as the device see them."""
        self._counts = {kind: [0, 0, 0] for kind in get_args(PacketKind)}
        """Transfers, bytes and synchronisations of each kind."""
        self._closed = False

    @property
    def transfer_stats(self) -> TransferStats:
        """Transfers, bytes and synchronisations by packet kind, as a value."""
        return TransferStats(**{kind: PacketCount(*counts) for kind, counts in self._counts.items()})

    @property
    def closed(self) -> bool:
        """Whether `close` was called: nothing is read or written through it any more."""
        return self._closed

    @property
    def storage(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Host and device bytes of each packet, for tests that watch who writes them; not to be written."""
        packets = self._control, self._read, self._selected, self._rows
        names = "control", "read", "selected", "rows"
        return {name: (p.host_bytes, p.device_bytes) for name, p in zip(names, packets, strict=True)}

    def count_verdict(self, num_bytes: int) -> None:
        """Counts one small result that the caller copied to the host and waited for.

        The plan moves no verdict itself: it is whatever the caller decides by, for example whether any row is done.

        Args:
            num_bytes: Its size.
        """
        self._expect("count_verdict", True, "")
        self._count("verdict", num_bytes, synchronizes=True)

    def _count(self, kind: PacketKind, num_bytes: int, *, synchronizes: bool) -> None:
        counts = self._counts[kind]
        counts[0] += 1
        counts[1] += num_bytes
        counts[2] += synchronizes

    def _expect(self, call: str, holds: bool, remedy: str) -> None:
        if self._closed:
            raise RuntimeError(f"HostBridgeTransferPlan.{call}: the plan is closed")
        if not holds:
            raise RuntimeError(f"HostBridgeTransferPlan.{call}: wrong order; {remedy}")

    def write_control(self, ctrl: torch.Tensor) -> None:
        """Moves one control for all rows to the host: one transfer of 4*N*C bytes.

        Args:
            ctrl: (N, C) float32 on the plan's device; not modified.

        Raises:
            TypeError: Not a float32 tensor.
            ValueError: Wrong shape or device.
            RuntimeError: A selected read is pending, or the previous control was not stepped.
        """
        self._expect("write_control", self._pending is None, "call read_selected() first")
        self._expect("write_control", self._stage == "idle", "step() and read() the previous control first")
        got = getattr(ctrl, "dtype", type(ctrl).__name__)
        if got is not torch.float32:
            raise TypeError(f"HostBridgeTransferPlan.write_control: ctrl is {got}, expected torch.float32")
        if ctrl.shape != self._ctrl.shape or ctrl.device != self._ctrl.device:
            raise ValueError(
                f"HostBridgeTransferPlan.write_control: ctrl has shape {tuple(ctrl.shape)} on {ctrl.device}, "
                f"expected {(self._n, self._c)} on {self._ctrl.device}"
            )
        self._ctrl.copy_(ctrl.detach() if ctrl.requires_grad else ctrl)
        self._control.to_host(self._ctrl_host, self._ctrl)
        self._count("control", 4 * self._n * self._c, synchronizes=True)
        self._stage = "controlled"

    def step(self, nsteps: int) -> None:
        """Advances every row by `nsteps` substeps under the written control.

        Raises:
            NonFiniteError: The control is not finite; physics has not moved and a new control may be written.
            RuntimeError: No control was written.
        """
        self._expect("step", self._stage == "controlled", "call write_control(ctrl) first")
        self._stage = "idle"
        self._port.step_tensor(self._ctrl_host, nsteps)
        self._stage = "stepped"

    def read(self) -> torch.Tensor:
        """Reads all declared columns of all rows: one transfer of 4*N*W bytes.

        Returns:
            (N, W) float32 on the plan's device: `packet`, rewritten by the next read.

        Raises:
            RuntimeError: A control is waiting for its step, or a selected read is pending.
        """
        self._expect("read", self._stage != "controlled", "call step(nsteps) first")
        self._expect("read", self._pending is None, "call read_selected() first")
        self._read.wait()
        self._port.pack_rows(self.layout, self._read_host, None)
        self._read.to_device(self._read_host, self.packet)
        self._count("read", 4 * self._n * self.layout.width, synchronizes=False)
        self._stage = "idle"
        return self.packet

    def apply_reset(self, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits one reset: one transfer of 4*k*R + 8*k bytes, R the width of the payload's row.

        Args:
            reset_mask: (N,) bool, true exactly at the payload's rows.
            payload: On the plan's device.

        Raises:
            ResetRejectedError: The payload is not valid; nothing was written.
            RuntimeError: The step is not finished, or a selected read is pending.
        """
        self._expect("apply_reset", self._stage == "idle", "finish the step with read() first")
        self._expect("apply_reset", self._pending is None, "call read_selected() first")
        mask, host, ids = self._rows_to_host("reset", reset_mask, payload)
        self._port.apply_reset(mask, host)
        self._pending = host.env_ids, ids

    def write_rows(self, row_mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state of selected rows mid-episode: one transfer of 4*k*V + 8*k bytes.

        Raises:
            ResetRejectedError: The payload is not valid; nothing was written.
            RuntimeError: The step is not finished, or a selected read is pending.
        """
        self._expect("write_rows", self._stage == "idle", "finish the step with read() first")
        self._expect("write_rows", self._pending is None, "call read_selected() first")
        mask, host, ids = self._rows_to_host("write", row_mask, payload)
        self._port.write_rows(mask, host)
        self._pending = host.env_ids, ids

    def _rows_to_host(
        self, kind: Literal["reset", "write"], mask: torch.Tensor, payload: ResetPayload
    ) -> tuple[torch.Tensor, ResetPayload, torch.Tensor]:
        """Packs ids and all parts into one byte buffer, moves it, and views it as a host payload.

        Returns:
            The mask and the payload as the port takes them, and the packed row ids as the device sees them.
        """
        owner = "HostBridgeTransferPlan." + ("apply_reset" if kind == "reset" else "write_rows")
        k, parts = self._check_rows(owner, mask, payload)
        total = 8 * k + 4 * sum([values.numel() for _, values in parts])
        if total > self._rows.device_bytes.numel():
            raise ResetRejectedError(
                f"{owner}: {total} bytes do not fit the compiled packet; nothing was written"
            )
        ids = self._row_ids[:k]
        host = ResetPayload(self._row_ids_host[:k] if self._rows.staged else ids)
        ids.copy_(payload.env_ids)
        start, model = 8 * k, {}
        for name, values in parts:
            there, here = self._rows.blocks(start, values.shape)
            here.copy_(values.detach() if values.requires_grad else values)
            if name in ("qpos", "qvel", "ctrl"):
                setattr(host, name, there)
            else:
                model[name] = there
            start += 4 * values.numel()
        host.model, known = model, payload.validation
        if self._rows.staged:
            self._rows.to_host(self._rows.host_bytes[:total], self._rows.device_bytes[:total])
            # Compared where it was checked: the backend sees the other side only, and would check it all again.
            known = known.moved_to(host) if known is not None and known.holds(payload) else None
        host.validation = known
        self._count(kind, total, synchronizes=True)
        # The backend compares mask and ids. One on a device is made again from the ids, so that it need not be moved;
        # ids out of range are the backend's to reject.
        return mask if mask.device.type == "cpu" else self._mask_of(host.env_ids), host, ids

    def _mask_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns (N,) bool, true at those of `ids` that exist."""
        if ids.numel():
            low, high = ids.aminmax()
            if int(low) < 0 or int(high) >= self._n:
                ids = ids[(ids >= 0) & (ids < self._n)]
        mask = torch.zeros(self._n, dtype=torch.bool, device=ids.device)
        mask[ids] = True
        return mask

    def _check_rows(
        self, owner: str, mask: torch.Tensor, payload: ResetPayload
    ) -> tuple[int, tuple[tuple[str, torch.Tensor], ...]]:
        """Checks what packing needs, so that no copy converts or moves anything unseen; the backend checks the rest."""
        check_kinds(owner, payload, mask=mask)
        if mask.dtype != torch.bool or mask.shape != (self._n,):
            raise ResetRejectedError(
                f"{owner}: mask is {mask.dtype} {tuple(mask.shape)}, expected torch.bool ({self._n},); "
                "nothing was written"
            )
        ids, parts = payload.env_ids, payload.parts()
        if ids.dtype != torch.int64 or ids.ndim != 1:
            raise ResetRejectedError(
                f"{owner}: env_ids is {ids.dtype} {tuple(ids.shape)}, expected 1-D torch.int64; nothing was written"
            )
        k, here = ids.numel(), self._rows.device_bytes.device
        for name, values in parts:
            if values.dtype != torch.float32 or values.ndim == 0 or len(values) != k:
                raise ResetRejectedError(
                    f"{owner}: {name} is {values.dtype} {tuple(values.shape)}, expected torch.float32 ({k}, ...); "
                    "nothing was written"
                )
        for name, values in (("env_ids", ids), *parts):
            if values.device != here:
                raise ResetRejectedError(
                    f"{owner}: {name} is on {values.device}, expected {here}; nothing was written"
                )
        return k, parts

    def read_selected(self) -> torch.Tensor:
        """Refreshes the rows just written in `packet`: one transfer of 4*k*W bytes.

        Returns:
            (k, W) float32 on the plan's device, in ascending row order; rewritten by the next selected read.

        Raises:
            RuntimeError: No reset or row write is waiting for it.
        """
        self._expect("read_selected", self._pending is not None, "call apply_reset or write_rows first")
        assert self._pending is not None
        (ids_host, ids), self._pending = self._pending, None
        k, width = ids.numel(), self.layout.width
        self._selected.wait()
        rows_host, rows = self._selected.blocks(0, (k, width))
        self._port.pack_rows(self.layout, rows_host, ids_host)
        self._selected.to_device(rows_host, rows)
        self._count("selected_read", 4 * k * width, synchronizes=False)
        self.packet.index_copy_(0, ids, rows)
        return rows

    def close(self) -> None:
        """Drops the packets; idempotent. Every other call raises RuntimeError afterwards."""
        self._closed = True
        self._port = None  # type: ignore[assignment] # the backend must be free to go
