"""The config base of the backend layer, under this package's name for layers that do not import `unisim`."""

from unisim.config import Cfg, FrozenDict, Params, parse_overrides
from unisim.import_strings import Func, import_object, import_string
from unisim.render import CameraCfg

__all__ = [
    "CameraCfg",
    "Cfg",
    "FrozenDict",
    "Func",
    "Params",
    "import_object",
    "import_string",
    "parse_overrides",
]
