"""The suite that every backend passes: subclass `BackendConformance` in a test file and give `make_backend`."""

import importlib.util

from unisim.errors import CapabilityError

if importlib.util.find_spec("pytest") is None:
    raise CapabilityError("the conformance kit needs pytest: pip install 'unisim[testing]>=2.0'")

from unisim.testing.conformance.suite import BackendConformance

__all__ = ["BackendConformance"]
