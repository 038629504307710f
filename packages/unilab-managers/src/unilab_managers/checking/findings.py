"""What a check says: findings, notes, and the report that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from unilab_managers.report import text_table

__all__ = ["CheckReport", "Finding", "merge"]


Kind = Literal["finding", "note", "symptom", "echo"]
"""A finding; a note, which is only worth knowing; a symptom, which another finding about the same term would explain;
an echo, which shows at one term and may come from another."""
_HIDDEN = ("purity", "reset-isolation", "determinism")
"""Checks whose findings about one term show at others."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a task, or worth knowing.

    Attributes:
        check: The check that found it.
        manager: Whose term it is, as in the config, for example `"rewards"`; empty where it is nobody's.
        term: Name of the term, for observations `"<group>/<term>"`; empty where it is no single term's.
        what: What was found.
        fix: What to do about it.
        kind: What it counts for, see `Kind`.
        also: What else was found because of the same thing: other checks, and where it shows if not here.
    """

    check: str
    manager: str
    term: str
    what: str
    fix: str
    kind: Kind = "finding"
    also: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Manager and term, `rewards/upright`; `task` where it is nobody's."""
        return "/".join(filter(None, (self.manager, self.term))) or "task"

    def in_text(self) -> str:
        """Returns one line: check, where, what, and what to do."""
        also = f" (so do: {', '.join(self.also)})" if self.also else ""
        return f"{self.check}{also}: {self.where}: {self.what}; {self.fix}"


@dataclass(frozen=True)
class CheckReport:
    """What came out of checking a task.

    Attributes:
        task: Its name.
        backend: Physics backend it ran on.
        device: Torch device.
        num_envs: N, rows.
        seed: The first seed.
        checks: Names of the checks that were asked for, in order.
        findings: What is wrong.
        notes: What is worth knowing.
    """

    task: str
    backend: str
    device: str
    num_envs: int
    seed: int
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def to_data(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        data = asdict(self)
        for kind in ("findings", "notes"):
            data[kind] = [
                {name: item[name] for name in ("check", "manager", "term", "what", "fix", "also")}
                for item in data[kind]
            ]
        return data | {"is_clean": self.is_clean}

    def in_text(self) -> str:
        """Returns tables of findings and notes and a verdict, at most 100 columns wide."""
        blocks = [
            f"{self.task} on {self.backend}, {self.device}: {self.num_envs} rows, seed {self.seed}; "
            f"{len(self.checks)} checks"
        ]
        for title, found in (("Findings", self.findings), ("Notes", self.notes)):
            if found:
                rows = [(item.check, item.where, item.what, item.fix) for item in found]
                blocks.append(f"{title}\n{text_table(('check', 'where', 'what', 'what to do'), rows)}")
        number = len(self.findings)
        blocks.append(f"{number} finding{'s'[: number != 1]}" if number else "CLEAN: no findings")
        return "\n\n".join(blocks)


def merge(found: Iterable[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Returns findings and notes, each once: what only follows from another finding is told with that one.

    A symptom belongs to a finding about the same term; one that names no term belongs to any. An echo belongs to a
    finding about the same term, else to any about what can show elsewhere. What belongs to none stands for itself.
    """
    unique = list(dict.fromkeys(found))
    roots = [item for item in unique if item.kind == "finding"]
    for kind in ("symptom", "echo"):
        for item in (item for item in unique if item.kind == kind):
            cause = _cause(item, roots)
            if cause is None:
                roots.append(item)
                continue
            root = roots[cause]
            said = item.check if item.where in (root.where, "task") else f"{item.check} at {item.where}"
            if said not in (root.check, *root.also):
                roots[cause] = replace(root, also=(*root.also, said))
    return tuple(roots), tuple(item for item in unique if item.kind == "note")


def _cause(item: Finding, roots: list[Finding]) -> int | None:
    """Returns which of the findings explains a symptom or an echo."""
    same = [i for i, root in enumerate(roots) if not item.term or root.where == item.where]
    if not same and item.kind == "echo":
        same = [i for i, root in enumerate(roots) if root.check in _HIDDEN]
    return same[0] if same else None
