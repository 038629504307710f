"""The base of every config: frozen, strict, closed, and the same after a YAML round trip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, Self, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from unisim import yaml12
from unisim.errors import ConfigError, nearest
from unisim.import_strings import import_object, import_string, to_callable

__all__ = ["Cfg", "FrozenDict", "Params", "parse_overrides"]

_TARGET = "_target_"
_FUNC = "_func_"


class FrozenDict(dict[str, Any]):
    """A dict that refuses to change, so that a frozen config is frozen all the way down."""

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("a config is frozen; make a changed copy with cfg.with_({'path.to.field': value})")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        """Pickles by value: a plain dict's protocol would call `__setitem__`."""
        return (FrozenDict, (dict(self),))


def _thaw(value: object) -> object:
    """Turns the lists of YAML and JSON into tuples; configs and everything else stay as they are."""
    if isinstance(value, list | tuple):
        return tuple(_thaw(v) for v in value)
    if isinstance(value, Mapping):
        return {k: _thaw(v) for k, v in value.items()}
    return value


def _freeze(value: object) -> object:
    if isinstance(value, dict):
        return FrozenDict({k: _freeze(v) for k, v in value.items()})
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_freeze(v) for v in value)
    return value


def _plain_param(value: object, path: str) -> object:
    """Normalises one value of a term's `params` to something that YAML gives back unchanged."""
    if isinstance(value, Cfg) or value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):  # an enum's member or a NumPy scalar becomes what it stands for
            plain = kind(value)
            if not isinstance(plain, str) and not math.isfinite(plain):
                raise ValueError(f"{path} is {value}; expected a finite number")
            return plain
    if isinstance(value, list | tuple):
        return tuple(_plain_param(v, f"{path}[{i}]") for i, v in enumerate(value))
    if isinstance(value, Mapping):
        if isinstance(value.get(_TARGET), str):
            target = _import_target(value[_TARGET], Cfg)
            return target.model_validate({k: v for k, v in value.items() if k != _TARGET})
        if value.keys() == {_FUNC}:
            return to_callable(value[_FUNC])
        return FrozenDict({str(k): _plain_param(v, f"{path}.{k}") for k, v in value.items()})
    if callable(value):
        import_string(value)
        return value
    raise ValueError(
        f"{path} is a {type(value).__name__}; expected numbers, strings, tuples, dicts, functions or configs"
    )


def _plain_params(value: Mapping[str, Any]) -> FrozenDict:
    return FrozenDict({str(k): _plain_param(v, str(k)) for k, v in value.items()})


Params = Annotated[Mapping[str, Any], AfterValidator(_plain_params)]
"""Keyword arguments of a term: plain values, functions and configs, frozen."""


def _import_target(named: object, base: type[Cfg]) -> type[Cfg]:
    target = import_object(named) if isinstance(named, str) else named
    if not (isinstance(target, type) and issubclass(target, base)):
        raise ConfigError(f"{_TARGET}: {named!r} is not a subclass of {base.__name__}")
    return target


