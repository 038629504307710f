"""Promises about stepping: checks before, freshness after."""

from __future__ import annotations

import math
from functools import partial

import torch

from unisim.errors import NonFiniteError
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, promise

__all__ = ["StepPromises"]


class StepPromises(ConformanceBase):
    """`step_tensor`, and the reads after it."""

    @promise
    def test_a_control_of_a_wrong_kind_is_refused_and_nothing_moves(self) -> None:
        """step_tensor(ctrl, nsteps=1): ctrl (N,C) contiguous float32 on an accepted device."""
        backend = self.make()
        self.run(backend, 2)
        n, c, device = backend.num_envs, self.control_width(backend), self.device(backend)
        good = torch.zeros(n, c, device=device)
        cases: list[tuple[str, object, int, type[Exception]]] = [
            ("a list", [[0.0] * c] * n, 1, TypeError),
            ("float64", good.double(), 1, TypeError),
            ("a column too many", torch.zeros(n, c + 1, device=device), 1, ValueError),
            ("a row too many", torch.zeros(n + 1, c, device=device), 1, ValueError),
            ("another device", torch.zeros(n, c, device="meta"), 1, ValueError),
            ("no substeps", good, 0, ValueError),
        ]
        if c > 0:
            strided = torch.zeros(n, 2 * c, device=device)[:, ::2]
            if not strided.is_contiguous():
                cases.append(("not contiguous", strided, 1, ValueError))
        for what, ctrl, nsteps, kind in cases:
            self.expect_rejected(backend, partial(backend.step_tensor, ctrl, nsteps), kind, what)  # type: ignore[arg-type] # that is the test

    @promise
    def test_a_step_neither_changes_nor_keeps_the_caller_s_control(self) -> None:
        """step_tensor(ctrl, nsteps=1): ctrl (N,C) contiguous float32 on an accepted device."""
        backend, twin = self.make(), self.make()
        self.require(backend.model_layout.nu > 0, "the model has no actuator")
        ctrl = self.controls(backend, 1)[0]
        given = ctrl.clone()
        backend.step_tensor(ctrl, 1)
        expect(torch.equal(ctrl, given), "the control was modified")
        ctrl.zero_()
        twin.step_tensor(given, 1)
        self.expect_same(self.reads(backend), self.reads(twin), "the control was kept by reference")

    @promise
    def test_a_non_finite_control_is_rejected_before_anything_moves(self) -> None:
        """A non-finite control is rejected on the host before physics moves."""
        backend = self.make()
        self.require(self.is_host(backend), "DEVICE_RESIDENT neutralises it on the device")
        self.require(self.control_width(backend) > 0, "there is no control")
        self.run(backend, 2)
        for value in (math.nan, math.inf, -math.inf):
            ctrl = self.controls(backend, 1)[0]
            ctrl[1, -1] = value
            step = partial(backend.step_tensor, ctrl)
            self.expect_rejected(backend, step, NonFiniteError, f"a control of {value}")

    @promise
    def test_a_non_finite_control_is_neutralised_and_its_row_is_bad(self) -> None:
        """Bad control rows are neutralised on the device and raised at the step's verdict read."""
        backend, twin = self.make(), self.make()
        self.require(not self.is_host(backend), "HOST_BRIDGE rejects it")
        self.require(self.control_width(backend) > 0, "there is no control")
        ctrl = self.controls(backend, 1)[0]
        bad = ctrl.clone()
        bad[1, 0] = math.nan
        backend.step_tensor(bad, self.decimation)
        twin.step_tensor(ctrl, self.decimation)
        expect(torch.isfinite(backend.get_state_views()["qpos"]).all(), "the row's state is not finite")
        expect(backend.bad_rows().tolist() == [i == 1 for i in range(backend.num_envs)], "bad_rows() differs")
        others = [i for i in range(backend.num_envs) if i != 1]
        self.expect_same(self.reads(backend), self.reads(twin), "another row changed", rows=others)

    @promise
    def test_after_a_step_position_and_velocity_reads_belong_to_the_new_state(self) -> None:
        """Every declared position- and velocity-stage read is fresh at the new state."""
        backend = self.make()
        can = backend.get_tensor_capabilities()
        self.require(can.row_writes, "without row writes nothing refreshes reads beside a step")
        everyone = list(range(backend.num_envs))
        fresh = [key for key in self.reads(backend) if key not in self.held(backend)]
        for i in range(5):
            self.run(backend, 1, seed=i)
            stepped = self.reads(backend)
            # A write of nothing refreshes all reads, and must find nothing to do.
            backend.write_rows(self.mask(backend, everyone), self.payload(backend, everyone))
            refreshed = self.reads(backend)
            self.expect_same(
                {key: stepped[key] for key in fresh},
                {key: refreshed[key] for key in fresh},
                f"after control step {i + 1} a read was stale",
            )

    @promise
    def test_acceleration_reads_of_a_row_do_not_depend_on_other_rows(self) -> None:
        """Acceleration-stage reads describe the last integrated substep of their own row."""
        backend, alone = self.make(), self.make(1)
        names = self.sensors(backend, "acceleration")
        self.require(bool(names), "the model has no acceleration-stage sensor")
        row = backend.num_envs - 1
        for ctrl in self.controls(backend, 10):
            backend.step_tensor(ctrl, self.decimation)
            alone.step_tensor(ctrl[row : row + 1].contiguous(), self.decimation)
            for name in names:
                key = f"sensor:{name}"
                self.expect_same(
                    {key: backend.get_sensor_view(name)[row:]},
                    {key: alone.get_sensor_view(name)},
                    f"row {row} of {backend.num_envs} and the same row alone",
                )

    @promise
    def test_acceleration_reads_survive_a_row_write(self) -> None:
        """Acceleration-stage reads describe the last integrated substep of their own row, and keep doing so
        when the row is written mid-step."""
        backend = self.make()
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        self.require(
            bool(self.sensors(backend, "acceleration")), "the model has no acceleration-stage sensor"
        )
        self.run(backend, 5)
        before = self.reads(backend)
        qvel = self.state(backend, 2)[1]
        rows = [0, 2]
        backend.write_rows(self.mask(backend, rows), self.payload(backend, rows, qvel=qvel))
        after = self.reads(backend)
        held = self.held(backend)
        self.expect_same(
            {k: after[k] for k in held}, {k: before[k] for k in held}, "a row write changed", exact=True
        )

    @promise
    def test_the_substep_history_equals_single_steps_oldest_first(self) -> None:
        """substep_sensors are recorded at every substep."""
        backend, twin = self.make(), self.make()
        self.require(bool(self.declared_substep_sensors), "no substep sensor is declared")
        for ctrl in self.controls(backend, 3):
            backend.step_tensor(ctrl, self.decimation)
            single: dict[str, list[torch.Tensor]] = {name: [] for name in self.declared_substep_sensors}
            for _ in range(self.decimation):
                twin.step_tensor(ctrl, 1)
                for name, values in single.items():
                    values.append(twin.get_sensor_view(name).clone())
            wanted = {f"substep:{name}": torch.cat(values, dim=1) for name, values in single.items()}
            self.expect_same(self.reads(backend), wanted, "history and single steps")

    @promise
    def test_the_substep_history_of_a_reset_row_is_zero(self) -> None:
        """substep_sensors are recorded at every substep."""
        backend = self.make()
        self.require(bool(self.declared_substep_sensors), "no substep sensor is declared")
        self.run(backend, 3)
        before = self.reads(backend)
        self.reset(backend, [1])
        after = self.reads(backend)
        others = [i for i in range(backend.num_envs) if i != 1]
        for name in self.declared_substep_sensors:
            key = f"substep:{name}"
            expect(not after[key][1].any(), f"{key} of the reset row is not zero")
            expect(torch.equal(after[key][others], before[key][others]), f"{key} of other rows changed")
