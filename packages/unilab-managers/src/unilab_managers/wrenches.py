"""How a term says that it pushes bodies, which the backend must know before the model is compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.errors import ConfigError
from unilab_managers.cfg.term import TermCfg, called

__all__ = ["applies_wrench", "wrench_bodies"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__unilab_applies_wrench__"


def applies_wrench(term: F) -> F:
    """Declares that a term, a function or a class, calls `write_wrench` for the bodies that its parameters name."""
    setattr(term, _ATTRIBUTE, True)
    return term


def wrench_bodies(cfg: TermCfg) -> tuple[SceneEntityCfg, ...]:
    """Returns whose bodies a term pushes: its parameters, defaults too, that are a `SceneEntityCfg` with `body_names`.

    Args:
        cfg: A term; one whose function or class is not marked by `@applies_wrench` pushes nothing.

    Raises:
        ConfigError: It is marked, and no parameter names bodies.
    """
    if not getattr(cfg.func, _ATTRIBUTE, False):
        return ()
    params = cfg.all_params().values()
    given = [value for value in params if isinstance(value, SceneEntityCfg)]
    found = tuple(value for value in given if value.body_names is not None)
    if not found:
        target = called(cfg.func) or cfg.func
        names = [n for n in inspect.signature(target).parameters if n not in ("self", *cfg.leading)]
        raise ConfigError(
            f"{cfg.func.__name__} pushes bodies, and none of its parameters {names} names any; "
            "pass a SceneEntityCfg with body_names"
        )
    return found
