"""Masses on springs: a backend, a task and a command of a package that UniLab knows nothing of."""

from pathlib import Path

EVIDENCE = Path(__file__).parent / "recorded"
