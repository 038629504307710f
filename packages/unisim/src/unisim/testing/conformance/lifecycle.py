"""Promises about the end of a backend."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from unisim.contract import SimBackend
from unisim.packets import HostBridgeSpec
from unisim.reset import ResetPayload
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, expect_raises, promise

__all__ = ["LifecyclePromises"]


class LifecyclePromises(ConformanceBase):
    """`close`."""

    @promise
    def test_closing_twice_is_allowed_and_returns_nothing(self) -> None:
        """close() is part of the contract, idempotent."""
        backend = self.make()
        for _ in range(2):
            call: Callable[[], object] = backend.close
            found = call()
            expect(found is None, f"close() returned {found!r}")

    @promise
    def test_every_call_after_close_raises(self) -> None:
        """Every call after close() raises RuntimeError."""
        backend = self.make()
        ctrl = self.controls(backend, 1)[0]
        mask, payload = self.mask(backend, [1]), self.payload(backend, [1])
        qpos, qvel = self.state(backend, 1)
        sensors = backend.get_tensor_capabilities().sensors
        backend.close()
        for what, call in _calls(backend, ctrl, mask, payload, qpos, qvel, sensors).items():
            error = expect_raises(RuntimeError, call, f"{what} after close()")
            expect(not isinstance(error, NotImplementedError), f"{what} after close() raised {error!r}")

    @promise
    def test_made_and_closed_backends_leave_no_thread_behind(self) -> None:
        """close() frees threads and device memory."""
        self.require(sys.platform.startswith("linux"), "threads are counted in /proc")

        def cycle() -> None:
            backend = self.make_backend(self.num_envs)
            self.run(backend, 1)
            views = backend.get_state_views()
            backend.close()
            del views

        cycle()
        before = _threads()
        for _ in range(5):
            cycle()
        expect(abs(_threads() - before) <= 1, f"{_threads()} threads after 5 backends, {before} before")


def _threads() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))


def _calls(
    backend: SimBackend,
    ctrl: torch.Tensor,
    mask: torch.Tensor,
    payload: ResetPayload,
    qpos: torch.Tensor,
    qvel: torch.Tensor,
    sensors: tuple[str, ...],
) -> dict[str, Callable[[], object]]:
    """Returns every call of the contract that has an argument to make it with."""
    calls: dict[str, Callable[[], object]] = {
        "tensor_execution()": backend.tensor_execution,
        "get_tensor_capabilities()": backend.get_tensor_capabilities,
        "get_runtime_diagnostics()": backend.get_runtime_diagnostics,
        "get_state_views()": backend.get_state_views,
        "step_tensor()": lambda: backend.step_tensor(ctrl),
        "apply_reset()": lambda: backend.apply_reset(mask, payload),
        "write_rows()": lambda: backend.write_rows(mask, payload),
        "set_state_tensor()": lambda: backend.set_state_tensor(payload.env_ids, qpos, qvel),
        "bad_rows()": backend.bad_rows,
        "snapshot()": backend.snapshot,
        "restore()": lambda: backend.restore(None),
        "render()": lambda: backend.render(0),
        "export_model()": lambda: backend.export_model(0),
        "compile_host_bridge_io()": lambda: backend.compile_host_bridge_io(HostBridgeSpec()),
    }
    if sensors:
        calls["get_sensor_view()"] = lambda: backend.get_sensor_view(sensors[0])
    return calls
