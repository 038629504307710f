"""One check in a process of its own: `python -m gpu_checks.child MODULE:FUNCTION ...`, started by the runner."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import traceback
from importlib import import_module
from pathlib import Path

from gpu_checks.reporting import Report


def main() -> int:
    """Runs the check; its findings are in the file `--lines`, whatever becomes of this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("function")
    parser.add_argument("--device", required=True)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    faulthandler.enable()
    # Where it hangs, on stderr, just before the runner ends it.
    faulthandler.dump_traceback_later(given.seconds, exit=False)
    report = Report(given.device, dry=given.dry, lines=given.lines, folder=given.folder)
    module, _, name = given.function.partition(":")
    try:
        getattr(import_module(module), name)(report)
    except Exception:  # noqa: BLE001 - whatever it is, it is what the check found
        report.raised(traceback.format_exc())
        return 1
    report.ended()
    return 0


if __name__ == "__main__":
    sys.exit(main())
