"""Reads and writes YAML 1.2: `1e-3` is a number, `on` a string, `012` twelve."""

from __future__ import annotations

import functools
import io
import re
from typing import Any

from unisim.errors import ConfigError

__all__ = ["dump", "load"]

_CORE_SCHEMA = (  # chapter 10.3.2 of YAML 1.2: kind, form, first characters
    ("null", r"null|Null|NULL|~|", ("n", "N", "~", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", tuple("-+.0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", tuple("-+.")),
)


@functools.cache
def _resolver() -> type:
    """Returns the class that tells plain scalars apart; ruamel's own also knows dates, `0b1`, `1_000` and `<<`."""
    from ruamel.yaml.resolver import VersionedResolver

    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for kind, form, first in _CORE_SCHEMA:
        for character in first:
            table.setdefault(character, []).append(
                (f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{form})\Z"))
            )

    class CoreResolver(VersionedResolver):
        @property
        def versioned_resolver(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
            return table

    return CoreResolver


def _yaml() -> Any:  # noqa: ANN401 - ruamel ships no stable type for its facade
    from ruamel.yaml import YAML

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Resolver = _resolver()
    yaml.default_flow_style = False
    # Folded lines and raw line separators do not survive the way back.
    yaml.width, yaml.allow_unicode = 1_000_000, False
    # A mapping keeps its order: the order of terms is the order of evaluation.
    yaml.sort_base_mapping_type_on_output = False
    return yaml


def load(text: str, *, source: str = "YAML") -> Any:  # noqa: ANN401 - any YAML document
    """Returns the plain data (dict, list, str, int, float, bool, None) that `text` describes.

    Args:
        text: One YAML 1.2 document.
        source: What the text is, for the error message.

    Raises:
        ConfigError: The text is not valid YAML, or repeats a key.
    """
    from ruamel.yaml.error import YAMLError

    try:
        return _yaml().load(text)
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: not valid YAML 1.2: {error}") from error


def dump(data: object) -> str:
    """Returns `data` (plain dicts, lists and scalars) as one YAML 1.2 document."""
    stream = io.StringIO()
    _yaml().dump(data, stream)
    return stream.getvalue()
