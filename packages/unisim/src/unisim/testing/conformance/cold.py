"""Promises about images and exported models, which nobody asks for in a hurry."""

from __future__ import annotations

from functools import partial

import torch

from unisim.capabilities import TensorCapabilities
from unisim.contract import SimBackend
from unisim.errors import CapabilityError
from unisim.render import CameraCfg
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, expect_raises, not_applicable, promise

__all__ = ["ColdPromises"]

_SMALL = CameraCfg(width=48, height=32)


class ColdPromises(ConformanceBase):
    """`render` and `export_model`."""

    def _can_render(self, backend: SimBackend) -> TensorCapabilities:
        can = backend.get_tensor_capabilities()
        self.require(can.rendering, "rendering is not offered")
        try:
            backend.render(0, _SMALL)
        except CapabilityError as error:
            not_applicable(f"there is no OpenGL: {error}")
        return can

    @promise
    def test_an_image_is_of_the_size_asked_for_and_drawing_it_changes_nothing(self) -> None:
        """render(row): an (H, W, 3) uint8 image of one row, on the cold path: state and reads stay as they are."""
        backend, twin = self.make(), self.make()
        self._can_render(backend)
        for each in (backend, twin):
            self.run(each, 3)
        before = self.reads(backend)
        image = backend.render(1, _SMALL)
        found = (image.dtype, tuple(image.shape), image.device.type)
        expect(found == (torch.uint8, (32, 48, 3), "cpu"), f"it is {found}")
        expect(torch.equal(backend.render(1, _SMALL), image), "two images of one state differ")
        self.expect_same(self.reads(backend), before, "an image changed a read", exact=True)
        for each in (backend, twin):
            self.run(each, 3, seed=5)
        self.expect_same(self.reads(backend), self.reads(twin), "steps after an image")

    @promise
    def test_what_cannot_be_drawn_is_refused(self) -> None:
        """render(row): an unknown row or name is answered at once."""
        backend = self.make()
        self._can_render(backend)
        for row in (-1, backend.num_envs):
            expect_raises(IndexError, partial(backend.render, row), f"render({row})")
        nobody = CameraCfg(track="nobody/nothing")
        expect_raises(KeyError, partial(backend.render, 0, nobody), "a camera that follows nobody")

    @promise
    def test_an_exported_model_is_bytes_and_exporting_it_changes_nothing(self) -> None:
        """export_model(row): the model of one row in the engine's own file format, on the cold path."""
        backend = self.make()
        self.run(backend, 3)
        before = self.reads(backend)
        try:
            exported = backend.export_model(1)
        except CapabilityError as error:
            not_applicable(f"models are not exported: {error}")
        expect(issubclass(type(exported), bytes), f"it is {type(exported).__name__}")
        expect(len(exported) > 0, "it is empty")
        expect(backend.export_model(1) == exported, "two exports of one row differ")
        self.expect_same(self.reads(backend), before, "an export changed a read", exact=True)
        for row in (-1, backend.num_envs):
            expect_raises(IndexError, partial(backend.export_model, row), f"export_model({row})")
