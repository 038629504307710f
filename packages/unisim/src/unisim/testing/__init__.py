"""A backend that needs no engine, for tests of everything above `unisim`, and the suite that every backend passes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
