"""Reads and writes of a backend whose state lives in host memory: packets of one compiled plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from unilab_core.io import BackendIO, EnvTransferStats
from unisim.packets import spec_of
from unisim.reset import ResetPayload
from unisim.transfer import HostBridgeTransferPlan, PacketCount

__all__ = ["HostBridgeIO"]


class HostBridgeIO(BackendIO):
    """Through one packed plan: a step, or each of its substeps, moves one control packet and one read packet."""

    _plan: HostBridgeTransferPlan | None = None
    _host = PacketCount()
    _histories: Mapping[str, torch.Tensor] = MappingProxyType({})

    @property
    def histories(self) -> Mapping[str, torch.Tensor]:
        """Those of a control step that is made of substeps, (N, T * dim) float32, oldest first."""
        return self._histories

    @property
    def plan(self) -> HostBridgeTransferPlan:
        """The compiled plan.

        Raises:
            RuntimeError: Still recording.
        """
        if self._plan is None:
            raise RuntimeError("BackendIO: the reads are still being recorded; call freeze() first")
        return self._plan

    @property
    def serves_host(self) -> bool:
        """Yes."""
        return True

    @property
    def transfer_stats(self) -> EnvTransferStats:
        """Transfers, bytes and synchronisations by kind."""
        return EnvTransferStats(**vars(self.plan.transfer_stats), host=self._host)

    def _compile(self, keys: Sequence[str]) -> HostBridgeTransferPlan:
        spec = spec_of(keys, device=str(self._device), decimation=self._decimation)
        return self._backend.compile_host_bridge_io(spec)

    def _read_now(self, key: str) -> torch.Tensor:
        plan = self._compile((key,))
        try:
            return plan.read().clone()
        finally:
            plan.close()

    @property
    def width(self) -> int:
        """W, the columns of the read packet."""
        return super().width if self._plan is None else self._plan.layout.width

    def freeze(self, *, by_substep: bool) -> None:
        """Compiles the plan; the columns become views of its packet.

        By substep, a packet holds one substep of each history, and the histories are put together beside it.
        """
        kept = [key for key in self._keys if by_substep and key.startswith("substep:")]
        self._histories = {key: torch.zeros_like(self._keys[key]) for key in kept}
        self._slots, self._slot = self._decimation, -1
        if by_substep:
            self._decimation = 1
        self._plan = self._compile(self.keys)
        self.frozen = self.serves_step = True
        self._changed()
        self._host = PacketCount()
        self._none_bad = torch.zeros(self._backend.num_envs, dtype=torch.bool, device=self._device)
        self._packet = self._plan.read()
        self._keys = {key: self._histories.get(key, self._columns(self._plan, key)) for key in self._keys}

    def _columns(self, plan: HostBridgeTransferPlan, key: str) -> torch.Tensor:
        return self._packet[:, plan.layout.columns(key)]

    def step(self, ctrl: torch.Tensor) -> None:
        """One control transfer, then physics."""
        self.plan.write_control(ctrl)
        self.plan.step(self._decimation)

    def substep(self, ctrl: torch.Tensor) -> None:
        """One control transfer, then one substep."""
        self.plan.write_control(ctrl)
        self.plan.step(1)
        self._slot = (self._slot + 1) % self._slots

    def read(self) -> None:
        """One read transfer."""
        self.plan.read()
        for key, history in self._histories.items():
            now = self._columns(self.plan, key)
            history.view(now.shape[0], self._slots, -1)[:, self._slot] = now
        self._changed()

    def load(self, histories: Mapping[str, torch.Tensor]) -> None:
        """One read transfer, of which the histories are none: they end with the last control step."""
        self.plan.read()
        for key, history in self._histories.items():
            history.copy_(histories[key])
        self._slot = -1  # the next substep is the first of a control step
        self._changed()

    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """One reset transfer and one selected read."""
        self.plan.apply_reset(mask, payload)
        self.plan.read_selected()
        for history in self._histories.values():
            history.masked_fill_(mask.unsqueeze(1), 0.0)
        self._changed()  # a rejected reset has changed nothing

    def write_rows(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """One write transfer and one selected read."""
        self.plan.write_rows(mask, payload)
        self.plan.read_selected()
        self._changed(payload)

    def bad_rows(self) -> torch.Tensor:
        """The engine's word is in host memory, where asking waits for nobody; it moves only if some row is bad."""
        rows = self._backend.bad_rows()
        if self._device.type == "cpu":
            return rows
        return rows.to(self._device) if bool(rows.any()) else self._none_bad

    def count_verdict(self, num_bytes: int) -> None:
        """One verdict."""
        self.plan.count_verdict(num_bytes)

    def count_bad_rows(self) -> None:
        """One transfer of N bytes."""
        self._count_host(self._backend.num_envs)

    def host_columns(self, keys: Sequence[str], label: str) -> dict[str, torch.Tensor]:
        """One transfer for all keys."""
        columns = [self.column(key) for key in keys]
        packed = torch.cat(columns, dim=1)
        self._count_host(packed.nbytes)
        self.host_bytes[label] = packed.nbytes
        self._host_callers.add(label)
        parts = torch.split(packed.to("cpu"), [column.shape[1] for column in columns], dim=1)
        return dict(zip(keys, parts, strict=True))

    def from_host(self, values: torch.Tensor, label: str) -> torch.Tensor:
        """One transfer."""
        self._count_host(values.nbytes)
        self.host_bytes[label] += values.nbytes
        return values.to(self._device)

    def _count_host(self, num_bytes: int) -> None:
        old = self._host
        self._host = PacketCount(old.transfers + 1, old.bytes + num_bytes, old.synchronizations + 1)

    def close(self) -> None:
        """Closes the plan and the backend; idempotent."""
        if self._plan is not None:
            self._plan.close()
        super().close()
