"""Import strings `"package.module:name"`: how a config names code, both ways."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator

from unisim.errors import ConfigError, nearest
from unisim.plugins import PLUGIN_FAILURES

__all__ = ["Func", "import_object", "import_string", "to_callable"]


def import_object(text: str) -> Any:  # noqa: ANN401 - whatever the string names
    """Returns the object that `"package.module:name"` names.

    Raises:
        ConfigError: Not of that form, or the module or the name does not exist.
    """
    module_name, colon, qualname = text.partition(":")
    if not colon or not module_name or not qualname:
        raise ConfigError(f"{text!r} is not an import string; expected 'package.module:name'")
    try:
        found: Any = importlib.import_module(module_name)
    except PLUGIN_FAILURES as error:
        raise ConfigError(f"{text!r}: cannot import module {module_name!r} ({error})") from error
    for part in qualname.split("."):
        if not hasattr(found, part):
            names = [n for n in dir(found) if not n.startswith("_")]
            raise ConfigError(f"{text!r}: {module_name!r} has no {part!r}; {nearest(part, names)}")
        found = getattr(found, part)
    return found


def import_string(obj: Any) -> str:  # noqa: ANN401 - any function or class
    """Returns the `"package.module:name"` under which `obj` can be imported again.

    Raises:
        ConfigError: A lambda, a partial, a bound or a local function, or what its module has under another name: no
            import string leads back to it.
    """
    module = getattr(obj, "__module__", None)
    qualname = getattr(obj, "__qualname__", None)
    if module is None or qualname is None:
        raise ConfigError(f"{obj!r} has no import string; use a function or class defined at module level")
    if "<" in qualname:
        raise ConfigError(
            f"{module}:{qualname} is a lambda or a local function, which no import string leads back to; "
            "define it at module level"
        )
    if inspect.ismethod(obj) and not inspect.isclass(obj.__self__):
        raise ConfigError(
            f"{module}:{qualname} is a method of one object; use a function defined at module level"
        )
    # A function of C may know itself by a class that its module does not show: `torch.relu`.
    for name in dict.fromkeys((qualname, getattr(obj, "__name__", qualname))):
        if _leads_to(f"{module}:{name}", obj):
            return f"{module}:{name}"
    raise ConfigError(
        f"{module}:{qualname} does not lead back to {obj!r}; use a function or class by its name at module level"
    )


def _leads_to(text: str, obj: object) -> bool:
    try:
        found = import_object(text)
    except ConfigError:
        return False
    # A method of a class is made anew at every look.
    return found is obj or (inspect.ismethod(obj) and bool(found == obj))


def to_callable(value: object) -> object:
    """Returns the function or class that `value` is, or that it names as an import string.

    Raises:
        ConfigError: Not callable, or no import string leads back to it.
    """
    if isinstance(value, str):
        value = import_object(value)
    if not callable(value):
        raise ConfigError(f"{value!r} is not callable; expected a function, a class or 'package.module:name'")
    import_string(value)
    return value


Func = Annotated[Callable[..., Any], BeforeValidator(to_callable)]
"""A config field that holds a module-level function or class, given as such or as an import string."""
