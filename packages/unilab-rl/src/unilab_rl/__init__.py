"""Learners for batched Torch environments, run folders, and the train, eval and play commands."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
