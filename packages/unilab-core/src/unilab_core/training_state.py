"""The progress of a training, version 1: how many control steps the environment has made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["export_training_state", "parse_training_state"]

_KEYS = {"version", "step_counter"}


def export_training_state(step_counter: int) -> dict[str, int]:
    """Returns the payload, plain data that any checkpoint can hold."""
    return {"version": 1, "step_counter": step_counter}


def parse_training_state(payload: Mapping[str, Any]) -> int:
    """Returns the step counter of a payload.

    Raises:
        ValueError: A missing or extra key, another version, or a counter that is no int >= 0 (a bool is none).
    """
    keys = set(payload)
    if keys != _KEYS:
        missing, extra = sorted(_KEYS - keys), sorted(map(str, keys - _KEYS))
        raise ValueError(
            f"training state: missing keys {missing}, unknown keys {extra}; expected {sorted(_KEYS)}"
        )
    version, counter = payload["version"], payload["step_counter"]
    if type(version) is not int or version != 1:
        raise ValueError(f"training state: version is {version!r}, expected 1")
    if type(counter) is not int or counter < 0:
        raise ValueError(f"training state: step_counter is {counter!r}, expected an int >= 0")
    return counter
