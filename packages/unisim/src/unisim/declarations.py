"""What was declared before the model was compiled, held against the model that came of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unisim.contract import Declared
from unisim.errors import nearest
from unisim.model_layout import ModelLayout

__all__ = ["pushed_bodies", "unmet"]


def unmet(declared: Declared, layout: ModelLayout) -> list[str]:
    """Returns what was declared and does not exist in the model, or twice."""
    sensors = [sensor.name for sensor in layout.sensors]
    problems = []
    for kind, names, valid in (
        ("model field", declared.model_fields, list(layout.fields)),
        ("substep sensor", declared.substep_sensors, sensors),
    ):
        for name in dict.fromkeys(names):
            if name not in valid:
                problems.append(f"{kind} {name!r} does not exist; {nearest(name, valid)}")
            elif names.count(name) > 1:
                problems.append(f"{kind} {name!r} is declared twice")
    if declared.decimation < 1:
        problems.append(f"decimation is {declared.decimation}, expected at least 1")
    return problems


def pushed_bodies(owner: str, patterns: Sequence[str], layout: ModelLayout) -> tuple[str, ...]:
    """Returns the bodies that are meant by names or full-match regular expressions, in model order, each once.

    Raises:
        KeyError: One of them means no body; the message lists the nearest.
    """
    bodies = [name for name in layout.bodies if name != "world"]  # nothing moves the world
    chosen: set[str] = set()
    for pattern in patterns:
        try:
            found = [pattern] if pattern in bodies else [n for n in bodies if re.fullmatch(pattern, n)]
        except re.error as error:
            raise KeyError(
                f"{owner}: wrench body {pattern!r} is neither a body nor a regular expression: {error}"
            ) from error
        if not found:
            raise KeyError(f"{owner}: wrench body {pattern!r} matches no body; {nearest(pattern, bodies)}")
        chosen.update(found)
    return tuple(name for name in bodies if name in chosen)
