"""What the scripts say in the end, in the same words."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unilab_core.benching.load import OtherLoad

__all__ = ["check_output", "cores", "load_lines", "published"]


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of the work of others, which `OtherLoad` describes."""
    load = OtherLoad(**found)
    known = [] if load.others is None else [f"other processes used {load.others:.0%} of {load.cores} cores"]
    return known + ([f"WARNING: {load.warning}"] if load.warning else [])


def check_output(parser: argparse.ArgumentParser, output: Path | None) -> None:
    """End with 2 where a report could not be written, before minutes are spent on it."""
    if output is not None and not output.parent.is_dir():
        parser.error(f"--output {output}: there is no folder {str(output.parent)!r}; make it first")


def published(report: Mapping[str, Any], text: str, output: Path | None) -> int:
    """Print the text, write the report as JSON where that is asked for, and return the exit status."""
    print(text)
    if output is not None:
        output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0