class Cfg(BaseModel):
    """Base of every config: immutable, strict about types, closed to unknown keys, finite numbers only.

    A subclass of a config may stand wherever its base is declared; in YAML it says so by `_target_`.
    Lists become tuples and dicts are frozen, so a config cannot change under the code that holds it.

    Raises:
        ConfigError: On any construction (also by `model_copy`, `with_`, `from_yaml`) with a wrong value or key;
            the message names each dotted path, what was given and what was expected.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    def __init__(self, **data: Any) -> None:  # noqa: ANN401 - pydantic's own signature
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _config_error(type(self), error) from error

    # Tells pydantic that this is its own constructor, so that nested configs are validated in
    # place and an error keeps its whole path instead of starting anew at every level.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:  # noqa: ANN401 - pydantic's own signature
        """Returns the config that `obj` describes; like pydantic's, with this project's error."""
        try:
            return super().model_validate(obj, **kwargs)
        except ValidationError as error:
            raise _config_error(cls, error) from error

    @model_validator(mode="wrap")
    @classmethod
    def _resolve_target(cls, data: Any, handler: Callable[[Any], Self]) -> Self:  # noqa: ANN401
        if not isinstance(data, Mapping):
            return handler(data)
        fields = {k: _thaw(v) for k, v in data.items() if k != _TARGET}
        target = cls
        if _TARGET in data:
            target = _import_target(data[_TARGET], cls)  # type: ignore[assignment]
        if target is not cls:
            cfg: Self = target.__pydantic_validator__.validate_python(fields)
            return cfg
        for key in fields:
            if key not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key {key}; {hint}",
                    {"key": repr(key), "name": str(key), "hint": nearest(str(key), cls.model_fields)},
                )
        cfg = handler(fields)
        for name, value in cfg.__dict__.items():
            cfg.__dict__[name] = _freeze(value)
        return cfg

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy with `update` applied and everything validated again (pydantic's is not)."""
        del deep  # a frozen config shares nothing that could change
        return type(self)(**{**self.__dict__, **(update or {})})

    def with_(self, overrides: Mapping[str, Any]) -> Self:
        """Returns a copy with dotted overrides applied, all or none.

        Args:
            overrides: Dotted path to value, for example `{"rewards.upright.weight": 2.0}`. `None` for an entry
                of a mapping of terms or numbers removes the entry; a parameter in `params` becomes None. Keys may be
                added to `params` and to mappings of plain numbers: their owner checks the names.

        Raises:
            TypeError: `overrides` is not a mapping.
            ConfigError: A path does not exist (with the nearest names), or a value is not valid there.
        """
        if not isinstance(overrides, Mapping):
            raise TypeError(
                f"{type(self).__name__}.with_: overrides is {type(overrides).__name__}, expected a mapping"
            )
        tree: dict[str, Any] = {}
        for path, value in overrides.items():
            _plant(tree, path, value)
        return type(self).model_validate(_graft(self, tree, "", "closed"))

    def with_yaml(self, text: str, *, source: str = "YAML") -> Self:
        """Returns a copy with the overrides that a YAML 1.2 document lists, all or none.

        Args:
            text: A mapping of dotted paths to values, as `with_` takes it.
            source: What it is (a path), for the error message.

        Raises:
            ConfigError: Not YAML, not a mapping, or an override that is not valid; the message begins with `source`.
        """
        overrides = _load_mapping(text, source, "overrides, for example 'rewards.upright.weight: 2'")
        try:
            return self.with_(overrides)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error

    def to_data(self) -> dict[str, Any]:
        """Returns plain dicts, lists and scalars that `model_validate` turns back into an equal config.

        `_target_` names the class of the config itself and of every part that its field's annotation does not name.
        """
        data = _to_data(self, None, free=False)
        assert isinstance(data, dict)
        return data

    def to_yaml(self) -> str:
        """Returns the config as a YAML 1.2 document; `from_yaml` gives an equal config back."""
        return yaml12.dump(self.to_data())

    @classmethod
    def from_yaml(cls, text: str, *, source: str = "YAML") -> Self:
        """Returns the config that a YAML 1.2 document describes.

        Args:
            text: The document.
            source: What it is (a path), for the error message.

        Raises:
            ConfigError: Not YAML, not a mapping, or not a valid config.
        """
        return cls.model_validate(_load_mapping(text, source, f"{cls.__name__} fields"))


def _load_mapping(text: str, source: str, what: str) -> Mapping[str, Any]:
    data = yaml12.load(text, source=source)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source}: got {type(data).__name__}, expected a mapping of {what}")
    return data


def _to_data(value: object, declared: object, *, free: bool) -> object:
    """Returns plain data; a config says its class by `_target_` unless `declared` already says exactly that.

    Where values are `free`, as in `params`, a function says by `_func_` that it is no string.
    """
    if isinstance(value, Cfg):
        head = {} if type(value) in _classes(declared) else {_TARGET: import_string(type(value))}
        fields = type(value).model_fields
        return head | {
            name: _to_data(getattr(value, name), field.annotation, free=_openness(field.annotation) == "free")
            for name, field in fields.items()
        }
    if isinstance(value, Mapping):
        return {k: _to_data(v, declared, free=free) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_to_data(v, declared, free=free) for v in value]
    if callable(value):
        return {_FUNC: import_string(value)} if free else import_string(value)
    return value


def _classes(annotation: object) -> set[object]:
    """Returns the classes named anywhere in a field's annotation, `dict[str, A] | None` giving A."""
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation}
    return {found for part in get_args(annotation) for found in _classes(part)}


_Openness = Literal["closed", "numbers", "free"]


