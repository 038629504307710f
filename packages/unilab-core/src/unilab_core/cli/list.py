"""`unilab list`: what this machine can train, with what, and which combinations are known to work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import click

from unilab_core.evidence import Combination, combinations, find_task_evidence
from unilab_core.registry import list_tasks
from unisim.evidence import BackendEvidence, find_backend_evidence, other_versions

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["collect", "command"]

_WIDTH = 100
_ABILITIES = {
    "row_writes": "row writes",
    "body_reads": "bodies",
    "contact_reads": "contacts",
    "wrenches": "wrenches",
    "graph_capture": "graphs",
    "rendering": "images",
    "snapshots": "snapshots",
}

BackendsEvidence = Mapping[tuple[str, str], BackendEvidence]


def collect() -> dict[str, Any]:
    """Returns tasks, backends and algorithms as plain data; imports no engine and no torch.

    A task's `support` has an entry for each backend, device type and algorithm: its `level` (see
    `unilab_core.evidence.Level`) and `reason`, the backend's `conformance` there, whether what it needs is `installed`,
    and `other_versions`: what the evidence was recorded with where something else is installed.

    Raises:
        ConfigError: An installed package ships evidence that cannot be read.
    """
    conformance, recorded = find_backend_evidence(), find_task_evidence()
    backends = _names("unisim.backends")
    devices = {name: _devices(name, conformance) for name in backends}
    return {
        "tasks": [
            {
                "name": task.name,
                "summary": task.summary,
                "backends": backends,
                "learners": sorted(task.learners),
                "support": [
                    _entry(combination, conformance)
                    for combination in combinations(task.name, sorted(task.learners), devices, recorded)
                ],
            }
            for task in list_tasks()
        ],
        "backends": backends,
        "algorithms": _names("unilab.algorithms"),
    }


def _names(group: str) -> list[str]:
    return sorted(entry.name for entry in entry_points(group=group))


def _devices(backend: str, conformance: BackendsEvidence) -> list[str]:
    """The device types that a backend accepts; the CPU where nothing is known."""
    found = [e for (name, _), e in conformance.items() if name == backend]
    accepted = [device for evidence in found for device in evidence.capabilities.get("accepted_devices", ())]
    return list(dict.fromkeys([*accepted, *(evidence.device for evidence in found)])) or ["cpu"]


def _missing(backend: str, conformance: BackendsEvidence) -> list[str]:
    """The distributions that a backend is known to need and that are not installed."""
    found = [e.missing() for (name, _), e in conformance.items() if name == backend]
    return list(dict.fromkeys(name for names in found for name in names))


def _outcome(evidence: BackendEvidence | None) -> str:
    if evidence is None:
        return "not shown"
    return "failed" if evidence.count("failed") else "passed"


def _entry(combination: Combination, conformance: BackendsEvidence) -> dict[str, Any]:
    backend, device, evidence = combination.backend, combination.device, combination.evidence
    whole = conformance.get((backend, device))
    versions = {**(whole.versions if whole else {}), **evidence.versions}
    return {
        "backend": backend,
        "device": device,
        "algorithm": combination.algorithm or None,
        "level": combination.level,
        "reason": evidence.reason,
        "conformance": _outcome(whole),
        "installed": not _missing(backend, conformance),
        "other_versions": other_versions(versions),
    }


@click.command("list", epilog="Example: unilab list --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Shows tasks, backends and algorithms on this machine, and which combinations are known to work."""
    found = collect()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.console import Console

    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)
    console = Console(width=width, highlight=False)
    console.print(_task_table(found))
    console.print(_backend_table(found["backends"], find_backend_evidence()))
    _notes(found)


def _task_table(found: Mapping[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("task", "learners", "known to work", "summary")
    for task in found["tasks"]:
        known = "\n".join(_known(task["support"])) or "not shown"
        row = (task["name"], ", ".join(task["learners"]), known, task["summary"])
        table.add_row(*map(escape, row))
    return table


def _known(support: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each backend and device that something is recorded of."""
    places: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in support:
        places.setdefault((entry["backend"], entry["device"]), []).append(entry)
    for (backend, device), entries in places.items():
        levels = {entry["level"] for entry in entries}
        trained = [entry["algorithm"] for entry in entries if entry["level"] == "trained"]
        if trained:
            yield f"{backend}, {device}: trained ({', '.join(trained)})"
        elif "not supported" in levels:
            yield f"{backend}, {device}: not supported: {entries[0]['reason']}"
        elif "runs" in levels:
            yield f"{backend}, {device}: runs"


def _backend_table(backends: Iterable[str], conformance: BackendsEvidence) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("backend", "device", "conformance", "what it can do")
    for name in backends:
        missing = _missing(name, conformance)
        here = f"not installed: {', '.join(missing)}" if missing else ""
        for j, device in enumerate(_devices(name, conformance)):
            evidence = conformance.get((name, device))
            first = "\n".join(filter(None, (name, here))) if j == 0 else ""
            row = (first, device, _sentences(evidence), ", ".join(_abilities(evidence)))
            table.add_row(*map(escape, row))
    return table


def _sentences(evidence: BackendEvidence | None) -> str:
    if evidence is None:
        return "not shown"
    counts = {outcome: evidence.count(outcome) for outcome in ("passed", "failed", "not applicable")}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _abilities(evidence: BackendEvidence | None) -> Iterator[str]:
    if evidence is None:
        return
    can = evidence.capabilities
    yield str(can.get("execution", "")).replace("_", " ")
    if fields := can.get("randomizable_fields"):
        yield f"{len(fields)} fields per row"
    yield from (words for name, words in _ABILITIES.items() if can.get(name))


def _notes(found: Mapping[str, Any]) -> None:
    # Not through rich, which would take the brackets of an extra for markup.
    algorithms = ", ".join(found["algorithms"]) or "none; install 'unilab-rl[cli,rsl-rl]>=2.0,<3'"
    click.echo(f"algorithms: {algorithms}")
    if not found["tasks"]:
        click.echo("no tasks are installed; install unilab-tasks, or register your own by entry point")
        return
    click.echo(
        "trained: learned to its bar there. runs: built, stepped and reset there, whatever the learner."
    )
    click.echo("What is not listed is not shown by recorded evidence; it may work.")
    entries = [entry for task in found["tasks"] for entry in task["support"]]
    others = dict.fromkeys(text for entry in entries for text in entry["other_versions"])
    if others:
        click.echo(f"recorded with other versions than those here: {', '.join(others)}")
