"""What a step of UniLab's own Go2 task costs over its engine, by UniLab's own clocks.

python benchmarks/peer_overhead.py               at 64, 512 and 2,048 environments
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pairing import ask_once
from peer_envs import HERE, PeerError, make_environment
from reporting import check_output, cores, load_lines, published

from unilab_core.benching.intervals import median_of
from unilab_core.benching.load import MachineLoad

SCRIPT = HERE / "sides" / "unilab_go2.py"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that was measured."""
    python, load, rows = make_environment("unilab"), MachineLoad(), []
    with tempfile.TemporaryDirectory() as folder:
        for num_envs in options.num_envs:
            steps = options.steps or max(10, 8192 // num_envs)
            request = {"folder": folder, "num_envs": num_envs, "steps": steps}
            request |= {name: getattr(options, name) for name in ("threads", "windows", "warmup")}
            found = ask_once("UniLab's Go2 task", python, SCRIPT, request)
            ratios = [s / e for s, e in zip(found["step_ms"], found["engine_ms"], strict=True)]
            step, engine = median_of(found["step_ms"]), median_of(found["engine_ms"])
            rows.append(
                {
                    "num_envs": num_envs,
                    "steps_per_window": steps,
                    "step_ms": asdict(step),
                    "engine_ms": asdict(engine),
                    "step_over_engine": asdict(median_of(ratios)),
                }
            )
    return {"rows": rows, "threads": options.threads, "load": asdict(load.so_far())}


def in_text(report: dict[str, Any]) -> str:
    """Return the report as lines for people."""
    lines = [f"{'envs':>6}  {'step, ms':>9}  {'engine, ms':>10}  step/engine (95 %)"]
    for row in report["rows"]:
        ratio = row["step_over_engine"]
        lines.append(
            f"{row['num_envs']:>6,}  {row['step_ms']['value']:>9.2f}  {row['engine_ms']['value']:>10.2f}  "
            f"{ratio['value']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
        )
    return "\n".join([*lines, *load_lines(report["load"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--num-envs", type=int, nargs="+", default=[64, 512, 2048])
    made.add_argument("--windows", type=int, default=30, help="at least 6")
    made.add_argument("--steps", type=int, help="steps of a window; by default 8,192 environment steps")
    made.add_argument("--warmup", type=int, default=100, help="steps before the first window")
    made.add_argument("--threads", type=int, default=cores())
    made.add_argument("--output", type=Path, help="write the result as JSON")
    options = made.parse_args(arguments)
    check_output(made, options.output)
    if options.windows < 6 or min(options.num_envs) < 1 or options.threads < 1:
        made.error("expected at least 6 windows, and positive numbers of environments and threads")
    try:
        report = measure(options)
    except PeerError as error:
        print(f"{made.prog}: {error}", file=sys.stderr)
        return 1
    return published(report, in_text(report), options.output)


if __name__ == "__main__":
    sys.exit(main())
