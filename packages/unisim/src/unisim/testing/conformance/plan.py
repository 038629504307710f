"""Promises about the packed plan of a host-bridge backend."""

from __future__ import annotations

import math
from functools import partial

import torch

from unisim.contract import SimBackend
from unisim.errors import CapabilityError, NonFiniteError
from unisim.packets import HostBridgeSpec
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, expect_raises, promise
from unisim.transfer import HostBridgeTransferPlan, TransferStats

__all__ = ["PlanPromises"]

_KINDS = ("control", "read", "reset", "selected_read", "write", "verdict")

Moved = dict[str, tuple[int, int]]


class PlanPromises(ConformanceBase):
    """`compile_host_bridge_io` and what it returns."""

    def _plan(self) -> tuple[SimBackend, HostBridgeTransferPlan]:
        backend = self.make()
        self.require(self.is_host(backend), "DEVICE_RESIDENT has no plan")
        return backend, backend.compile_host_bridge_io(self._spec(backend))

    def _spec(self, backend: SimBackend) -> HostBridgeSpec:
        layout, can = backend.model_layout, backend.get_tensor_capabilities()
        return HostBridgeSpec(
            state=can.state_fields,
            acceleration=can.acceleration_fields,
            sensors=can.sensors,
            bodies=layout.bodies if can.body_reads else (),
            sites=layout.sites if can.body_reads else (),
            substep_sensors=self.declared_substep_sensors,
            decimation=self.decimation,
        )

    def _step(self, backend: SimBackend, plan: HostBridgeTransferPlan, seed: int = 0) -> torch.Tensor:
        plan.write_control(self.controls(backend, 1, seed)[0])
        plan.step(self.decimation)
        return plan.read()

    @promise
    def test_a_step_makes_one_control_and_one_read_transfer(self) -> None:
        """A step in which nobody resets makes exactly one control transfer and one read transfer; bytes:
        control 4*N*C, read 4*N*W."""
        backend, plan = self._plan()
        n, c, w = backend.num_envs, self.control_width(backend), plan.layout.width
        before = plan.transfer_stats
        self._step(backend, plan)
        moved = _difference(plan.transfer_stats, before)
        wanted = {"control": (1, 4 * n * c), "read": (1, 4 * n * w)}
        expect(moved == wanted, f"it made {moved}, expected {wanted}")

    @promise
    def test_a_reset_makes_one_reset_and_one_selected_read(self) -> None:
        """A step with resets adds exactly one reset transfer and one selected read, however many terms,
        fields, sensors and rows take part; bytes: 4*k*R + 8*k and 4*k*W."""
        backend, plan = self._plan()
        layout = backend.model_layout
        for rows in ([1], [0, 2]):
            k = len(rows)
            qpos, qvel = self.state(backend, k)
            fields = {n: layout.fields[n].nominal_tensor() for n in self.declared_fields}
            model = {n: v.expand(k, *v.shape).contiguous() for n, v in fields.items()}
            payload = self.payload(backend, rows, qpos=qpos, qvel=qvel, model=model)
            width = layout.nq + layout.nv + sum(v.numel() for v in fields.values())
            before = plan.transfer_stats
            plan.apply_reset(self.mask(backend, rows), payload)
            plan.read_selected()
            moved = _difference(plan.transfer_stats, before)
            wanted = {
                "reset": (1, 4 * k * width + 8 * k),
                "selected_read": (1, 4 * k * plan.layout.width),
            }
            expect(moved == wanted, f"a reset of {k} rows made {moved}, expected {wanted}")

    @promise
    def test_a_row_write_makes_one_write_and_one_selected_read(self) -> None:
        """A step whose events write state adds exactly one write transfer and one selected read; bytes: 4*k*V
        + 8*k and 4*k*W."""
        backend, plan = self._plan()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        payload = self.payload(backend, [0, 2], qvel=self.state(backend, 2)[1])
        before = plan.transfer_stats
        plan.write_rows(self.mask(backend, [0, 2]), payload)
        plan.read_selected()
        moved = _difference(plan.transfer_stats, before)
        width = backend.model_layout.nv
        wanted = {"write": (1, 4 * 2 * width + 8 * 2), "selected_read": (1, 4 * 2 * plan.layout.width)}
        expect(moved == wanted, f"it made {moved}, expected {wanted}")

    @promise
    def test_a_verdict_is_counted_apart(self) -> None:
        """Verdict reads are a kind of their own."""
        _, plan = self._plan()
        before = plan.transfer_stats
        plan.count_verdict(12)
        moved = _difference(plan.transfer_stats, before)
        expect(moved == {"verdict": (1, 12)}, f"it made {moved}")

    @promise
    def test_the_packet_stays_where_it_is(self) -> None:
        """Storage is allocated once; addresses never change."""
        backend, plan = self._plan()
        addresses = set()
        for i in range(3):
            addresses.add(self._step(backend, plan, seed=i).data_ptr())
            plan.apply_reset(self.mask(backend, [1]), self.payload(backend, [1]))
            plan.read_selected()
            addresses.add(plan.packet.data_ptr())
        expect(len(addresses) == 1, f"the read packet had {len(addresses)} addresses")

    @promise
    def test_the_packet_holds_what_the_views_say(self) -> None:
        """One read packet (N,W) whose columns are the union of all declared reads."""
        backend, plan = self._plan()
        self._step(backend, plan)
        for key, values in self.reads(backend).items():
            columns = plan.packet[:, plan.layout.columns(key)]
            expect(torch.equal(columns, values), f"the columns of {key} are not its view")
        before = plan.packet.clone()
        plan.apply_reset(self.mask(backend, [1]), self.payload(backend, [1]))
        rows = plan.read_selected()
        expect(torch.equal(plan.packet[1:2], rows), "a selected read did not refresh its row in the packet")
        others = [i for i in range(backend.num_envs) if i != 1]
        expect(torch.equal(plan.packet[others], before[others]), "a selected read changed another row")
        expect(torch.equal(plan.read()[1:2], rows), "a selected read and a read differ")

    @promise
    def test_a_call_out_of_order_raises(self) -> None:
        """Wrong order -> RuntimeError."""
        backend, plan = self._plan()
        ctrl = self.controls(backend, 1)[0]
        expect_raises(RuntimeError, partial(plan.step, 1), "step() without a control")
        expect_raises(RuntimeError, plan.read_selected, "read_selected() without a reset")
        plan.write_control(ctrl)
        expect_raises(RuntimeError, plan.read, "read() of a control that was not stepped")
        plan.step(self.decimation)
        plan.read()
        plan.apply_reset(self.mask(backend, [1]), self.payload(backend, [1]))
        expect_raises(
            RuntimeError, partial(plan.write_control, ctrl), "write_control() before read_selected()"
        )
        plan.close()
        expect_raises(RuntimeError, plan.read_selected, "read_selected() of a closed plan")

    @promise
    def test_a_non_finite_control_does_not_pass_the_plan(self) -> None:
        """A non-finite control is rejected on the host before physics moves."""
        backend, plan = self._plan()
        self.require(self.control_width(backend) > 0, "there is no control")
        before = self.reads(backend)
        ctrl = self.controls(backend, 1)[0]
        ctrl[1, 0] = math.nan
        plan.write_control(ctrl)
        expect_raises(NonFiniteError, partial(plan.step, self.decimation), "step() with a control of nan")
        self.expect_same(self.reads(backend), before, "physics moved", exact=True)

    @promise
    def test_a_plan_for_a_device_that_is_not_accepted_is_a_capability_error(self) -> None:
        """compile_host_bridge_io(spec): CapabilityError for what it cannot read."""
        backend, _ = self._plan()
        call = partial(backend.compile_host_bridge_io, HostBridgeSpec(device="meta"))
        expect_raises(CapabilityError, call, "a plan for device 'meta'")


def _difference(now: TransferStats, before: TransferStats) -> Moved:
    moved = {}
    for kind in _KINDS:
        new, old = getattr(now, kind), getattr(before, kind)
        if new != old:
            moved[kind] = (new.transfers - old.transfers, new.bytes - old.bytes)
    return moved
