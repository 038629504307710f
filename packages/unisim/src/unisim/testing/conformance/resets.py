"""Promises about the one reset commit."""

from __future__ import annotations

from functools import partial

import torch

from unisim.errors import ResetRejectedError
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, promise
from unisim.testing.conformance.samples import invalid_payloads

__all__ = ["ResetPromises"]


class ResetPromises(ConformanceBase):
    """`apply_reset`."""

    @promise
    def test_a_mask_that_does_not_fit_is_rejected_and_nothing_is_written(self) -> None:
        """reset_mask is a fixed-width bool (N,)."""
        backend = self.make()
        self.run(backend, 2)
        payload = self.payload(backend, [1])
        mask = self.mask(backend, [1])
        for what, wrong in (
            ("a mask of integers", mask.long()),
            ("a mask that is too short", mask[:-1]),
            ("a mask of other rows", ~mask),
        ):
            reset = partial(backend.apply_reset, wrong, payload)
            self.expect_rejected(backend, reset, ResetRejectedError, what)

    @promise
    def test_a_payload_that_is_not_valid_is_rejected_and_nothing_is_written(self) -> None:
        """Values are checked before the commit; ResetRejectedError promises that nothing was written."""
        backend = self.make()
        self.run(backend, 2)
        for what, payload in invalid_payloads(self, backend).items():
            reset = partial(backend.apply_reset, self.mask(backend, [1]), payload)
            self.expect_rejected(backend, reset, ResetRejectedError, f"a reset with {what}")

    @promise
    def test_a_reset_leaves_unselected_rows_bitwise_unchanged(self) -> None:
        """Unselected rows stay bitwise unchanged, derived fields included."""
        backend = self.make()
        self.run(backend, 5)
        before = self.reads(backend)
        qpos, qvel = self.state(backend, 2)
        self.reset(backend, [0, 2], self.payload(backend, [0, 2], qpos=qpos, qvel=qvel))
        others = [i for i in range(backend.num_envs) if i not in (0, 2)]
        self.expect_same(self.reads(backend), before, "an unselected row changed", rows=others, exact=True)

    @promise
    def test_unselected_rows_go_on_like_those_of_a_twin(self) -> None:
        """Unselected rows stay bitwise unchanged, derived fields included."""
        backend, twin = self.make(), self.make()
        for each in (backend, twin):
            self.run(each, 5)
        qpos, qvel = self.state(backend, 2)
        self.reset(backend, [0, 2], self.payload(backend, [0, 2], qpos=qpos, qvel=qvel))
        others = [i for i in range(backend.num_envs) if i not in (0, 2)]
        for i in range(10):
            for each in (backend, twin):
                self.run(each, 1, seed=10 + i)
            self.expect_same(self.reads(backend), self.reads(twin), f"step {i + 1} after it", rows=others)

    @promise
    def test_a_reset_writes_the_state_or_the_default(self) -> None:
        """Selected rows: state written."""
        backend = self.make()
        self.run(backend, 5)
        qpos, qvel = self.state(backend, 2)
        self.reset(backend, [0, 2], self.payload(backend, [0, 2], qpos=qpos, qvel=qvel))
        views = {key: values.clone() for key, values in backend.get_state_views().items()}
        expect(torch.equal(views["qpos"][[0, 2]], qpos), "qpos is not what was given")
        expect(torch.equal(views["qvel"][[0, 2]], qvel), "qvel is not what was given")
        self.reset(backend, [1])
        layout = backend.model_layout
        views = {key: values.cpu() for key, values in backend.get_state_views().items()}
        expect(torch.equal(views["qpos"][1], torch.tensor(layout.default_qpos)), "qpos is not the default")
        expect(torch.equal(views["qvel"][1], torch.tensor(layout.default_qvel)), "qvel is not the default")

    @promise
    def test_after_a_reset_a_row_goes_on_as_in_a_new_backend(self) -> None:
        """time, actuator state, applied forces and warm start cleared."""
        backend, new = self.make(), self.make()
        self.run(backend, 8)
        qpos, qvel = self.state(backend, 1)
        for each in (backend, new):
            self.reset(each, [1], self.payload(each, [1], qpos=qpos, qvel=qvel))
        for i in range(10):
            for each in (backend, new):
                self.run(each, 1, seed=10 + i)
            self.expect_same(self.reads(backend), self.reads(new), f"step {i + 1} after it", rows=[1])

    @promise
    def test_after_a_reset_every_read_is_that_of_a_new_backend(self) -> None:
        """Every declared read is fresh without stepping, acceleration stage included."""
        backend, new = self.make(), self.make()
        self.run(backend, 8)
        qpos, qvel = self.state(backend, 1)
        for each in (backend, new):
            self.reset(each, [1], self.payload(each, [1], qpos=qpos, qvel=qvel))
        self.expect_same(self.reads(backend), self.reads(new), "right after the reset", rows=[1])

    @promise
    def test_a_reset_sets_the_control(self) -> None:
        """Control set to the payload's, by default what holds the reset pose."""
        backend, new = self.make(), self.make()
        self.require(backend.model_layout.nu > 0, "the model has no actuator")
        self.run(backend, 3)
        nu = backend.model_layout.nu
        given = self.controls(backend, 1, seed=9)[0][:1, :nu].contiguous()
        self.reset(backend, [1], self.payload(backend, [1], ctrl=given))
        expect(torch.equal(backend.get_state_views()["ctrl"][1:2], given), "ctrl is not what was given")
        qpos, _ = self.state(backend, 1)
        for each in (backend, new):
            self.reset(each, [1], self.payload(each, [1], qpos=qpos))
        held = (backend.get_state_views()["ctrl"][1], new.get_state_views()["ctrl"][1])
        expect(torch.equal(*held), f"the default control {held[0].tolist()} depends on the past")

    @promise
    def test_a_reset_of_no_rows_changes_nothing(self) -> None:
        """apply_reset(reset_mask, payload): the one reset commit."""
        backend = self.make()
        self.run(backend, 3)
        before = self.reads(backend)
        self.reset(backend, [])
        self.expect_same(self.reads(backend), before, "a reset of no rows", exact=True)

    @promise
    def test_one_reset_of_all_rows_equals_resets_one_by_one(self) -> None:
        """apply_reset(reset_mask, payload): the one reset commit."""
        together, single = self.make(), self.make()
        everyone = list(range(together.num_envs))
        qpos, qvel = self.state(together, together.num_envs)
        for each in (together, single):
            self.run(each, 4)
        self.reset(together, everyone, self.payload(together, everyone, qpos=qpos, qvel=qvel))
        for i in reversed(everyone):
            self.reset(single, [i], self.payload(single, [i], qpos=qpos[i : i + 1], qvel=qvel[i : i + 1]))
        self.expect_same(self.reads(together), self.reads(single), "together and one by one")
