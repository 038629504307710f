"""The one seam between an environment and its backend: declared reads in, controls, writes and resets out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from unilab_core.noted_reads import NotedReads
from unisim.capabilities import TensorExecution
from unisim.contract import SimBackend
from unisim.errors import CapabilityError
from unisim.packets import STATE_FIELDS, spec_of
from unisim.reset import ResetPayload
from unisim.transfer import HostBridgeTransferPlan, PacketCount, TransferStats

__all__ = ["BackendIO", "EnvTransferStats", "make_io"]


@dataclass(frozen=True)
class EnvTransferStats(TransferStats):
    """Counts per packet kind, and of what an environment moves beside its packets."""

    host: PacketCount = field(default_factory=PacketCount)
    """Columns copied for host terms and their results; the flags of rows that the engine calls bad."""


class BackendIO(ABC):
    """Serves columns by key; records keys until `freeze`, which fixes what every step reads.

    Keys are those of a read packet, see `unisim.packets.Block`. While recording, a key's values are those of the state
    the backend is in, read once.

    Attributes:
        frozen: Whether the reads are fixed.
        serves_step: Whether the columns are those that a step reads: from `freeze` until `close`.
        version: Rises whenever columns change: what was computed from them before is stale.
        host_bytes: Who has columns copied to the host, to what one run moves there and back.
    """

    def __init__(self, backend: SimBackend, *, device: torch.device, decimation: int) -> None:
        """Starts recording."""
        self._backend = backend
        self._device = device
        self._decimation = decimation
        self._keys: dict[str, torch.Tensor] = {}
        self._random: torch.Generator | None = None
        self._drawn: dict[str, torch.Tensor] = {}
        self._noting: list[NotedReads] = []
        self.frozen = False
        self.serves_step = False
        self.version = 0
        self.host_bytes: dict[str, int] = {}
        self._host_callers: set[str] = set()
        self._closed = False
        for key in STATE_FIELDS:
            self.column(key)

    @property
    def keys(self) -> tuple[str, ...]:
        """What a step reads, in the order in which it was first read."""
        return tuple(self._keys)

    @property
    def width(self) -> int:
        """W, the columns of everything that a step reads."""
        return sum(values.shape[1] for values in self._keys.values())

    @property
    @abstractmethod
    def serves_host(self) -> bool:
        """Whether columns can be copied to the host."""

    @property
    @abstractmethod
    def transfer_stats(self) -> EnvTransferStats:
        """Transfers, bytes and synchronisations by kind; all zero where tensors are live views."""

    def column(self, key: str) -> torch.Tensor:
        """Returns the columns of `key`, (N, width) float32: a view that the next step rewrites.

        Raises:
            KeyError: The model has no such sensor, body or site; the message lists the nearest.
            RuntimeError: The reads are frozen and this key is not among them.
        """
        values = self._keys.get(key)
        if values is None:
            if self._closed:
                raise RuntimeError(f"{key!r} is read after close: the environment is closed")
            if self.frozen:
                raise RuntimeError(
                    f"{key!r} is read outside the frozen plan: no term read it while reads were recorded, so it must "
                    f"sit behind a branch; declare it on the term with @reads({key!r})"
                )
            values = self._keys[key] = self._read_now(key)
        for noted in self._noting:
            noted.add(key, values if self.serves_host else None)
        return values if self._random is None else self._draw(key, values)

    @contextmanager
    def noting(self) -> Iterator[NotedReads]:
        """Notes what is read while the block lasts.

        Raises:
            RuntimeError: The reads are frozen: what a step reads is known by then.
        """
        if self.frozen:
            raise RuntimeError("reads are noted while an environment is built; they are frozen already")
        noted = NotedReads()
        self._noting.append(noted)
        try:
            yield noted
        finally:
            self._noting = [other for other in self._noting if other is not noted]

    def lend(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Returns `values`, which follow from columns; whoever notes reads finds out whether they stay as they are."""
        for noted in self._noting:
            noted.lend(name, values)
        return values

    def _draw(self, key: str, values: torch.Tensor) -> torch.Tensor:
        if key not in self._drawn:
            assert self._random is not None
            drawn = torch.rand(values.shape, generator=self._random, device=self._device) * 2.0 - 1.0
            if key.startswith(("body:", "site:")):
                drawn[:, 3:7] = torch.nn.functional.normalize(drawn[:, 3:7], dim=-1)
            for start in self._quaternions if key == "qpos" else ():
                drawn[:, start : start + 4] = torch.nn.functional.normalize(
                    drawn[:, start : start + 4], dim=-1
                )
            self._drawn[key] = drawn
        return self._drawn[key]

    @property
    def _quaternions(self) -> list[int]:
        joints = self._backend.model_layout.joints
        return [j.qpos_start + j.qpos_dim - 4 for j in joints if j.kind in ("free", "ball")]

    @contextmanager
    def random_values(self, seed: int) -> Iterator[None]:
        """Serves seeded random finite values, without touching the engine, while the block lasts."""
        self._random = torch.Generator(device=self._device).manual_seed(seed)
        self._drawn = {}
        self.version += 1
        try:
            yield
        finally:
            self._random = None
            self._drawn = {}
            self.version += 1

    @abstractmethod
    def _read_now(self, key: str) -> torch.Tensor:
        """Returns the present values of a key that is being recorded."""

    @abstractmethod
    def freeze(self) -> None:
        """Fixes the recorded reads."""

    @abstractmethod
    def step(self, ctrl: torch.Tensor) -> None:
        """Writes the control, (N, C) float32, and advances physics by one control step."""

    @abstractmethod
    def read(self) -> None:
        """Makes every recorded column show the present state."""

    @abstractmethod
    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits a reset and reads its rows again."""

    @abstractmethod
    def write_rows(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes state mid-episode and reads its rows again."""

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool on the device: rows that the engine calls bad."""
        return self._backend.bad_rows()

    @abstractmethod
    def count_verdict(self, num_bytes: int) -> None:
        """Counts a small result that the caller is about to wait for."""

    @abstractmethod
    def count_bad_rows(self) -> None:
        """Counts the flags of bad rows, which the caller found not to be all false: they were moved to the device."""

    def host_callers(self, call: Callable[[], object]) -> frozenset[str]:
        """Returns whose columns are copied to the host when `call` is made after columns have changed."""
        self.version += 1
        self._host_callers.clear()
        call()
        return frozenset(self._host_callers)

    @abstractmethod
    def host_columns(self, keys: Sequence[str], label: str) -> dict[str, torch.Tensor]:
        """Returns new copies of columns in host memory, by key, (N, width) float32: one transfer for all keys.

        Args:
            keys: Which columns.
            label: Who asks; what it sends back with `from_host` is counted with it.

        Raises:
            CapabilityError: The state lives on a device, from which nothing is copied.
        """

    @abstractmethod
    def from_host(self, values: torch.Tensor, label: str) -> torch.Tensor:
        """Returns host values on the device of the columns: one transfer."""

    def close(self) -> None:
        """Closes the backend; idempotent."""
        self._closed = True
        self.serves_step = False
        self._keys.clear()
        self._backend.close()


class HostBridgeIO(BackendIO):
    """Through one packed plan: a step moves one control packet and one read packet."""

    _plan: HostBridgeTransferPlan | None = None
    _host = PacketCount()

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

    def freeze(self) -> None:
        """Compiles the plan; the columns become views of its packet."""
        self._plan = self._compile(self.keys)
        self.frozen = self.serves_step = True
        self.version += 1
        self._host = PacketCount()
        self._none_bad = torch.zeros(self._backend.num_envs, dtype=torch.bool, device=self._device)
        packet = self._plan.read()
        self._keys = {key: packet[:, self._plan.layout.columns(key)] for key in self._keys}

    def step(self, ctrl: torch.Tensor) -> None:
        """One control transfer, then physics."""
        self.plan.write_control(ctrl)
        self.plan.step(self._decimation)

    def read(self) -> None:
        """One read transfer."""
        self.plan.read()
        self.version += 1

    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """One reset transfer and one selected read."""
        self.plan.apply_reset(mask, payload)
        self.plan.read_selected()
        self.version += 1  # a rejected reset has changed nothing

    def write_rows(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """One write transfer and one selected read."""
        self.plan.write_rows(mask, payload)
        self.plan.read_selected()
        self.version += 1

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


class ResidentIO(BackendIO):
    """Live views on the backend's own device: nothing is transferred."""

    @property
    def serves_host(self) -> bool:
        """No: the state stays on its device."""
        return False

    @property
    def transfer_stats(self) -> EnvTransferStats:
        """Nothing, ever."""
        return EnvTransferStats()

    def _read_now(self, key: str) -> torch.Tensor:
        values = self._backend.get_state_views((key,))[key]
        if values.device != self._device:
            raise CapabilityError(
                f"the state lives on {values.device} and is never copied; the environment was asked for {self._device}"
            )
        return values

    def freeze(self) -> None:
        """The views are live already."""
        self.frozen = self.serves_step = True

    def step(self, ctrl: torch.Tensor) -> None:
        """Advances physics; the views follow."""
        self._backend.step_tensor(ctrl, self._decimation)

    def read(self) -> None:
        """The views are current already."""
        self.version += 1

    def apply_reset(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Commits on the device."""
        self._backend.apply_reset(mask, payload)
        self.version += 1

    def write_rows(self, mask: torch.Tensor, payload: ResetPayload) -> None:
        """Writes on the device."""
        self._backend.write_rows(mask, payload)
        self.version += 1

    def count_verdict(self, num_bytes: int) -> None:
        """Nothing crosses a bridge."""

    def count_bad_rows(self) -> None:
        """Nothing crosses a bridge."""

    def host_columns(self, keys: Sequence[str], label: str) -> dict[str, torch.Tensor]:
        """Nothing is copied to the host."""
        raise CapabilityError(f"the state lives on {self._device} and is never copied to the host")

    def from_host(self, values: torch.Tensor, label: str) -> torch.Tensor:
        """Nothing comes from the host."""
        raise CapabilityError(f"the state lives on {self._device} and takes nothing from the host")


def make_io(backend: SimBackend, *, device: torch.device, decimation: int) -> BackendIO:
    """Returns the seam that fits how the backend executes."""
    kinds: dict[TensorExecution, type[BackendIO]] = {
        TensorExecution.HOST_BRIDGE: HostBridgeIO,
        TensorExecution.DEVICE_RESIDENT: ResidentIO,
    }
    return kinds[backend.tensor_execution()](backend, device=device, decimation=decimation)
