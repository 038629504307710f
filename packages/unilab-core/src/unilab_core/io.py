"""The one seam between an environment and its backend: declared reads in, controls and resets out."""

from __future__ import annotations

import torch

from unilab_core.errors import CapabilityError
from unisim.capabilities import TensorExecution
from unisim.contract import SimBackend
from unisim.packets import HostBridgeSpec
from unisim.reset import ResetPayload
from unisim.transfer import HostBridgeTransferPlan, TransferStats

__all__ = ["BackendIO"]

_STATE = ("qpos", "qvel", "ctrl")
_KINDS = ("sensor", "body", "site")


class BackendIO:
    """Serves columns by key; records keys until `freeze`, afterwards every step moves one packet of them.

    Keys are `"qpos"`, `"qvel"`, `"ctrl"`, `"sensor:<name>"`, `"body:<name>"`, `"site:<name>"`. While recording, a
    key's values are those of the state the backend is in, read once.
    """

    def __init__(self, backend: SimBackend, *, device: torch.device, decimation: int) -> None:
        """Starts recording.

        Raises:
            CapabilityError: The backend is DEVICE_RESIDENT, which this version cannot drive.
        """
        if backend.tensor_execution() is not TensorExecution.HOST_BRIDGE:
            raise CapabilityError("unilab-core in this version drives HOST_BRIDGE backends only")
        self._backend = backend
        self._device = device
        self._decimation = decimation
        self._keys: dict[str, torch.Tensor] = {}
        self._plan: HostBridgeTransferPlan | None = None
        for key in _STATE:
            self.column(key)

    @property
    def frozen(self) -> bool:
        """Whether the reads are fixed and the plan compiled."""
        return self._plan is not None

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
    def transfer_stats(self) -> TransferStats:
        """Transfers, bytes and synchronisations by packet kind."""
        return self.plan.transfer_stats

    def column(self, key: str) -> torch.Tensor:
        """Returns the columns of `key`, (N, width) float32: a view that the next step rewrites.

        Raises:
            KeyError: The model has no such sensor, body or site; the message lists the nearest.
            RuntimeError: The reads are frozen and this key is not among them.
        """
        values = self._keys.get(key)
        if values is None:
            if self.frozen:
                raise RuntimeError(
                    f"{key!r} is read outside the frozen plan: no term read it while reads were recorded, so it must "
                    f"sit behind a branch; declare it on the term with @reads({key!r})"
                )
            values = self._keys[key] = self._read_now(key)
        return values

    def _read_now(self, key: str) -> torch.Tensor:
        plan = self._backend.compile_host_bridge_io(self._spec([key]))
        try:
            return plan.read().clone()
        finally:
            plan.close()

    def _spec(self, keys: list[str]) -> HostBridgeSpec:
        names = {
            kind: tuple(k.partition(":")[2] for k in keys if k.startswith(f"{kind}:")) for kind in _KINDS
        }
        return HostBridgeSpec(
            state=tuple(key for key in keys if key in _STATE),
            sensors=names["sensor"],
            bodies=names["body"],
            sites=names["site"],
            device=str(self._device),
            decimation=self._decimation,
        )

    def freeze(self) -> None:
        """Fixes the recorded reads and compiles the plan; the columns become views of its packet."""
        self._plan = self._backend.compile_host_bridge_io(self._spec(list(self._keys)))
        packet = self._plan.read()
        self._keys = {key: packet[:, self._plan.layout.columns(key)] for key in self._keys}

    def step(self, ctrl: torch.Tensor) -> None:
        """Writes the control, (N, A) float32, and advances physics by one control step."""
        self.plan.write_control(ctrl)
        self.plan.step(self._decimation)

    def read(self) -> None:
        """Reads every recorded column of every row."""
        self.plan.read()

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool on the device: rows that the engine calls bad."""
        return self._backend.bad_rows().to(self._device)

    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits a reset and reads its rows again."""
        self.plan.apply_reset(mask, payload)
        self.plan.read_selected()

    def close(self) -> None:
        """Closes the plan and the backend; idempotent."""
        self._keys.clear()
        if self._plan is not None:
            self._plan.close()
        self._backend.close()
