"""Promises about joint accelerations and actuator forces."""

from __future__ import annotations

from unisim.contract import SimBackend
from unisim.testing.conformance.base import ConformanceBase, Reads
from unisim.testing.conformance.evidence import promise

__all__ = ["AccelerationPromises"]


class AccelerationPromises(ConformanceBase):
    """`"qacc"` and `"actuator_force"` of `get_state_views`; resets and snapshots compare them with all other reads."""

    def _offered(self, backend: SimBackend) -> tuple[str, ...]:
        fields = backend.get_tensor_capabilities().acceleration_fields
        self.require(bool(fields), "neither accelerations nor actuator forces are offered")
        return fields

    def _read(self, backend: SimBackend) -> Reads:
        return {key: v.clone() for key, v in backend.get_state_views(self._offered(backend)).items()}

    @promise
    def test_accelerations_and_forces_of_a_row_do_not_depend_on_other_rows(self) -> None:
        """joint accelerations and actuator forces describe the last integrated substep of their own row."""
        backend, alone = self.make(), self.make(1)
        self._offered(backend)
        row = backend.num_envs - 1
        for ctrl in self.controls(backend, 10):
            backend.step_tensor(ctrl, self.decimation)
            alone.step_tensor(ctrl[row : row + 1].contiguous(), self.decimation)
            rows = {key: values[row:] for key, values in self._read(backend).items()}
            self.expect_same(
                rows, self._read(alone), f"row {row} of {backend.num_envs} and the same row alone"
            )

    @promise
    def test_accelerations_and_forces_are_those_of_the_last_substep(self) -> None:
        """joint accelerations and actuator forces describe the last integrated substep of their own row."""
        backend, single = self.make(), self.make()
        self._offered(backend)
        for ctrl in self.controls(backend, 5):
            backend.step_tensor(ctrl, self.decimation)
            for _ in range(self.decimation):
                single.step_tensor(ctrl, 1)
            self.expect_same(self._read(backend), self._read(single), "one step and as many single substeps")

    @promise
    def test_accelerations_and_forces_survive_a_row_write(self) -> None:
        """joint accelerations and actuator forces keep describing the last integrated substep when the row is
        written mid-step."""
        backend = self.make()
        self._offered(backend)
        self.require(backend.get_tensor_capabilities().row_writes, "row writes are not offered")
        self.run(backend, 5)
        before = self._read(backend)
        qpos, qvel = self.state(backend, 2)
        payload = self.payload(backend, [0, 2], qpos=qpos, qvel=qvel)
        backend.write_rows(self.mask(backend, [0, 2]), payload)
        self.expect_same(self._read(backend), before, "a row write changed", exact=True)
        self.reset(backend, [1])
        after = self._read(backend)
        others = [i for i in range(backend.num_envs) if i != 1]
        self.expect_same(after, before, "the reset of another row changed", rows=others, exact=True)

    @promise
    def test_accelerations_and_forces_of_a_reset_row_are_those_of_its_full_forward(self) -> None:
        """joint accelerations and actuator forces are fresh after a reset without stepping (a full forward with
        the reset control)."""
        backend, new = self.make(), self.make()
        self._offered(backend)
        nu = backend.model_layout.nu
        self.run(backend, 6)
        qpos, qvel = self.state(backend, 1)
        ctrl = self.controls(backend, 1, seed=9)[0][:1, :nu].contiguous()
        for each in (backend, new):
            self.reset(each, [1], self.payload(each, [1], qpos=qpos, qvel=qvel, ctrl=ctrl))
        self.expect_same(self._read(backend), self._read(new), "right after the reset", rows=[1])
        # A step of one substep under the same control starts with the forward that the reset already made.
        held = self.controls(backend, 1)[0]
        held[:, :nu], held[:, nu:] = ctrl, 0.0
        found = self._read(backend)
        backend.step_tensor(held, 1)
        self.expect_same(found, self._read(backend), "a reset and the first substep after it", rows=[1])
