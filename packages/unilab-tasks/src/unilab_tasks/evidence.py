"""Where the recorded evidence of these tasks lies; imports neither Torch nor an engine."""

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent / "recorded"
"""Named by the entry point of group `unilab.evidence`; written by `nox -s evidence`."""
