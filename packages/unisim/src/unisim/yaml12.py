"""Reads and writes YAML 1.2: `1e-3` is a number, `on` a string, `012` twelve."""

from __future__ import annotations

import io
from typing import Any

from unisim.errors import ConfigError

__all__ = ["dump", "load"]


def _yaml() -> Any:  # noqa: ANN401 - ruamel ships no stable type for its facade
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 110
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
    except YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML 1.2: {error}") from error


def dump(data: object) -> str:
    """Returns `data` (plain dicts, lists and scalars) as one YAML 1.2 document."""
    stream = io.StringIO()
    _yaml().dump(data, stream)
    return stream.getvalue()
