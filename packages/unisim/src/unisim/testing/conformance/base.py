"""What the promises share: the hooks of a subclass, and states, controls and reads of any model."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from unisim.capabilities import TensorCapabilities, TensorExecution
from unisim.contract import SimBackend
from unisim.model_layout import JointLayout
from unisim.reset import ResetPayload
from unisim.testing.conformance.evidence import Evidence, evidence_file, expect, not_applicable

__all__ = ["ConformanceBase"]

Reads = dict[str, torch.Tensor]


class ConformanceBase:
    """Hooks and settings; a subclass gives `make_backend` and states what it declared."""

    num_envs: ClassVar[int] = 4
    """N of most tests, at least 3."""
    decimation: ClassVar[int] = 4
    """Substeps per control step; as declared to the backend."""
    declared_fields: ClassVar[tuple[str, ...]] = ()
    """Model fields that `make_backend` declares."""
    declared_wrench_bodies: ClassVar[tuple[str, ...]] = ()
    """Wrench bodies that `make_backend` declares."""
    declared_substep_sensors: ClassVar[tuple[str, ...]] = ()
    """Substep sensors that `make_backend` declares."""
    tolerance: ClassVar[float] = 0.0
    """How far equal calls of two backends may differ; 0: not by a bit."""
    backend_name: ClassVar[str] = ""
    """Name of the backend's entry point; evidence that a package ships (`unisim.evidence`) needs it."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Distributions beside unisim and torch whose versions the evidence records, for example the engine's."""
    evidence_path: ClassVar[str | Path | None] = None
    """File of the evidence (`*.json`) or a folder for it; None: the environment variable
    `UNISIM_CONFORMANCE_EVIDENCE`, else a temporary folder."""
    evidence: ClassVar[Evidence]

    # ------------------------------------------------------------------ what a subclass gives

    def make_backend(self, num_envs: int) -> SimBackend:
        """Returns a new backend of `num_envs` rows of one model, every call alike."""
        raise NotImplementedError("give make_backend(self, num_envs)")

    def make_backend_with(self, num_envs: int, model: Mapping[str, torch.Tensor]) -> SimBackend | None:
        """Returns a backend whose own model has these values of fields, or None if that cannot be made."""
        return None

    def make_backend_that_goes_bad(self, num_envs: int, row: int) -> SimBackend | None:
        """Returns a backend whose `row`, and no other, turns bad in the next step, or None if that cannot be made."""
        return None

    # ------------------------------------------------------------------ fixtures

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _evidence(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        """Collects outcomes and writes them when the last test of the class is through."""
        cls.evidence = Evidence()
        yield
        folder = tmp_path_factory.mktemp("conformance")
        cls.evidence.write(evidence_file(cls.__name__, cls.evidence_path, folder), cls()._head())

    def _head(self) -> dict[str, object]:
        head: dict[str, object] = {"suite": type(self).__name__, "name": self.backend_name}
        backend = None
        try:
            backend = self.make_backend(self.num_envs)
            kind = type(backend)
            head["backend"] = f"{kind.__module__}.{kind.__qualname__}"
            head["device"] = self.device(backend).type
            head["capabilities"] = asdict(backend.get_tensor_capabilities())
        except Exception as error:  # noqa: BLE001 - the evidence of a backend that cannot be made says so
            head["problem"] = f"{type(error).__name__}: {error}"
        finally:
            if backend is not None:
                with contextlib.suppress(Exception):
                    backend.close()
        names = ("unisim", "torch", *self.distributions)
        head["versions"] = {"python": platform.python_version()} | {
            name: importlib.metadata.version(name) for name in names
        }
        head["settings"] = {
            name: getattr(self, name)
            for name in ("num_envs", "decimation", "tolerance")
            if hasattr(self, name)
        }
        return head

    @pytest.fixture(autouse=True)
    def _closing(self) -> Iterator[None]:
        """Closes what a test made; whether closing works is a promise of its own."""
        self._made: list[SimBackend] = []
        yield
        for backend in self._made:
            with contextlib.suppress(Exception):
                backend.close()

    # ------------------------------------------------------------------ helpers

    def make(self, num_envs: int | None = None) -> SimBackend:
        """Returns a backend that the test need not close."""
        return self.keep(self.make_backend(self.num_envs if num_envs is None else num_envs))

    def keep(self, backend: SimBackend) -> SimBackend:
        """Has a backend closed after the test."""
        self._made.append(backend)
        return backend

    def capabilities(self, backend: SimBackend) -> TensorCapabilities:
        """Returns them."""
        return backend.get_tensor_capabilities()

    def require(self, holds: bool, reason: str) -> None:
        """Ends the test as not applicable unless `holds`."""
        if not holds:
            not_applicable(reason)

    def is_host(self, backend: SimBackend) -> bool:
        """Whether the backend is HOST_BRIDGE."""
        return backend.tensor_execution() is TensorExecution.HOST_BRIDGE

    def device(self, backend: SimBackend) -> torch.device:
        """Returns where the backend's tensors live."""
        return torch.device("cpu") if self.is_host(backend) else backend.get_state_views()["qpos"].device

    def control_width(self, backend: SimBackend) -> int:
        """Returns C."""
        return backend.model_layout.nu + 6 * len(self.declared_wrench_bodies)

    def controls(self, backend: SimBackend, steps: int, seed: int = 0) -> list[torch.Tensor]:
        """Returns `steps` random controls (N, C) inside the ranges, with wrenches of up to 0.1 N and N m."""
        generator = torch.Generator().manual_seed(seed)
        low = torch.tensor([max(a.ctrl_range[0], -1.0) for a in backend.model_layout.actuators])
        high = torch.tensor([min(a.ctrl_range[1], 1.0) for a in backend.model_layout.actuators])
        n, nu = backend.num_envs, backend.model_layout.nu
        made = []
        for _ in range(steps):
            ctrl = 0.2 * torch.rand(n, self.control_width(backend), generator=generator) - 0.1
            ctrl[:, :nu] = low + (high - low) * torch.rand(n, nu, generator=generator)
            made.append(ctrl.to(self.device(backend)))
        return made

    def run(self, backend: SimBackend, steps: int, seed: int = 0) -> None:
        """Makes `steps` control steps under random controls."""
        for ctrl in self.controls(backend, steps, seed):
            backend.step_tensor(ctrl, self.decimation)

    def state(self, backend: SimBackend, rows: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns random valid states near the default: (rows, Q) and (rows, V) float32."""
        generator = torch.Generator().manual_seed(seed)
        layout = backend.model_layout
        qpos = torch.tensor(layout.default_qpos).expand(rows, -1).clone()
        for joint in layout.joints:
            self._place(qpos, joint, generator)
        qvel = torch.rand(rows, layout.nv, generator=generator) - 0.5
        return qpos.to(self.device(backend)), qvel.to(self.device(backend))

    def _place(self, qpos: torch.Tensor, joint: JointLayout, generator: torch.Generator) -> None:
        columns = slice(joint.qpos_start, joint.qpos_start + joint.qpos_dim)
        noise = 0.2 * torch.rand(qpos.shape[0], joint.qpos_dim, generator=generator) - 0.1
        if joint.qpos_dim == 1:
            low, high = joint.limits
            scale = min(1.0, 0.5 * (high - low)) if math.isfinite(high - low) else 1.0
            qpos[:, columns] = (qpos[:, columns] + scale * noise).clamp(low, high)
            return
        qpos[:, columns] += noise
        stop = joint.qpos_start + joint.qpos_dim
        quaternion = qpos[:, stop - 4 : stop]
        qpos[:, stop - 4 : stop] = quaternion / quaternion.norm(dim=1, keepdim=True)

    def keys(self, backend: SimBackend) -> list[str]:
        """Returns the keys of everything that can be read."""
        layout, can = backend.model_layout, backend.get_tensor_capabilities()
        frames = [f"body:{n}" for n in layout.bodies] + [f"site:{n}" for n in layout.sites]
        return [
            *can.state_fields,
            *can.acceleration_fields,
            *(f"substep:{n}" for n in self.declared_substep_sensors),
            *(frames if can.body_reads else []),
        ]

    def reads(self, backend: SimBackend) -> Reads:
        """Returns copies of everything that can be read, by key."""
        views = {key: values.clone() for key, values in backend.get_state_views(self.keys(backend)).items()}
        names = backend.get_tensor_capabilities().sensors
        return views | {f"sensor:{name}": backend.get_sensor_view(name).clone() for name in names}

    def sensors(self, backend: SimBackend, *stages: str) -> list[str]:
        """Returns the names of sensors of these stages."""
        return [sensor.name for sensor in backend.model_layout.sensors if sensor.stage in stages]

    def held(self, backend: SimBackend) -> set[str]:
        """Returns the keys that describe the last integrated substep, not the present state."""
        substep = {f"substep:{name}" for name in self.declared_substep_sensors}
        fields = set(backend.get_tensor_capabilities().acceleration_fields)
        return substep | fields | {f"sensor:{name}" for name in self.sensors(backend, "acceleration")}

    def payload(
        self,
        backend: SimBackend,
        rows: Sequence[int],
        *,
        qpos: torch.Tensor | None = None,
        qvel: torch.Tensor | None = None,
        ctrl: torch.Tensor | None = None,
        model: Mapping[str, torch.Tensor] | None = None,
    ) -> ResetPayload:
        """Returns a payload of rows."""
        ids = torch.tensor(list(rows), device=self.device(backend), dtype=torch.int64)
        return ResetPayload(ids, qpos, qvel, ctrl, model or {})

    def mask(self, backend: SimBackend, rows: Sequence[int]) -> torch.Tensor:
        """Returns (N,) bool, true at `rows`."""
        mask = torch.zeros(backend.num_envs, dtype=torch.bool, device=self.device(backend))
        mask[list(rows)] = True
        return mask

    def reset(self, backend: SimBackend, rows: Sequence[int], payload: ResetPayload | None = None) -> None:
        """Resets rows, by default to the default state."""
        backend.apply_reset(self.mask(backend, rows), payload or self.payload(backend, rows))

    def expect_same(
        self,
        found: Reads,
        wanted: Reads,
        what: str,
        *,
        rows: Sequence[int] | None = None,
        exact: bool = False,
    ) -> None:
        """Fails unless reads agree, NaN included, to the bit or, of two backends, to `tolerance`."""
        for key, values in wanted.items():
            got, want = (v if rows is None else v[list(rows)] for v in (found[key], values))
            same = torch.allclose(got, want, rtol=0.0, atol=0.0 if exact else self.tolerance, equal_nan=True)
            worst = float((got - want).abs().nan_to_num(math.inf).max()) if got.numel() else 0.0
            expect(same, f"{what}: {key} differs by {worst:.3g}")

    def expect_rejected(
        self, backend: SimBackend, call: Callable[[], object], kind: type[Exception], what: str
    ) -> None:
        """Fails unless `call` raises `kind` and not a bit of any read has changed."""
        before = self.reads(backend)
        try:
            call()
        except kind:
            self.expect_same(self.reads(backend), before, f"{what} was refused, but not before", exact=True)
            return
        except Exception as error:
            raise AssertionError(
                f"{what} raised {type(error).__name__}: {error}; expected {kind.__name__}"
            ) from error
        raise AssertionError(f"{what} was accepted, expected {kind.__name__}")
