"""Makes a backend by name; names come from the entry-point group `unisim.backends`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from unisim.errors import CapabilityError, nearest
from unisim.plugins import PLUGIN_FAILURES, plugin_problem

if TYPE_CHECKING:
    from unisim.contract import Declared, SimBackend
    from unisim.scene import SceneCfg, SimCfg

__all__ = ["list_backends", "make_backend"]

GROUP = "unisim.backends"


def list_backends() -> tuple[str, ...]:
    """Returns the names of the installed backends, sorted; imports none of them."""
    return tuple(sorted(_entry_points()))


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def make_backend(
    name: str,
    scene: SceneCfg,
    sim: SimCfg,
    *,
    num_envs: int,
    device: str = "cpu",
    declared: Declared | None = None,
) -> SimBackend:
    """Composes and compiles `scene` and returns a backend of `num_envs` rows.

    Args:
        name: A name of `list_backends()`.
        scene: What is simulated.
        sim: Numerical settings.
        num_envs: N, the number of rows.
        device: Torch device that the tensors will live on.
        declared: What will be written or recorded beyond state; nothing by default.

    Raises:
        CapabilityError: No such backend, its package cannot be imported, its engine is not installed, or it cannot do
            what is declared.
        ConfigError: The scene does not compile.
        KeyError: A wrench body is declared that matches none of the model; the message lists the nearest.
    """
    entries = _entry_points()
    if name not in entries:
        raise CapabilityError(f"unknown backend {name!r}; {nearest(name, entries)}")
    try:
        create = entries[name].load()
    except PLUGIN_FAILURES as error:
        raise CapabilityError(f"backend {name!r}: {plugin_problem(entries[name], error)}") from error
    backend: SimBackend = create(scene, sim, num_envs=num_envs, device=device, declared=declared)
    return backend
