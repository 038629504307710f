"""Checks a machine with a GPU: correctness, order of streams, speed, training; the result is one JSON file.

    python scripts/gpu_check.py                        on a machine where the packages are installed
    python scripts/gpu_check.py --carried FOLDER ...   on one that has torch and nothing else, see gpu_carry.py
    python scripts/gpu_check.py --dry-run              the same code on the CPU at tiny sizes: shows nothing about a GPU

Ends with 0 if every check is fine, 1 if one is not or was not run, 2 for bad input. See docs/gpu-check.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))

from gpu_carry import CarriedError, unpack  # noqa: E402 - found through the line above wherever this is started
from gpu_checks.catalogue import CHECKS  # noqa: E402
from gpu_checks.runner import Check, Runner, table  # noqa: E402

MINUTES, DRY_MINUTES = 8.0, 20.0


def chosen_checks(names: Sequence[str], checks: Sequence[Check]) -> list[Check]:
    """Returns the checks of these names in their own order, all for none.

    Raises:
        ValueError: An unknown name.
    """
    known = [check.name for check in checks]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no check {unknown}; there are {known}")
    return [check for check in checks if not names or check.name in names]


def environment(given: Mapping[str, str], site: Path | None) -> dict[str, str]:
    """Returns the environment of the checks' processes: scripts and what was carried come first."""
    path = [str(SCRIPTS), *([str(site)] if site else []), *filter(None, [given.get("PYTHONPATH")])]
    graphics = (
        "egl" if find_library("EGL") else "disable"
    )  # where there is none, MuJoCo could not be imported
    defaults = {"MUJOCO_GL": graphics, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    return {**defaults, **given, "PYTHONPATH": os.pathsep.join(path)}


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--dry-run", action="store_true", help="run everything on the CPU at tiny sizes")
    made.add_argument("--device", help="torch device; by default cuda:0, in a dry run always cpu")
    made.add_argument("--minutes", type=float, help=f"total time; by default {MINUTES:g}")
    made.add_argument(
        "--jobs", type=int, help="checks at a time where no time is measured; by default up to 4"
    )
    made.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="the result")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checks only")
    made.add_argument(
        "--carried",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="what gpu_carry.py packed, all parts",
    )
    made.add_argument("--list", action="store_true", help="list the checks")
    return made


def main(arguments: Sequence[str] | None = None, checks: Sequence[Check] = CHECKS) -> int:
    """Runs what the command line asks for."""
    options = parser()
    given = options.parse_args(arguments)
    if given.list:
        print("\n".join(f"{check.name}: {check.what}; at most {check.seconds:.0f} s" for check in checks))
        return 0
    if given.dry_run and given.device not in (None, "cpu"):
        options.error(f"--dry-run runs on the CPU, got --device {given.device}")
    if not given.dry_run and given.device == "cpu":
        options.error("the CPU is no GPU: --dry-run runs the checks there")
    minutes = (DRY_MINUTES if given.dry_run else MINUTES) if given.minutes is None else given.minutes
    if minutes <= 0:
        options.error(f"--minutes {minutes:g}, expected a positive number")
    jobs = max(1, min(4, (os.cpu_count() or 1) // 2)) if given.jobs is None else given.jobs
    if jobs < 1:
        options.error(f"--jobs {jobs}, expected at least 1")
    try:
        checks = chosen_checks(given.only, checks)
    except ValueError as error:
        options.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a machine that is taken away asks first
    with tempfile.TemporaryDirectory(prefix="gpu-check-site-") as folder:
        site = Path(folder) if given.carried else None
        if site is not None:
            try:
                unpack(given.carried, site)
            except CarriedError as error:
                options.error(str(error))
        runner = Runner(
            checks,
            device="cpu" if given.dry_run else given.device or "cuda:0",
            dry=given.dry_run,
            minutes=minutes,
            result=given.out,
            environment=environment(os.environ, site),
            jobs=jobs,
            tell=lambda line: print(line, flush=True),
        )
        try:
            status = runner.run()
        except KeyboardInterrupt:
            status = 1
    print(table(runner.outcomes), f"\n{given.out}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
