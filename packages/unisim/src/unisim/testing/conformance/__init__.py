"""The suite that every backend passes: subclass `BackendConformance` in a test file and give `make_backend`."""

from unisim.testing.conformance.suite import BackendConformance

__all__ = ["BackendConformance"]
