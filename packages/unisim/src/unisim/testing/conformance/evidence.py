"""Sentences, their outcomes, and the file that records them."""

from __future__ import annotations

import enum
import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
import torch

__all__ = ["EVIDENCE_VARIABLE", "Evidence", "expect", "expect_raises", "not_applicable", "promise"]

EVIDENCE_VARIABLE = "UNISIM_CONFORMANCE_EVIDENCE"
"""Environment variable that names the evidence file, or a folder for one file per class."""

_RANK = ("not applicable", "passed", "failed")

Test = TypeVar("Test", bound=Callable[..., None])
Caught = TypeVar("Caught", bound=BaseException)


class Evidence:
    """What one run found: each sentence's outcome and, where it is not plain, why."""

    def __init__(self) -> None:
        """Starts without outcomes."""
        self.sentences: dict[str, dict[str, Any]] = {}

    def record(self, sentence: str, test: str, outcome: str, reason: str = "") -> None:
        """Adds a test's outcome; a sentence is as bad as its worst test, and applies if one of them does."""
        entry = self.sentences.setdefault(sentence, {"outcome": outcome, "tests": {}})
        entry["outcome"] = max(entry["outcome"], outcome, key=_RANK.index)
        entry["tests"][test] = {"outcome": outcome} | ({"reason": reason} if reason else {})

    def write(self, path: Path, head: Mapping[str, object]) -> None:
        """Writes the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        outcomes = [entry["outcome"] for entry in self.sentences.values()]
        content = {
            "schema": 1,
            **head,
            "summary": {outcome: outcomes.count(outcome) for outcome in _RANK},
            "sentences": self.sentences,
        }
        path.write_text(json.dumps(content, indent=1, default=_plain) + "\n")


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def evidence_file(name: str, chosen: str | Path | None, fallback: Path) -> Path:
    """Returns where the evidence of a class goes: as chosen, else as the environment says, else `fallback`."""
    given = chosen or os.environ.get(EVIDENCE_VARIABLE)
    if not given:
        return fallback / f"{name}.json"
    path = Path(given)
    return path if path.suffix == ".json" else path / f"{name}.json"


def promise(test: Test) -> Test:
    """Marks a test as the proof of the sentence that is its docstring; a failure names the sentence."""
    sentence = " ".join((test.__doc__ or "").split()).removesuffix(".")

    @functools.wraps(test)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever pytest passes
        record = functools.partial(self.evidence.record, sentence, test.__name__)
        try:
            test(self, *args, **kwargs)
        except pytest.skip.Exception as skipped:
            record("not applicable", str(skipped.msg).removeprefix("not applicable: "))
            raise
        except Exception as error:
            found = f"{error}" if type(error) is AssertionError else f"{type(error).__name__}: {error}"
            record("failed", found)
            raise AssertionError(f'broken promise: "{sentence}": {found}') from error
        record("passed")

    return run  # type: ignore[return-value] # functools.wraps keeps its signature


def not_applicable(reason: str) -> NoReturn:
    """Ends a test whose sentence does not concern this backend."""
    pytest.skip(f"not applicable: {reason}")


def expect(holds: bool | torch.Tensor, message: str) -> None:
    """Fails the test unless `holds`."""
    if not bool(holds):
        raise AssertionError(message)


def expect_raises(kind: type[Caught], call: Callable[[], object], what: str) -> Caught:
    """Fails the test unless `call` raises `kind`; returns what it raised."""
    try:
        call()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(
            f"{what} raised {type(error).__name__}: {error}; expected {kind.__name__}"
        ) from error
    raise AssertionError(f"{what} raised nothing; expected {kind.__name__}")
