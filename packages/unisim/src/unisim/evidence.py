"""Recorded runs of the conformance suite: what is known of a backend before anything of it is imported.

A package ships what the suite wrote (`unisim.testing.BackendConformance`, with `backend_name` set) as JSON files in a
folder, and names the folder in the entry-point group `unisim.evidence`. Nothing here imports Torch or an engine.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from unisim.errors import ConfigError
from unisim.plugins import PLUGIN_FAILURES, plugin_problem

__all__ = [
    "FOLDER",
    "BackendEvidence",
    "find_backend_evidence",
    "installed_version",
    "other_versions",
    "read_recorded",
]

_LOGGER = logging.getLogger(__name__)

GROUP = "unisim.evidence"
SCHEMA = 1
FOLDER = Path(__file__).parent / "recorded"
"""The evidence of this package's own backends."""

_RANK = ("not applicable", "passed", "failed")


@dataclass(frozen=True)
class BackendEvidence:
    """What the suite found of one backend on one kind of device.

    Attributes:
        backend: Name of the backend's entry point.
        device: Torch device type that its tensors lived on: `"cpu"`, `"cuda"`.
        capabilities: The fields of `TensorCapabilities` as plain data. `sensors`, and what follows from them, are
            those of the model that the suite ran on.
        versions: Python, and the distributions that the run used.
        sentences: Outcome of each sentence of the contract: `"passed"`, `"failed"` or `"not applicable"`.
    """

    backend: str
    device: str
    capabilities: Mapping[str, Any]
    versions: Mapping[str, str]
    sentences: Mapping[str, str]

    @classmethod
    def parse(cls, where: str, content: Mapping[str, Any]) -> BackendEvidence:
        """Returns the evidence in the content of a file.

        Raises:
            ConfigError: Something is missing, or an outcome is unknown; the message begins with `where`.
        """
        if not content.get("name"):
            raise ConfigError(
                f"{where}: names no backend; set backend_name in the conformance class and run it again"
            )
        missing = {"device", "capabilities", "versions", "sentences"} - set(content)
        if missing:
            raise ConfigError(f"{where}: lacks {sorted(missing)}")
        outcomes = {sentence: entry.get("outcome") for sentence, entry in content["sentences"].items()}
        unknown = set(outcomes.values()) - set(_RANK)
        if unknown or not outcomes:
            found = ", ".join(sorted(map(repr, unknown))) or "missing"
            raise ConfigError(f"{where}: outcomes are {found}, expected {_RANK}")
        return cls(content["name"], content["device"], content["capabilities"], content["versions"], outcomes)

    def content(self) -> dict[str, Any]:
        """Returns what a file of it holds."""
        return {
            "schema": SCHEMA,
            "name": self.backend,
            "device": self.device,
            "capabilities": dict(self.capabilities),
            "versions": dict(self.versions),
            "sentences": {sentence: {"outcome": outcome} for sentence, outcome in self.sentences.items()},
        }

    def count(self, outcome: str) -> int:
        """Returns how many sentences had an outcome."""
        return sum(found == outcome for found in self.sentences.values())

    def missing(self) -> tuple[str, ...]:
        """Returns the distributions that the run used and that are not installed here."""
        return tuple(n for n in self.versions if n != "python" and installed_version(n) is None)

    def merged(self, where: str, other: BackendEvidence) -> BackendEvidence:
        """Returns what two suites found of the same: a sentence is as bad as its worse outcome.

        Raises:
            ConfigError: They had other capabilities or versions, so they are not about the same.
        """
        for name in ("capabilities", "versions"):
            if getattr(self, name) != getattr(other, name):
                raise ConfigError(
                    f"{where}: another file tells other {name} of backend {self.backend!r} on {self.device}; "
                    "remove the older one"
                )
        both = {**self.sentences, **other.sentences}
        worst = {
            sentence: max(both[sentence], self.sentences.get(sentence, both[sentence]), key=_RANK.index)
            for sentence in both
        }
        return BackendEvidence(self.backend, self.device, self.capabilities, self.versions, worst)


def find_backend_evidence() -> dict[tuple[str, str], BackendEvidence]:
    """Returns the recorded evidence of all installed packages by backend and device type.

    Raises:
        ConfigError: A file is no evidence, or contradicts another one.
        TypeError: An entry point names no folder.
    """
    found: dict[tuple[str, str], BackendEvidence] = {}
    for where, content in read_recorded(GROUP):
        evidence = BackendEvidence.parse(where, content)
        key = evidence.backend, evidence.device
        found[key] = found[key].merged(where, evidence) if key in found else evidence
    return found


def read_recorded(group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields name and content of every JSON file in the folders that the entry points of a group name.

    A package that cannot be imported is named in the log and left out: it must not hide what others recorded.

    Raises:
        ConfigError: A file is no JSON of a schema that is known here.
        TypeError: An entry point names no folder.
    """
    for entry in sorted(entry_points(group=group), key=lambda e: e.name):
        try:
            folder = entry.load()
        except PLUGIN_FAILURES as error:
            _LOGGER.warning("%s; its evidence is left out", plugin_problem(entry, error))
            continue
        if not isinstance(folder, Traversable):
            raise TypeError(
                f"entry point {entry.name!r} of {group!r}: {entry.value} is a {type(folder).__name__}, "
                "expected the path of a folder"
            )
        files = [item for item in folder.iterdir() if item.name.endswith(".json")] if folder.is_dir() else []
        for item in sorted(files, key=lambda item: item.name):
            where = f"evidence {item.name} of {entry.name!r}"
            try:
                content = json.loads(item.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"{where}: no JSON: {error}") from error
            schema = content.get("schema") if isinstance(content, dict) else None
            if schema != SCHEMA:
                raise ConfigError(f"{where}: schema {schema!r}, expected {SCHEMA}")
            yield where, content


def installed_version(distribution: str) -> str | None:
    """Returns the version of an installed distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def other_versions(recorded: Mapping[str, str]) -> list[str]:
    """Returns what evidence was recorded with where something else is installed: `"mujoco 4.0.0 (here 4.0.1)"`.

    Python and what is not installed are left out, and of a version the part that names a build (`+cpu`).
    """
    found = []
    for name, then in recorded.items():
        here = None if name == "python" else installed_version(name)
        if here is not None and here.split("+")[0] != then.split("+")[0]:
            found.append(f"{name} {then} (here {here})")
    return found
