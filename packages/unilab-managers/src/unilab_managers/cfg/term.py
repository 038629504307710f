"""The base of term configs: a function or a class, and parameters that fit its signature."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Union, get_args, get_origin

from pydantic import ValidationInfo, field_validator

from unilab_core.host_terms import is_host_term
from unisim.config import Cfg, FrozenDict, Params
from unisim.errors import nearest
from unisim.import_strings import Func

__all__ = ["TermCfg", "called", "check_names"]


def called(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns what a manager calls of a term: a function itself, `__call__` of a class; None where it has none."""
    if not inspect.isclass(func):
        return func
    has_call = any("__call__" in vars(base) for base in func.__mro__)  # every class itself can be called
    return func.__call__ if has_call else None


class TermCfg(Cfg):
    """Base of terms that are a function `f(env, **params)` or a class `T(cfg, env)` with such a `__call__`."""

    leading: ClassVar[tuple[str, ...]] = ("env",)
    """The arguments that the manager passes; `params` holds all others."""

    func: Func
    params: Params = {}

    @field_validator("params")
    @classmethod
    def _match_signature(cls, params: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        func = info.data.get("func")
        return params if func is None else FrozenDict(_bind(func, params, cls._passed_to(func)))

    @classmethod
    def _passed_to(cls, func: Callable[..., Any]) -> tuple[str, ...]:
        """Returns the arguments that the manager passes: a host term also gets its columns, after the environment."""
        is_host = is_host_term(called(func) or func)
        return (cls.leading[0], "host", *cls.leading[1:]) if is_host else cls.leading

    def all_params(self) -> dict[str, Any]:
        """Returns the parameters that the term is called with: those given, and the defaults of its signature."""
        skipped = len(self._passed_to(self.func)) + inspect.isclass(self.func)
        own = list(inspect.signature(called(self.func) or self.func).parameters.values())[skipped:]
        defaults = {p.name: p.default for p in own if p.default is not p.empty}
        return {**defaults, **self.params}


def _bind(func: Callable[..., Any], params: Mapping[str, Any], leading: tuple[str, ...]) -> dict[str, Any]:
    """Checks parameter names against the term's signature and turns plain data into the configs it declares."""
    target = called(func)
    if target is None:
        raise ValueError(
            f"class term {func.__name__} has no __call__; define __call__(self, {', '.join(leading)}, **params)"
        )
    if inspect.isclass(func):
        leading = ("self", *leading)
    accepted = list(inspect.signature(target).parameters.values())
    passed = [p for p in accepted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][: len(leading)]
    if len(passed) < len(leading) and not any(p.kind is p.VAR_POSITIONAL for p in accepted):
        raise ValueError(
            f"{func.__name__} takes {len(passed)} arguments; expected ({', '.join(leading)}, **params)"
        )
    own = {
        p.name: p for p in accepted if p not in passed and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    check_names(func, params, own, accepted)
    return {
        name: _as_declared(value, own[name].annotation, target) if name in own else value
        for name, value in params.items()
    }


def check_names(
    func: Callable[..., Any],
    params: Mapping[str, Any],
    own: Mapping[str, inspect.Parameter],
    accepted: Iterable[inspect.Parameter],
) -> None:
    """Checks that `params` are parameters of `func`, and all that it needs.

    Args:
        func: A function or class, for the error message.
        params: What is given by name.
        own: The parameters that may be given by name.
        accepted: All parameters; with `**` among them any name may be given.

    Raises:
        ValueError: One is unknown (with the nearest) or missing.
    """
    if not any(p.kind is p.VAR_KEYWORD for p in accepted):
        for name in params:
            if name not in own:
                raise ValueError(f"{func.__name__} has no parameter {name!r}; {nearest(name, own)}")
    for name, p in own.items():
        if p.default is p.empty and name not in params:
            raise ValueError(f"{func.__name__} needs parameter {name!r}")


def _as_declared(value: object, annotation: object, target: Callable[..., Any]) -> object:
    """Turns a plain mapping into the config that the parameter is annotated with, if it is."""
    if not isinstance(value, Mapping):
        return value
    if isinstance(annotation, str):  # postponed; what only type checkers import is no config to make here
        try:
            annotation = eval(annotation, getattr(inspect.unwrap(target), "__globals__", {}))
        except (AttributeError, NameError, SyntaxError, TypeError):
            return value
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for option in options:
        if isinstance(option, type) and issubclass(option, Cfg):
            return option.model_validate(value)
    return value
