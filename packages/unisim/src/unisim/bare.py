"""The engine alone, told again what a backend was told: the measure of what a step costs above it.

A `BareEngine` repeats recorded calls of `step_tensor`, `apply_reset` and `write_rows` with as little beside them as its
engine allows. A package offers one by an entry point of group `unisim.bare`, under the name of its backend; where there
is none, a second backend of that name is its own measure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from unisim.errors import CapabilityError
from unisim.factory import make_backend
from unisim.reset import ResetPayload

if TYPE_CHECKING:
    from unisim.contract import Declared, SimBackend
    from unisim.scene import SceneCfg, SimCfg

__all__ = ["BareEngine", "EngineCall", "Freshness", "RowsCall", "StepCall", "make_bare"]

GROUP = "unisim.bare"

Freshness = Literal["fresh", "plain"]
"""What a call leaves: position- and velocity-stage values current, as a backend does, or whatever its step leaves."""


@dataclass(frozen=True)
class StepCall:
    """A recorded `step_tensor`: (N, C) float32 control and the number of substeps."""

    ctrl: torch.Tensor
    nsteps: int


@dataclass(frozen=True)
class RowsCall:
    """A recorded `apply_reset` (`"reset"`) or `write_rows` (`"write"`): (N,) bool and what the rows got."""

    kind: Literal["reset", "write"]
    mask: torch.Tensor
    payload: ResetPayload


EngineCall = StepCall | RowsCall


class BareEngine(ABC):
    """N rows of an engine that repeat what a backend did.

    Attributes:
        label: What it is, in a few words, for whoever reads a measurement.
        exact: Whether it must come out to the bit as the backend did. If not, the engine itself gives other bits from
            run to run.
    """

    label: str
    exact: bool

    @abstractmethod
    def load(self, snapshot: Any) -> None:  # noqa: ANN401 - opaque
        """Goes on from where a backend of the same scene and rows was when it made `snapshot`.

        Raises:
            ValueError: The snapshot is of another model, number of rows or set of declared fields.
        """

    @abstractmethod
    def prepare(self, calls: Sequence[EngineCall]) -> Callable[[], None]:
        """Returns a function that makes these calls; whatever can be done beforehand is done here."""

    @abstractmethod
    def difference(self, snapshot: Any) -> str:  # noqa: ANN401 - opaque
        """Returns where it differs from a backend, or nothing where it is the same to the bit.

        Compared are the state and, as far as the snapshot holds it, what `freshness` says that a step leaves current.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees what the engine holds; idempotent."""


class _SecondBackend(BareEngine):
    """A backend of its own: nothing packs, reads, rewards or observes."""

    def __init__(self, name: str, backend: SimBackend, device: str) -> None:
        self.label = f"a second {name} backend, its step_tensor, apply_reset and write_rows alone"
        self.exact = torch.device(device).type == "cpu"
        self._backend = backend

    def load(self, snapshot: Any) -> None:  # noqa: ANN401 - opaque
        self._backend.restore(snapshot)

    def prepare(self, calls: Sequence[EngineCall]) -> Callable[[], None]:
        backend = self._backend
        rows = {"reset": backend.apply_reset, "write": backend.write_rows}

        def run() -> None:
            for call in calls:
                if isinstance(call, StepCall):
                    backend.step_tensor(call.ctrl, call.nsteps)
                else:
                    rows[call.kind](call.mask, call.payload)

        return run

    def difference(self, snapshot: Any) -> str:  # noqa: ANN401 - opaque
        own = self._backend.snapshot()
        for key, value in own.items():
            if (place := _first_difference(value, snapshot[key])) is not None:
                return f"{key!r}, first at {place}"
        return ""

    def close(self) -> None:
        self._backend.close()


def _first_difference(a: torch.Tensor, b: torch.Tensor) -> list[int] | None:
    """Returns the index of the first value in which two tensors differ, or None; NaN is the same as NaN."""
    if a.shape != b.shape:
        return []
    places = ((a != b) & ~((a != a) & (b != b))).nonzero()
    return None if len(places) == 0 else list(places[0].tolist())


def make_bare(
    name: str,
    scene: SceneCfg,
    sim: SimCfg,
    *,
    num_envs: int,
    device: str,
    declared: Declared,
    freshness: Freshness = "fresh",
    reads: Sequence[str] | None = None,
) -> BareEngine | None:
    """Returns the engine of a backend alone, or None: that backend has none that leaves `freshness`.

    Args:
        name: Of a backend.
        scene: What is simulated.
        sim: Numerical settings; threads and persistence are the backend's.
        num_envs: N.
        device: Torch device of the backend's tensors.
        declared: What the backend was told that it would write or record.
        freshness: What a step leaves current.
        reads: Keys of what the plan of the backend reads, for it may leave undone what none of them follows from; None:
            it does nothing of the kind.

    Raises:
        ValueError: No such freshness.
        CapabilityError: No such backend, or its engine is not there.
        ConfigError: The scene does not compile.
        TypeError: The entry point makes no `BareEngine`.
    """
    if freshness not in get_args(Freshness):
        raise ValueError(f"make_bare: freshness is {freshness!r}, expected one of {get_args(Freshness)}")
    for entry in entry_points(group=GROUP, name=name):
        make = entry.load()
        bare = make(scene, sim, num_envs=num_envs, declared=declared, freshness=freshness, reads=reads)
        if not isinstance(bare, BareEngine):
            raise TypeError(
                f"entry point {name!r} of {GROUP!r}: {entry.value} makes a {type(bare).__name__}, "
                "expected a BareEngine"
            )
        return bare
    if freshness == "plain":
        return None
    backend = make_backend(name, scene, sim, num_envs=num_envs, device=device, declared=declared)
    if not backend.get_tensor_capabilities().snapshots:
        backend.close()
        raise CapabilityError(f"backend {name!r} has no snapshots, from which a second one could go on")
    return _SecondBackend(name, backend, device)
