"""How the documentation is built: `nox -s docs`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("unisim", "unilab_core", "unilab_managers", "unilab_rl", "unilab_tasks")

project = "UniLab workspace"
author = "The UniLab workspace authors"
extensions = ["myst_parser", "sphinx.ext.apidoc", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "results"]
html_theme = "furo"
html_title = "UniLab workspace"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
myst_heading_anchors = 3

# The API reference is the docstrings of every public module.
apidoc_modules = [
    {
        "path": str(ROOT / "packages" / name.replace("_", "-") / "src" / name),
        "destination": f"api/{name}",
        "separate_modules": True,
        "max_depth": 2,
        "implicit_namespaces": False,
    }
    for name in PACKAGES
]
autodoc_default_options = {
    "members": True,
    "ignore-module-all": True,
    "show-inheritance": True,
    "member-order": "bysource",
}
autodoc_use_type_comments = False  # there are none; looking for them parses the source of every function
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an attribute is described once, where it is declared


def _prose(line: str) -> str:
    """A line of a docstring, its code in double backticks and nothing else marked."""
    parts = re.split(r"(?<!`)(`[^`]+`)(?!`)", line)
    return "".join(f"`{part}`" if j % 2 else re.sub(r"([*|])", r"\\\1", part) for j, part in enumerate(parts))


def _converted(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        fence = re.fullmatch(r"( *)```(\w*)", line)
        if fence and not inside:
            yield ""
            yield f"{fence[1]}.. code-block:: {fence[2] or 'text'}"
            yield ""
        elif fence:
            yield ""
        else:
            yield f"    {line}" if inside else _prose(line)
        inside ^= bool(fence)


def _as_restructured_text(
    app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Docstrings quote code as Markdown does, in single backticks or fences, and know no emphasis."""
    lines[:] = _converted(lines)


def _fold_other_branches(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The sidebar unfolds the branch of its page only: all of it on each page takes the square of their number."""
    if navigation := context.get("toctree"):
        context["toctree"] = lambda **options: navigation(**options | {"collapse": True})


def _import_the_heavy(app: Any) -> None:
    """A build with several jobs reads pages in processes that are forked a few pages each: none imports torch anew."""
    for name in ("unilab_rl.adapters.rsl_rl.ppo", "unisim.backends.mujoco_warp.backend"):
        importlib.import_module(name)


def setup(app: Any) -> None:
    """Connects before napoleon and the theme, which have priority 500."""
    app.connect("builder-inited", _import_the_heavy)
    app.connect("autodoc-process-docstring", _as_restructured_text, priority=400)
    app.connect("html-page-context", _fold_other_branches, priority=400)
