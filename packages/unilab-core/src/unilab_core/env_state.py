"""Everything that the next step of an environment depends on, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unilab_core.row_state import RowStateRegistry
from unilab_core.row_values import check_like
from unilab_core.training_state import export_training_state, parse_training_state
from unisim.contract import SimBackend

__all__ = ["check_state", "pack_state"]

_VERSION = 1
_KEYS = {"version", "values", "backend"}


def pack_state(
    backend: SimBackend, registry: RowStateRegistry, histories: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """Returns the environment's own values and the backend's snapshot: tensors, numbers, strings, lists, dicts.

    Substep histories are part of it only where they are kept beside the backend.
    """
    state = {"version": _VERSION, "values": registry.state_dict(), "backend": dict(backend.snapshot())}
    if histories:
        state["histories"] = {key: history.clone() for key, history in histories.items()}
    return state


def check_state(
    state: Mapping[str, Any],
    registry: RowStateRegistry,
    num_envs: int,
    histories: Mapping[str, torch.Tensor],
) -> None:
    """Checks what `pack_state` returned before anything of it is written; the backend checks its own part.

    Raises:
        ValueError: Of another version, task or number of rows.
    """
    given: object = state
    expected = _KEYS | {"histories"} if histories else _KEYS
    if not isinstance(given, Mapping) or set(given) != expected:
        got = f"keys {sorted(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise ValueError(f"environment state: got {got}, expected keys {sorted(expected)}")
    version, values, backend = given["version"], given["values"], given["backend"]
    if type(version) is not int or version != _VERSION:
        raise ValueError(f"environment state: got version {version!r}; expected version {_VERSION}")
    for name, part in (("values", values), ("backend", backend)):
        if not isinstance(part, Mapping):
            raise ValueError(f"environment state: {name} is a {type(part).__name__}, expected a mapping")
    for name, value in backend.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"environment state: backend[{name!r}] is a {type(value).__name__}, expected a tensor"
            )
    _check_histories(given.get("histories", {}), histories)
    registry.check_state_dict(values)
    if bool((values["_episode_length"] < 0).any()):
        raise ValueError("environment state: _episode_length holds a negative length")
    parse_training_state(export_training_state(values["step_counter"]))
    if type(values["_unjudged"]) is not bool:
        raise ValueError(f"environment state: _unjudged is {values['_unjudged']!r}, expected a bool")
    rows = values["_pending"]
    if any(type(row) is not int or not 0 <= row < num_envs for row in rows):
        raise ValueError(f"environment state: _pending is {rows[:8]}, expected rows 0 <= row < {num_envs}")


def _check_histories(given: object, own: Mapping[str, torch.Tensor]) -> None:
    if not isinstance(given, Mapping) or set(given) != set(own):
        got = f"keys {sorted(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise ValueError(f"environment state: histories: got {got}, expected keys {sorted(own)}")
    for key, history in own.items():
        check_like(f"histories[{key!r}]", history, given[key])
