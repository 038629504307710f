"""Everything that the next step of an environment depends on, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unilab_core.row_state import RowStateRegistry
from unisim.contract import SimBackend

__all__ = ["pack_state", "unpack_state"]

_VERSION = 1
_KEYS = {"version", "values", "backend"}


def pack_state(backend: SimBackend, registry: RowStateRegistry) -> dict[str, Any]:
    """Returns the environment's own values and the backend's snapshot: tensors, numbers, strings, lists, dicts."""
    return {"version": _VERSION, "values": registry.state_dict(), "backend": dict(backend.snapshot())}


def unpack_state(state: Mapping[str, Any], backend: SimBackend, registry: RowStateRegistry) -> None:
    """Writes a state that `pack_state` returned; everything is checked before anything is written.

    Raises:
        ValueError: Of another version, task or number of rows.
    """
    if set(state) != _KEYS or state["version"] != _VERSION:
        raise ValueError(
            f"environment state: got keys {sorted(state)}, version {state.get('version')!r}; "
            f"expected {sorted(_KEYS)}, version {_VERSION}"
        )
    registry.check_state_dict(state["values"])
    backend.restore(state["backend"])  # checks before it writes
    registry.load_state_dict(state["values"])
