"""Term execution: environments written as observation, action, reward, termination and event terms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
