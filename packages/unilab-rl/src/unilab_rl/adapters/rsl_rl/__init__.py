"""PPO of rsl-rl, with the value of the true final observation at a time-out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
