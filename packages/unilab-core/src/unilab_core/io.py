"""The one seam between an environment and its backend: declared reads in, controls, writes and resets out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from unilab_core.noted_reads import NotedReads
from unisim.contract import SimBackend
from unisim.packets import STATE_FIELDS
from unisim.reset import ResetPayload
from unisim.transfer import PacketCount, TransferStats

__all__ = ["BackendIO", "EnvTransferStats"]


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
        pose_version: The version since which positions and model fields have been the same, and whatever follows from
            them alone.
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
        self.version = self.pose_version = 0
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
        self._changed()
        try:
            yield
        finally:
            self._random = None
            self._drawn = {}
            self._changed()

    def _changed(self, written: ResetPayload | None = None) -> None:
        """Columns have changed: all of them, or those that follow from what was `written` to rows."""
        self.version += 1
        if written is None or written.qpos is not None or written.model:
            self.pose_version = self.version

    @abstractmethod
    def _read_now(self, key: str) -> torch.Tensor:
        """Returns the present values of a key that is being recorded."""

    @abstractmethod
    def freeze(self, *, by_substep: bool) -> None:
        """Fixes the recorded reads, and whether a control step is made of `substep` and `read`, again and again."""

    @abstractmethod
    def step(self, ctrl: torch.Tensor) -> None:
        """Writes the control, (N, C) float32, and advances physics by one control step."""

    @abstractmethod
    def substep(self, ctrl: torch.Tensor) -> None:
        """Writes the control, (N, C) float32, and advances physics by one substep; a `read` must follow."""

    @abstractmethod
    def read(self) -> None:
        """Makes every recorded column show the present state."""

    @property
    def histories(self) -> Mapping[str, torch.Tensor]:
        """Substep histories that are put together beside the backend, whose snapshots do not hold them, by key."""
        return {}

    def load(self, histories: Mapping[str, torch.Tensor]) -> None:
        """Makes every recorded column show the state that the backend was given, and puts back its `histories`."""
        self.read()

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
        self._changed()
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
