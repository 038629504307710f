"""A backend that needs no engine, for tests of everything above `unisim`."""

from unisim.testing.fake import FakeBackend, Fault, make_layout

__all__ = ["FakeBackend", "Fault", "make_layout"]
