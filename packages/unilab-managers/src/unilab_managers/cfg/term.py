"""The base of term configs: a function or a class, and parameters that fit its signature."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Union, get_args, get_origin

from pydantic import ValidationInfo, field_validator

from unilab_core.host_terms import is_host_term
from unisim.config import Cfg, FrozenDict, Params
from unisim.errors import nearest
from unisim.import_strings import Func

__all__ = ["TermCfg"]


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
        target = func.__call__ if inspect.isclass(func) else func
        return (cls.leading[0], "host", *cls.leading[1:]) if is_host_term(target) else cls.leading

    def all_params(self) -> dict[str, Any]:
        """Returns the parameters that the term is called with: those given, and the defaults of its signature."""
        target = self.func.__call__ if inspect.isclass(self.func) else self.func
        skipped = len(self._passed_to(self.func)) + inspect.isclass(self.func)
        own = list(inspect.signature(target).parameters.values())[skipped:]
        defaults = {p.name: p.default for p in own if p.default is not p.empty}
        return {**defaults, **self.params}


def _bind(func: Callable[..., Any], params: Mapping[str, Any], leading: tuple[str, ...]) -> dict[str, Any]:
    """Checks parameter names against the term's signature and turns plain data into the configs it declares."""
    target = func
    if inspect.isclass(func):
        if not any("__call__" in vars(base) for base in func.__mro__):
            raise ValueError(
                f"class term {func.__name__} has no __call__; define __call__(self, {', '.join(leading)}, **params)"
            )
        target = func.__call__
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
    if not any(p.kind is p.VAR_KEYWORD for p in accepted):
        for name in params:
            if name not in own:
                raise ValueError(f"{func.__name__} has no parameter {name!r}; {nearest(name, own)}")
    for name, p in own.items():
        if p.default is p.empty and name not in params:
            raise ValueError(f"{func.__name__} needs parameter {name!r}")
    return {
        name: _as_declared(value, own[name].annotation, target) if name in own else value
        for name, value in params.items()
    }


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
