"""What a config says about terminations."""

from __future__ import annotations

from unilab_managers.cfg.term import TermCfg

__all__ = ["TerminationTermCfg"]


class TerminationTermCfg(TermCfg):
    """One reason for an episode to end. The term returns (N,) bool."""

    time_out: bool | None = None
    """Whether it truncates instead of terminating; None: as the function says of itself."""
