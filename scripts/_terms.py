"""Which terms the library holds, and what their signatures and docstrings say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from _term_page import unit_in
from unilab_managers import CommandTermCfg, mdp
from unilab_managers.cfg.term import called
from unilab_managers.managers.action_manager import ActionTermCfg
from unisim.config import Cfg

__all__ = ["KINDS", "REQUIRED", "Term", "first_paragraph", "parameters", "public_terms", "signature", "unit"]

KINDS = {
    "observation": "observations",
    "action": "actions",
    "command": "commands",
    "reward": "rewards",
    "termination": "terminations",
    "event": "events",
    "randomization": "events",
    "curriculum": "curriculum",
    "metric": "metrics",
    "recorder": "recorders",
}
"""Kinds of terms, as the names of their modules say, and where a config has them."""

REQUIRED = inspect.Parameter.empty
_PASSED = {"self", "cfg", "env", "env_ids", "host"}


@dataclass(frozen=True)
class Term:
    """One public term.

    Attributes:
        name: Its name in `mdp`.
        kind: A key of `KINDS`.
        thing: The function, class or config itself.
    """

    name: str
    kind: str
    thing: Any


def kind_of(module: str) -> str | None:
    """The kind of the terms of a module, as its name says; None: it holds no terms."""
    return next((kind for kind in reversed(KINDS) if kind in module), None)


def public_terms(library: ModuleType = mdp) -> Iterator[Term]:
    """Yields every term that the library exports, by name; what helps to write terms is none."""
    for name in sorted(library.__all__):
        thing = getattr(library, name)
        module = str(getattr(thing, "__module__", ""))
        kind = kind_of(module.removeprefix(f"{library.__name__}."))
        if kind is not None and module.startswith(library.__name__) and _is_term(kind, thing):
            yield Term(name, kind, thing)


def _is_term(kind: str, thing: Any) -> bool:
    if inspect.isclass(thing) and issubclass(thing, (ActionTermCfg, CommandTermCfg)):
        return "make" in vars(thing)  # a base leaves it to others
    if kind == "recorder":
        return inspect.isclass(thing)
    function = called(thing) if callable(thing) else None
    return function is not None and "env" in list(inspect.signature(function).parameters)[:2]


# ---------------------------------------------------------------- what is written about a term


def parameters(thing: Any) -> dict[str, tuple[str, Any]]:
    """The annotation, as it is written, and the default of each parameter; `REQUIRED` where there is none."""
    if inspect.isclass(thing) and issubclass(thing, Cfg):
        written = {n: a for base in reversed(thing.__mro__) for n, a in inspect.get_annotations(base).items()}
        return {
            name: (
                str(written[name]),
                REQUIRED if info.is_required() else info.get_default(call_default_factory=True),
            )
            for name, info in thing.model_fields.items()
        }
    found = inspect.signature(called(thing) or thing.__init__).parameters.values()
    return {p.name: (str(p.annotation), p.default) for p in found if p.name not in _PASSED}


def signature(term: Term) -> str:
    """How a term is written in a config: without what a manager passes to it."""
    parts = [
        f"{name}: {annotation}" + ("" if default is REQUIRED else f" = {_shown(default)}")
        for name, (annotation, default) in parameters(term.thing).items()
    ]
    return f"{term.name}({', '.join(parts)})"


def _shown(default: object) -> str:
    if isinstance(default, Cfg):
        given = [name for name in type(default).model_fields if name in default.model_fields_set]
        return f"{type(default).__name__}({', '.join(f'{n}={getattr(default, n)!r}' for n in given)})"
    return repr(default)


def first_paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def unit(term: Term) -> str:
    """The unit that its docstring states; empty where it states none."""
    function = called(term.thing) if callable(term.thing) else None
    texts = [first_paragraph(thing) for thing in dict.fromkeys((term.thing, function)) if thing is not None]
    return next((found for text in texts if (found := unit_in(text))), "")
