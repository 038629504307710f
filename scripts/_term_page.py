"""The page docs/terms.md as text. Only the standard library, so that its tests run without the packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["COMMAND", "SECTIONS", "Row", "page_text", "unit_in"]

COMMAND = "nox -s terms"

_BASE_UNIT = r"(?:kg|rad|m|s|N|W|J)(?:\^\d)?"
_ONE_UNIT = rf"{_BASE_UNIT}(?: {_BASE_UNIT})*(?:/{_BASE_UNIT})?"
_UNITS = rf"{_ONE_UNIT}(?: or {_ONE_UNIT})*(?![\w-])"
_SHAPE = re.compile(r"\(N(?:,[^()]*)?\)")
_BEHIND_A_SHAPE = re.compile(rf"{_SHAPE.pattern} (?P<unit>{_UNITS})")
_BEHIND_A_COMMA = re.compile(rf", (?P<unit>{_UNITS})")

_HEAD = f"""# Term library

Made of the code by `{COMMAND}`, not by hand: every term that `unilab_managers.mdp` exports, as it is written in a
config. What it reads and writes was found by running it, as `unilab explain` does for the terms of a task.

- Reads: columns of the read packet (`qpos`, `qvel`, `qacc`, `actuator_force`, and of what a parameter names: `body`,
  `site`, `sensor`, `substep`), then what else it looks at. What a reset event starts from is staged and no read.
- Units: of the columns or the value; of a randomisation, of what it draws. Empty: a number without one.
- `N` is the number of rows; a manager passes `env` and `env_ids`, a config everything else.
"""


@dataclass(frozen=True)
class Section:
    """The terms of one kind.

    Attributes:
        title: The heading.
        text: A sentence or two about them.
        columns: Which parts of a row are shown, and how they are called.
    """

    title: str
    text: str
    columns: Mapping[str, str]


_VALUE = {"signature": "term", "reads": "reads", "unit": "unit", "summary": "what it gives"}
_CHANGE = {
    "signature": "term",
    "reads": "reads",
    "writes": "writes",
    "unit": "unit",
    "summary": "what it does",
}
_SETTING = {key: title for key, title in _CHANGE.items() if key != "unit"}
SECTIONS: Mapping[str, Section] = {
    "observation": Section(
        "Observations",
        "Each gives columns, `(N, dim)`. Noise, clip, scale, latency (`delay_min_lag`, `delay_max_lag`) and history "
        "are settings of any of them: see [Observations](observations.md).",
        _VALUE,
    ),
    "action": Section(
        "Actions",
        "Each writes the control of the actuators that drive its joints, and the unit is that of the control. Arriving "
        "late is a setting of any of them: `delay_min_lag`, `delay_max_lag`.",
        _CHANGE,
    ),
    "command": Section(
        "Commands",
        "Each holds what the robot is asked to do, drawn anew by a timer, and on any condition `(N,)` bool in "
        "`resample_when`: see [Commands](commands.md).",
        {"signature": "term", "reads": "reads", "holds": "what it holds", "summary": "what it is"},
    ),
    "reward": Section("Rewards", "Each gives `(N,)`, before its weight.", _VALUE),
    "termination": Section(
        "Terminations",
        "Each gives `(N,)` bool.",
        {key: _VALUE[key] for key in ("signature", "reads", "summary")},
    ),
    "event": Section(
        "Events",
        "Each does something to rows, in the mode that its config says: see [Events](events.md).",
        _SETTING,
    ),
    "randomization": Section(
        "Randomisation",
        "Events that give each row a model of its own, from stored nominal values. Latency is drawn per row too, by "
        "actions and observations themselves: `delay_min_lag`, `delay_max_lag`.",
        _CHANGE,
    ),
    "curriculum": Section(
        "Curricula", "Each changes what managers hold at run time, never the config.", _SETTING
    ),
    "metric": Section("Metrics", "Each gives `(N,)`, for the log only.", _VALUE),
    "recorder": Section(
        "Recorders",
        "Each keeps what happens.",
        {key: _SETTING[key] for key in ("signature", "reads", "summary")},
    ),
}
"""By kind, in the order of the page."""


@dataclass(frozen=True)
class Row:
    """What the page says of one term; see `SECTIONS` for what is shown of which kind."""

    name: str
    kind: str
    signature: str
    summary: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unit: str = ""
    holds: str = ""

    def cell(self, part: str) -> str:
        """One part of it as Markdown."""
        value: str | tuple[str, ...] = getattr(self, part)
        if isinstance(value, tuple):
            return _prose(", ".join(value))
        if part == "signature":
            return "`" + value.replace("|", r"\|") + "`"
        return _prose(value)


def _prose(text: str) -> str:
    """Text of a docstring in a cell: code stays code, and nothing else is marked."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part.replace("|", r"\|") if part.startswith("`") else re.sub(r"([*|<\[\]])", r"\\\1", part)
        for part in parts
    )


def page_text(rows: Iterable[Row]) -> str:
    """The whole page.

    Raises:
        ValueError: A term of a kind that the page has no section for.
    """
    by_kind: dict[str, list[Row]] = {kind: [] for kind in SECTIONS}
    for row in rows:
        if row.kind not in by_kind:
            raise ValueError(f"{row.name}: no section is for kind {row.kind!r}")
        by_kind[row.kind].append(row)
    return "\n".join([_HEAD, *(_section(SECTIONS[kind], own) for kind, own in by_kind.items())])


def _section(section: Section, rows: list[Row]) -> str:
    lines = [f"## {section.title}", "", section.text, ""]
    lines.append("| " + " | ".join(section.columns.values()) + " |")
    lines.append("| " + " | ".join("---" for _ in section.columns) + " |")
    for row in rows:
        lines.append("| " + " | ".join(row.cell(part) for part in section.columns) + " |")
    return "\n".join(lines) + "\n"


def unit_in(sentence: str) -> str:
    """The unit of the value that a sentence is about: behind a shape, `(N,) m/s`, else behind a comma; or none."""
    if shape := _SHAPE.search(sentence):
        # What else has a unit in that sentence is another thing: `(N,) in (0, 1]; std in m/s`.
        found = _BEHIND_A_SHAPE.match(sentence, shape.start())
    else:
        found = _BEHIND_A_COMMA.search(sentence)
    return found["unit"] if found else ""
