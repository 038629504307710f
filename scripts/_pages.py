"""What the checks know of a Markdown page: its code blocks, headings, links and code spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"#{1,6} +(?P<title>.+?)(?: +#+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language (empty if none is said), its text, and the line that its text begins on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        """The page of a file."""
        return cls(path, path.read_text())

    @cached_property
    def _parts(self) -> tuple[list[tuple[int, str]], list[Block]]:
        """Lines of prose with their numbers, and the blocks between them."""
        prose: list[tuple[int, str]] = []
        blocks: list[Block] = []
        opened: tuple[str, str, int] | None = None
        code: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            fence = _FENCE.fullmatch(line)
            if opened is None and fence:
                opened, code = (fence["marks"], (fence["info"].split() or [""])[0], number + 1), []
            elif opened is None:
                prose.append((number, line))
            elif fence and fence["marks"].startswith(opened[0]) and not fence["info"].strip():
                blocks.append(Block(opened[1], "\n".join(code) + "\n", opened[2]))
                opened = None
            else:
                code.append(line)
        if opened is not None:
            raise ValueError(f"{self.path}:{opened[2] - 1}: a block is opened and never closed")
        return prose, blocks

    @property
    def blocks(self) -> list[Block]:
        """The fenced blocks, in order."""
        return self._parts[1]

    @property
    def spans(self) -> Iterator[tuple[int, str]]:
        """Line and text of each piece of inline code."""
        for number, line in self._parts[0]:
            for match in _SPAN.finditer(line):
                yield number, match[1]

    @property
    def links(self) -> Iterator[tuple[int, str]]:
        """Line and target of each link and image."""
        for number, line in self._parts[0]:
            for match in _LINK.finditer(_SPAN.sub(lambda code: "x" * len(code[0]), line)):
                yield number, match["target"]

    @property
    def anchors(self) -> set[str]:
        """What `#...` of a link may name: one anchor per heading, numbered where headings are alike."""
        found: set[str] = set()
        for _, line in self._parts[0]:
            if heading := _HEADING.fullmatch(line):
                plain = anchor = _slug(heading["title"])
                count = 0
                while anchor in found:
                    count += 1
                    anchor = f"{plain}-{count}"
                found.add(anchor)
        return found


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