def _openness(annotation: object) -> _Openness:
    """Returns what keys an override may add to a field: none, named numbers, or anything (as in `params`)."""
    for kind in _alternatives(annotation):
        origin = get_origin(kind)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            held = _alternatives(get_args(kind)[1])
            if held == [Any]:
                return "free"
            if all(value in (int, float) for value in held):
                return "numbers"
    return "closed"


def _alternatives(annotation: object) -> list[object]:
    """Returns what an annotation allows, one by one: the members of a union, without their constraints."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _alternatives(part)]
    return [annotation]


def _plant(tree: dict[str, Any], path: object, value: object) -> None:
    if not isinstance(path, str):
        raise ConfigError(f"override {path!r} is {type(path).__name__}, expected 'path.to.field'")
    *parents, leaf = path.split(".")
    if not all(path.split(".")):
        raise ConfigError(f"override {path!r}: empty name in the path; expected 'path.to.field'")
    node = tree
    for i, name in enumerate(parents):
        child = node.setdefault(name, _Branch())
        if not isinstance(child, _Branch):
            raise ConfigError(f"override {path!r} contradicts the override of {'.'.join(parents[: i + 1])!r}")
        node = child
    if leaf in node:
        raise ConfigError(f"override {path!r} is given twice or contradicts an override below it")
    node[leaf] = value


class _Branch(dict[str, Any]):
    """An inner node of the override tree, told apart from a dict given as a value."""


def _graft(node: object, tree: Mapping[str, Any], path: str, openness: _Openness) -> object:
    """Returns `node` with the overrides of `tree` in place, as data to validate once from the root."""
    if isinstance(node, Cfg):
        fields: dict[str, Any] = dict(node.__dict__)
        valid: Iterable[str] = type(node).model_fields
        openness = "closed"
    elif isinstance(node, Mapping):
        fields, valid = dict(node), node
    else:
        raise ConfigError(f"override {path!r}: nothing lies below it; it holds {_short(node)}")
    for name, sub in tree.items():
        here = f"{path}.{name}" if path else name
        added = name not in fields
        if added and (openness == "closed" or (openness == "numbers" and sub is None)):
            raise ConfigError(f"override {here!r}: unknown key {name!r}; {_one_step_on(name, fields, valid)}")
        if isinstance(sub, _Branch):
            below = _openness(type(node).model_fields[name].annotation) if isinstance(node, Cfg) else openness
            fields[name] = _graft(fields.get(name), sub, here, below)
        elif sub is None and isinstance(node, Mapping) and openness != "free":
            fields.pop(name)
        else:
            fields[name] = sub
    if isinstance(node, Cfg):
        fields[_TARGET] = type(node)
    return fields


def _one_step_on(name: str, fields: Mapping[str, Any], valid: Iterable[str]) -> str:
    """Returns what may have been meant by a key that is not there: one that lies a step deeper, or the nearest."""
    children = {key: value.__dict__ if isinstance(value, Cfg) else value for key, value in fields.items()}
    deeper = [key for key, value in children.items() if isinstance(value, Mapping) and name in value]
    if deeper:
        return f"did you mean {' or '.join(repr(f'{key}.{name}') for key in deeper)}?"
    return nearest(name, valid)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Returns `{"path.to.field": value}` of command-line texts `PATH=VALUE`.

    VALUE is a YAML 1.2 scalar or flow value: `2`, `1e-3`, `true`, `null` or `None`, `[0, 1]`, `{a: 1}`.

    Raises:
        ConfigError: No `=`, an empty path, a path given twice, or VALUE is not YAML.
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not path:
            raise ConfigError(f"override {text!r}: expected PATH=VALUE, for example rewards.upright.weight=2")
        if path in overrides:
            raise ConfigError(f"override {path!r} is given twice")
        overrides[path] = None if value.strip() == "None" else yaml12.load(value, source=f"override {text!r}")
    return overrides


def _config_error(cls: type[Cfg], error: ValidationError) -> ConfigError:
    lines = []
    for item in error.errors():
        where = [str(part) for part in item["loc"]]
        if item["type"] == "unknown_key":
            where.append(item["ctx"]["name"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] not in ("missing", "value_error", "unknown_key"):
            message += f" (got {_short(item['input'])})"
        lines.append(f"{'.'.join(where)}: {message}" if where else message)
    return ConfigError(f"{cls.__name__}: " + "\n  ".join(["", *lines] if len(lines) > 1 else lines))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
