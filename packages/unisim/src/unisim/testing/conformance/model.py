"""Promises about model fields that differ per row."""

from __future__ import annotations

from functools import partial

import torch

from unisim.contract import SimBackend
from unisim.errors import ResetRejectedError
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import not_applicable, promise
from unisim.testing.conformance.samples import unphysical_values

__all__ = ["ModelPromises"]

_SCALED = ("body_mass", "body_inertia", "geom_friction", "dof_damping", "actuator_gainprm", "gravity")
"""Fields that stay physical when all their values are multiplied."""


class ModelPromises(ConformanceBase):
    """Model fields in `apply_reset` and `write_rows`."""

    def _fields(self, backend: SimBackend) -> dict[str, torch.Tensor]:
        """Returns the nominal values (1, *shape) of the declared fields."""
        self.require(bool(self.declared_fields), "no model field is declared")
        device = self.device(backend)
        layout = backend.model_layout
        return {n: layout.fields[n].nominal_tensor().unsqueeze(0).to(device) for n in self.declared_fields}

    def _scaled(self, backend: SimBackend, factor: float = 1.25) -> dict[str, torch.Tensor]:
        """Returns changed values of those declared fields that may be multiplied."""
        changed = {n: v * factor for n, v in self._fields(backend).items() if n in _SCALED and v.any()}
        self.require(bool(changed), f"no declared field of {_SCALED} differs from 0")
        return changed

    def _reset_model(self, backend: SimBackend, row: int, model: dict[str, torch.Tensor]) -> None:
        self.reset(backend, [row], self.payload(backend, [row], model=model))

    @promise
    def test_a_field_that_was_not_declared_is_rejected(self) -> None:
        """What will be written is declared to make_backend."""
        backend = self.make()
        layout = backend.model_layout
        other = [name for name in layout.fields if name not in self.declared_fields]
        self.require(bool(other), "every field is declared, or the model has none")
        values = layout.fields[other[0]].nominal_tensor().unsqueeze(0).to(self.device(backend))
        payload = self.payload(backend, [1], model={other[0]: values})
        self.run(backend, 2)
        for call in (backend.apply_reset, backend.write_rows):
            commit = partial(call, self.mask(backend, [1]), payload)
            self.expect_rejected(backend, commit, ResetRejectedError, f"{call.__name__} of {other[0]}")

    @promise
    def test_an_unphysical_value_is_rejected_and_nothing_is_written(self) -> None:
        """Values are checked before the commit (engines accept negative masses and NaN without a word)."""
        backend, twin = self.make(), self.make()
        self._fields(backend)
        for each in (backend, twin):
            self.run(each, 2)
        for name in self.declared_fields:
            for what, values in unphysical_values(backend.model_layout, name).items():
                payload = self.payload(backend, [1], model={name: values.to(self.device(backend))})
                for call in (backend.apply_reset, backend.write_rows):
                    commit = partial(call, self.mask(backend, [1]), payload)
                    self.expect_rejected(backend, commit, ResetRejectedError, f"{call.__name__} with {what}")
        for each in (backend, twin):
            self.run(each, 3, seed=7)
        self.expect_same(self.reads(backend), self.reads(twin), "steps after the refused values")

    @promise
    def test_the_nominal_values_change_nothing(self) -> None:
        """A model value whose float32 equals the nominal's writes the stored nominal: an identity is
        bit-exact."""
        backend, twin = self.make(), self.make()
        fields = self._fields(backend)
        for each in (backend, twin):
            self.run(each, 2)
        self._reset_model(backend, 1, fields)
        self.reset(twin, [1])
        for i in range(10):
            for each in (backend, twin):
                self.run(each, 1, seed=20 + i)
            self.expect_same(self.reads(backend), self.reads(twin), f"step {i + 1} after an identity")

    @promise
    def test_a_changed_row_moves_differently_and_others_as_before(self) -> None:
        """Randomised model fields written and the constants derived from them recomputed."""
        backend, twin = self.make(), self.make()
        changed = self._scaled(backend)
        for each in (backend, twin):
            self.run(each, 2)
        self._reset_model(backend, 1, changed)
        self.reset(twin, [1])
        others = [i for i in range(backend.num_envs) if i != 1]
        for i in range(10):
            for each in (backend, twin):
                self.run(each, 1, seed=20 + i)
            self.expect_same(self.reads(backend), self.reads(twin), f"step {i + 1} after it", rows=others)

    @promise
    def test_a_row_with_changed_fields_equals_a_model_made_with_them(self) -> None:
        """Randomised model fields written and the constants derived from them recomputed."""
        backend = self.make()
        self._fields(backend)
        for name in self.declared_fields:
            nominal = backend.model_layout.fields[name].nominal_tensor()
            if name in _SCALED and bool(nominal.any()):
                self._expect_equal_to_its_own_model(name, nominal * 1.25)

    def _expect_equal_to_its_own_model(self, name: str, values: torch.Tensor) -> None:
        made = self.make_backend_with(self.num_envs, {name: values})
        if made is None:
            not_applicable("make_backend_with() makes no model with other values")
        backend, other = self.make(), self.keep(made)
        self.run(backend, 2)
        self._reset_model(backend, 1, {name: values.unsqueeze(0).to(self.device(backend))})
        self.reset(other, [1])
        for i in range(10):
            for each in (backend, other):
                self.run(each, 1, seed=20 + i)
            what = f"{name}, step {i + 1}: a row and a model made with its values"
            self.expect_same(self.reads(backend), self.reads(other), what, rows=[1])

    @promise
    def test_the_same_values_twice_are_the_same_as_once(self) -> None:
        """Randomisation starts from stored nominal values, so repeated resets do not drift."""
        backend, twin = self.make(), self.make()
        changed = self._scaled(backend)
        for _ in range(3):
            self._reset_model(backend, 1, changed)
        self._reset_model(twin, 1, changed)
        for each in (backend, twin):
            self.run(each, 10)
        self.expect_same(self.reads(backend), self.reads(twin), "three writes and one")
