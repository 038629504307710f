"""Makes docs/terms.md of the code; run through `nox -s terms`. `check_docs.py` asks whether it is current."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from pathlib import Path

from _term_page import COMMAND, Row, page_text

__all__ = ["PAGE", "errors", "rows"]

PAGE = Path("docs/terms.md")
ROOT = Path(__file__).resolve().parent.parent


def rows() -> Iterator[Row]:
    """What there is to say of every term, by name; each is run.

    Raises:
        LookupError: A term cannot be tried, or states nothing about itself.
    """
    # Where the packages are.
    from _term_trial import try_term
    from _terms import first_paragraph, public_terms, signature, unit

    logging.getLogger("unilab_managers").setLevel(
        logging.ERROR
    )  # events whose timers are longer than an episode
    for term in public_terms():
        shown = try_term(term)
        summary = first_paragraph(term.thing)
        if not summary:
            raise LookupError(f"{term.name} has no docstring")
        yield Row(
            term.name,
            term.kind,
            signature(term),
            summary,
            tuple(shown.reads),
            ("control",) if term.kind == "action" else tuple(shown.writes),
            unit(term) or ", ".join(shown.units),
            shown.holds,
        )


def errors(root: Path) -> Iterator[str]:
    """Whether the page is what the code says."""
    wanted, found = page_text(rows()).splitlines(), (root / PAGE).read_text().splitlines()
    if wanted != found:
        changes = [line for line in difflib.unified_diff(found, wanted, lineterm="", n=0) if line[0] in "+-"]
        yield f"{PAGE} is not what the code says; make it again: {COMMAND}\n" + "\n".join(changes[2:12])


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page_text(rows()))
    print(f"{PAGE} is made")
