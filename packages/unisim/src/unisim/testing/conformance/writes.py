"""Promises about row writes, full states, snapshots, bad rows and wrenches."""

from __future__ import annotations

import pickle
from functools import partial

import torch

from unisim.errors import CapabilityError, ResetRejectedError
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, expect_raises, not_applicable, promise
from unisim.testing.conformance.samples import invalid_payloads

__all__ = ["WritePromises"]


class WritePromises(ConformanceBase):
    """`write_rows`, `set_state_tensor`, `snapshot`, `restore`, `bad_rows`, wrench columns."""

    @promise
    def test_a_row_write_writes_what_is_given_and_keeps_the_rest(self) -> None:
        """write_rows(row_mask, payload): writes what is given, keeps time, control, actuator state and warm
        start."""
        backend = self.make()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        self.run(backend, 5)
        before, qvel = self.reads(backend), self.state(backend, 2)[1]
        backend.write_rows(self.mask(backend, [0, 2]), self.payload(backend, [0, 2], qvel=qvel))
        after = self.reads(backend)
        expect(torch.equal(after["qvel"][[0, 2]], qvel), "qvel is not what was given")
        expect(torch.equal(after["qpos"], before["qpos"]), "qpos was not given, and changed")
        expect(torch.equal(after["ctrl"], before["ctrl"]), "ctrl was not given, and changed")
        others = [i for i in range(backend.num_envs) if i not in (0, 2)]
        self.expect_same(after, before, "an unselected row changed", rows=others, exact=True)

    @promise
    def test_a_write_of_nothing_changes_no_later_step(self) -> None:
        """write_rows(row_mask, payload): writes what is given, keeps time, control, actuator state and warm
        start."""
        backend, twin = self.make(), self.make()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        for each in (backend, twin):
            self.run(each, 5)
        for i in range(10):
            backend.write_rows(self.mask(backend, [0, 2]), self.payload(backend, [0, 2]))
            for each in (backend, twin):
                self.run(each, 1, seed=30 + i)
            self.expect_same(self.reads(backend), self.reads(twin), f"step {i + 1}")

    @promise
    def test_a_row_write_refreshes_position_and_velocity_reads(self) -> None:
        """write_rows(row_mask, payload): refreshes reads."""
        backend, new = self.make(), self.make()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        self.run(backend, 5)
        qpos, qvel = self.state(backend, 1)
        backend.write_rows(self.mask(backend, [1]), self.payload(backend, [1], qpos=qpos, qvel=qvel))
        self.reset(new, [1], self.payload(new, [1], qpos=qpos, qvel=qvel))
        skipped = {*self.held(backend), "ctrl"}
        wanted = {key: values for key, values in self.reads(new).items() if key not in skipped}
        # A sensor of velocity stage may depend on time or actuators; what does is not comparable with a new backend.
        again = self.reads(backend)
        self.expect_same(
            {key: again[key] for key in wanted if not key.startswith("sensor:")},
            {key: values for key, values in wanted.items() if not key.startswith("sensor:")},
            "written and reset to one state",
            rows=[1],
        )
        backend.write_rows(self.mask(backend, [1]), self.payload(backend, [1]))
        self.expect_same(self.reads(backend), again, "a second refresh found something to do")

    @promise
    def test_a_row_write_that_is_not_valid_is_rejected_and_nothing_is_written(self) -> None:
        """Values are checked before the commit; ResetRejectedError promises that nothing was written."""
        backend = self.make()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        self.run(backend, 2)
        for what, payload in invalid_payloads(self, backend).items():
            write = partial(backend.write_rows, self.mask(backend, [1]), payload)
            self.expect_rejected(backend, write, ResetRejectedError, f"a row write with {what}")

    @promise
    def test_a_full_state_is_written_to_its_rows_only(self) -> None:
        """set_state_tensor(env_ids, qpos, qvel): cold-path full-state write."""
        backend = self.make()
        self.run(backend, 3)
        before = self.reads(backend)
        qpos, qvel = self.state(backend, 2)
        backend.set_state_tensor(torch.tensor([1, 2], device=qpos.device), qpos, qvel)
        after = self.reads(backend)
        expect(torch.equal(after["qpos"][[1, 2]], qpos), "qpos is not what was given")
        expect(torch.equal(after["qvel"][[1, 2]], qvel), "qvel is not what was given")
        others = [i for i in range(backend.num_envs) if i not in (1, 2)]
        self.expect_same(after, before, "an unselected row changed", rows=others, exact=True)

    @promise
    def test_a_restored_snapshot_continues_as_the_original_also_in_a_new_backend(self) -> None:
        """snapshot() / restore(snapshot): everything, engine precision."""
        backend, other = self.make(), self.make()
        self.require(backend.get_tensor_capabilities().snapshots, "snapshots are not offered")
        self.run(backend, 6)
        self.reset(backend, [1], self.payload(backend, [1], qpos=self.state(backend, 1)[0]))
        saved = pickle.dumps(backend.snapshot())
        reads = self.reads(backend)
        self.run(other, 3, seed=4)
        other.restore(pickle.loads(saved))
        self.expect_same(self.reads(other), reads, "right after restore")
        for i in range(10):
            for each in (backend, other):
                self.run(each, 1, seed=40 + i)
            self.expect_same(self.reads(other), self.reads(backend), f"step {i + 1} after restore")

    @promise
    def test_a_foreign_snapshot_is_refused_and_nothing_is_written(self) -> None:
        """snapshot() / restore(snapshot): everything, engine precision."""
        backend, larger = self.make(), self.make(self.num_envs + 1)
        self.require(backend.get_tensor_capabilities().snapshots, "snapshots are not offered")
        self.run(backend, 3)
        foreign = partial(backend.restore, larger.snapshot())
        self.expect_rejected(backend, foreign, ValueError, "a snapshot of more rows")
        self.expect_rejected(backend, partial(backend.restore, 3), TypeError, "a number")

    @promise
    def test_no_row_is_bad_while_all_is_well(self) -> None:
        """bad_rows() -> (N,) bool."""
        backend = self.make()
        for steps in (0, 5):
            self.run(backend, steps)
            bad = backend.bad_rows()
            shape = (backend.num_envs,)
            expect(bad.dtype == torch.bool and tuple(bad.shape) == shape, f"{bad.dtype} {tuple(bad.shape)}")
            expect(not bad.any(), f"rows {bad.nonzero().flatten().tolist()} are bad after {steps} good steps")

    @promise
    def test_a_bad_row_is_named_until_its_reset(self) -> None:
        """bad_rows() -> (N,) bool: non-finite state, or an engine warning since that row's last reset."""
        made = self.make_backend_that_goes_bad(self.num_envs, 1)
        if made is None:
            not_applicable("make_backend_that_goes_bad() makes none")
        backend = self.keep(made)
        expected = [i == 1 for i in range(backend.num_envs)]
        self.run(backend, 1)
        expect(backend.bad_rows().tolist() == expected, f"bad_rows() is {backend.bad_rows().tolist()}")
        self.reset(backend, [0])
        expect(backend.bad_rows().tolist() == expected, "the reset of another row changed it")
        self.reset(backend, [1])
        expect(not backend.bad_rows().any(), "the row's own reset did not clear it")

    @promise
    def test_a_wrench_moves_its_own_row_while_it_lasts(self) -> None:
        """Sustained wrenches are extra columns of the control."""
        backend, twin = self.make(), self.make()
        self.require(bool(self.declared_wrench_bodies), "no wrench body is declared")
        ctrl = self.controls(backend, 1)[0]
        pushed = ctrl.clone()
        pushed[1, backend.model_layout.nu :] = 1.0
        backend.step_tensor(pushed, self.decimation)
        twin.step_tensor(ctrl, self.decimation)
        others = [i for i in range(backend.num_envs) if i != 1]
        self.expect_same(self.reads(backend), self.reads(twin), "another row", rows=others)
        moved = backend.get_state_views()["qvel"][1] - twin.get_state_views()["qvel"][1]
        expect(moved.any(), "the pushed row did not move")
        for each in (backend, twin):
            self.reset(each, [1])
            self.run(each, 3)
        self.expect_same(self.reads(backend), self.reads(twin), "a reset did not clear the wrench", rows=[1])

    @promise
    def test_a_resident_backend_compiles_no_plan(self) -> None:
        """HostBridgeTransferPlan: compile_host_bridge_io is a CapabilityError on a DEVICE_RESIDENT backend."""
        from unisim.packets import HostBridgeSpec

        backend = self.make()
        self.require(not self.is_host(backend), "HOST_BRIDGE compiles plans")
        call = partial(backend.compile_host_bridge_io, HostBridgeSpec())
        expect_raises(CapabilityError, call, "compile_host_bridge_io")
