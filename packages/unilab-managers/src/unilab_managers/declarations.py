"""What a task's terms write and record beyond state, and who asks: the backend must know before it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unilab_core.host_terms import is_host_term
from unilab_core.writes import declared_writes
from unilab_managers.cfg.term import TermCfg, called
from unilab_managers.env_cfg import TermsCfg
from unilab_managers.wrenches import wrench_bodies
from unisim.contract import Declared

__all__ = ["asked_by", "declared_by"]


def declared_by(cfg: TermsCfg) -> Declared:
    """Collects what the terms write and the sensors record.

    Raises:
        ConfigError: A term that pushes bodies names none.
    """
    wanted: dict[str, dict[str, None]] = {"model_field": {}, "wrench": {}, "substep": {}}
    for key in asked_by(cfg):
        kind, _, name = key.partition(":")
        if kind in wanted:
            wanted[kind][name] = None
    return Declared(
        model_fields=tuple(wanted["model_field"]),
        wrench_bodies=tuple(wanted["wrench"]),
        substep_sensors=tuple(wanted["substep"]),
        decimation=cfg.decimation,
    )


def asked_by(cfg: TermsCfg) -> Mapping[str, tuple[str, ...]]:
    """Returns what the backend must be able to do, by the keys of `check_declared`, and who asks for it.

    Raises:
        ConfigError: A term that pushes bodies names none.
    """
    askers: dict[str, tuple[str, ...]] = {}
    for label, term in _terms(cfg):
        for key in _asks(term):
            askers[key] = (*askers.get(key, ()), label)
    for sensor in cfg.scene.sensors:
        if sensor.substeps:
            askers[f"substep:{sensor.name}"] = (f"scene sensor {sensor.name!r}",)
    return askers


def _terms(cfg: TermsCfg) -> Iterator[tuple[str, object]]:
    """Yields every term of a config with its label."""
    for group, group_cfg in cfg.observations.items():
        for name, term in group_cfg.terms.items():
            yield f"observations.{group} term {name!r}", term
    for kind in (
        *("actions", "commands", "events", "curriculum", "terminations", "rewards", "metrics", "recorders"),
    ):
        for name, term in getattr(cfg, kind).items():
            yield f"{kind} term {name!r}", term
    if cfg.reset_owner is not None:
        yield "reset_owner", cfg.reset_owner


def _asks(term: object) -> Iterator[str]:
    """Yields the keys that one term asks for, declared on its function, its class or the class of its config."""
    func: Any = getattr(term, "func", type(term))
    parts = tuple(dict.fromkeys((func, called(func) or func)))
    for field in dict.fromkeys(field for part in parts for field in declared_writes(part)):
        yield f"model_field:{field}"
    if isinstance(term, TermCfg):
        for bodies in wrench_bodies(term):
            for pattern in bodies.body_names or ():
                yield f"wrench:{bodies.name}/{pattern}"
    if any(is_host_term(part) for part in parts):
        yield f"host_term:{func.__name__}"
