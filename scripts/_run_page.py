"""Runs the examples of one page, one after the other in one namespace: `python _run_page.py <page>`.

A block `python` is executed, a block `pycon` is a doctest. Failures name the lines of the page.
"""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from types import ModuleType

from _pages import Block, Page


def run(page: Page) -> int:
    """The number of doctest examples that fail; any other failure is raised."""
    module = ModuleType("page")
    sys.modules["page"] = module  # where pydantic and pickle look for what a page defines
    failed = 0
    for block in page.blocks:
        if block.language == "python":
            # Empty lines before it, so that a traceback shows lines of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(page.path), "exec"), vars(module))
        elif block.language == "pycon":
            failed += _doctest(block, page, module)
    return failed


def _doctest(block: Block, page: Page, module: ModuleType) -> int:
    path = str(page.path)
    test = doctest.DocTestParser().get_doctest(block.text, vars(module), path, path, block.line - 1)
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False).failed
    vars(module).update(test.globs)  # a doctest works on a copy
    return failed


if __name__ == "__main__":
    raise SystemExit(bool(run(Page.read(Path(sys.argv[1])))))
