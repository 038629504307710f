"""What the checks and docs know of recorded evidence: the files, what they take from learning runs, and the page.

Only the standard library, so that checks run without the packages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

COMMAND = "nox -s evidence"
PAGE = Path("docs/support.md")
RESULTS = Path("docs/results")
BACKENDS = Path("packages/unisim/src/unisim/recorded")
TASKS = Path("packages/unilab-tasks/src/unilab_tasks/recorded")

Record = dict[str, Any]
Place = tuple[str, str]
"""Backend and device type."""

_NO_RECORD = "not shown"


def file_name(place: Place) -> str:
    """The name of the file that holds what is recorded of a backend on a device."""
    return f"{place[0]}-{place[1]}.json"


def text_of(record: Mapping[str, Any]) -> str:
    """The content of a file of evidence."""
    return json.dumps(record, indent=1) + "\n"


@dataclass(frozen=True)
class Support:
    """What is recorded in a workspace."""

    root: Path

    @cached_property
    def backends(self) -> dict[Place, Record]:
        """Conformance evidence by backend and device."""
        return {(record["name"], record["device"]): record for record in _records(self.root / BACKENDS)}

    @cached_property
    def tasks(self) -> dict[Place, Record]:
        """What is recorded of tasks by backend and device."""
        return {(record["backend"], record["device"]): record for record in _records(self.root / TASKS)}

    def trained(self, place: Place) -> dict[str, dict[str, Record]]:
        """What learning runs have shown: by task and algorithm the bar, and how many seeds cleared it."""
        found: dict[str, dict[str, Record]] = {}
        for result in _records(self.root / RESULTS):
            if "bar" not in result:  # evidence of something else lies there too
                continue
            ran = {json.dumps(seed["trained_with"], sort_keys=True) for seed in result["seeds"]}
            if len(ran) != 1 or any(seed["passed"] is None for seed in result["seeds"]):
                continue
            setup = json.loads(ran.pop())
            if (setup["backend"], setup["device"].split(":")[0]) == place:
                bar = {name: value for name, value in result["bar"].items() if name != "task"}
                entry = {"seeds": len(result["seeds"]), "bar": bar}
                found.setdefault(result["bar"]["task"], {})[setup["algorithm"]] = entry
        return found

    @property
    def places(self) -> list[Place]:
        """Every backend on every device type that it accepts."""
        names = sorted({backend for backend, _ in self.backends})
        return [
            (name, device)
            for name in names
            for device in self._capabilities(name)["accepted_devices"]  # of any record: they do not differ
        ]

    def _capabilities(self, backend: str) -> Record:
        capabilities: Record = next(r for (name, _), r in self.backends.items() if name == backend)[
            "capabilities"
        ]
        return capabilities

    # ------------------------------------------------------------------ the page

    def page(self) -> str:
        """The text of docs/support.md."""
        parts = [_HEAD, "## Tasks", *self._task_part(), "## What a backend can do", *self._ability_part()]
        return "\n\n".join([*parts, "## The contract, sentence by sentence", *self._sentence_part()]) + "\n"

    def _task_part(self) -> Iterator[str]:
        names = sorted(
            {task for record in self.tasks.values() for task in {**record["tasks"], **record["trained"]}}
        )
        rows = [[f"`{name}`", *(self._task_cell(name, place) for place in self.places)] for name in names]
        yield _LEVELS
        yield _table(["task", *map(_title, self.places)], rows)
        yield "\n".join(_ran_with(place, record) for place, record in self.tasks.items())

    def _task_cell(self, task: str, place: Place) -> str:
        record = self.tasks.get(place, {"tasks": {}, "trained": {}})
        algorithms = record["trained"].get(task)
        ran = record["tasks"].get(task)
        if algorithms:
            return f"trained ({', '.join(algorithms)})"
        if ran is None:
            return _NO_RECORD
        return ran["outcome"] if ran["outcome"] == "runs" else f"{ran['outcome']}: {ran['reason']}"

    def _ability_part(self) -> Iterator[str]:
        names = sorted({backend for backend, _ in self.backends})
        columns = [self._capabilities(name) for name in names]
        left_out = {"sensors", "contact_reads"}  # of the model that the suite ran on
        rows = [
            [f"`{field}`", *(_value(column[field]) for column in columns)]
            for field in columns[0]
            if field not in left_out
        ]
        yield _table(["capability", *(f"`{name}`" for name in names)], rows)

    def _sentence_part(self) -> Iterator[str]:
        sentences = dict.fromkeys(s for record in self.backends.values() for s in record["sentences"])
        shown = list(self.backends)
        rows = [[sentence, *(self._outcome(sentence, place) for place in shown)] for sentence in sentences]
        yield _SENTENCES
        yield _table(["sentence", *map(_title, shown)], rows)
        yield "\n".join(
            f"- {_title(place)}: {_versions(record['versions'])}." for place, record in self.backends.items()
        )

    def _outcome(self, sentence: str, place: Place) -> str:
        entry = self.backends[place]["sentences"].get(sentence)
        return entry["outcome"] if entry else _NO_RECORD

    # ------------------------------------------------------------------ checks

    def errors(self) -> Iterator[str]:
        """What is not current in the evidence and on the page."""
        for place, record in self.backends.items():
            file = (BACKENDS / file_name(place)).as_posix()
            if record["capabilities"] != self._capabilities(place[0]):
                yield f"{file}: has other capabilities than the backend's first file; run `{COMMAND}` there again"
            failed = [text for text, entry in record["sentences"].items() if entry["outcome"] == "failed"]
            if failed:
                yield f"{file}: {len(failed)} sentence(s) failed, first {failed[0]!r}"
        for place, record in self.tasks.items():
            if record["trained"] != self.trained(place):
                file = (TASKS / file_name(place)).as_posix()
                yield f"{file}: says other learning results than {RESULTS.as_posix()}; run `{COMMAND} -- refresh`"
        if (self.root / PAGE).read_text() != self.page():
            yield f"{PAGE.as_posix()}: is not what the evidence says; run `{COMMAND} -- refresh`"


_HEAD = f"""# Support matrix

Made of recorded evidence by `{COMMAND}`, not by hand; `unilab list` shows the same of what is installed. What follows
from it is in [Choosing a backend](backends.md)."""

_LEVELS = """Trained: a preset learned the task to its bar there on every seed ([results](trained.md)). Runs: the
environment was built, stepped and reset there, which says nothing of an algorithm. Not shown: nothing is recorded; it
may work."""

_SENTENCES = """The conformance suite (`unisim.testing.BackendConformance`) has one test or more for each. Not
applicable: the sentence is about something that the backend or the suite's model does not have, or about the other kind
of execution."""


def _records(folder: Path) -> list[Record]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def _title(place: Place) -> str:
    return f"`{place[0]}` on {place[1]}"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _ran_with(place: Place, record: Record) -> str:
    size = f"{record['num_envs']} rows, {record['steps']} steps of random actions"
    return f"- {_title(place)}: {size}; {_versions(record['versions'])}."


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(f"`{item}`" for item in value) if isinstance(value, list) else f"`{value}`"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
