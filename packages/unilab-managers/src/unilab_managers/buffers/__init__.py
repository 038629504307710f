"""Frames of the past, per row: a ring of them, lags that say how old a served frame is, and both together."""

from unilab_managers.buffers.delay import DelayBuffer, DelayLags
from unilab_managers.buffers.ring import FrameRing

__all__ = ["DelayBuffer", "DelayLags", "FrameRing"]
