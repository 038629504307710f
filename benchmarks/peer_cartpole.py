"""Cart-pole: environment steps per second of this project and of a peer, measured in one session.

python benchmarks/peer_cartpole.py unilab                    UniLab on CPU MuJoCo, at 64 and 512 environments
python benchmarks/peer_cartpole.py mjlab --num-envs 64       mjlab on MuJoCo-Warp, both on Warp's CPU device
python benchmarks/peer_cartpole.py mjlab --device cuda:0     the same on a GPU

Both sides get the same model, physics settings, terms, threads and actions; that they do the same work is checked
before anything is measured. Ends with 0, with 1 where they don't or the peer cannot run here, with 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pairing import Compared, Process, check_alike, compare, started, trace_difference
from peer_envs import HERE, PeerError, make_environment
from reporting import check_output, cores, load_lines, published

from unilab_core.benching.load import MachineLoad
from unilab_core.factory import load_env_cfg
from unilab_tasks.robots.cartpole import build_cartpole
from unisim.scene_model import compile_scene

TASK = "cartpole-balance"
INTEGRATORS = ("euler", "implicitfast", "rk4")
SETTINGS = (
    *("timestep", "integrator", "gravity", "cone", "jacobian", "solver", "iterations", "ls_iterations"),
    *("tolerance", "ls_tolerance", "impratio"),
)
BACKENDS = {"unilab": "mujoco", "mjlab": "mujoco_warp"}
OFFSETS = {"cart_position": 0.1, "cart_velocity": 0.01, "pole_position": 0.034, "pole_velocity": 0.01}
"""Of the task itself: how far from rest a reset places the joints, at most."""
UNCHECKED = {"unilab": (), "mjlab": ("threads",)}
"""Warp compiles with as many threads as it likes and steps with one, whatever a process may use."""
TRACED_EPISODE_S = 1.0
TRACED_STEPS = 120
"""So that episodes end and begin anew within the steps of which everything is compared."""
TOLERANCE = {"unilab": 1e-5, "mjlab": 1e-3}
"""How far that may differ: MuJoCo computes in float64, MuJoCo-Warp in float32."""
_WINDOW = 51_200
"""Environment steps of a window."""


def write_model(path: Path, integrator: str, timestep: float) -> None:
    """Write the task's model, with the solver's settings that our side gives it, as MJCF for the peer."""
    cfg = load_env_cfg(TASK, overrides={"sim.integrator": integrator, "sim.timestep": timestep})
    option = compile_scene(cfg.scene, cfg.sim)[0].opt
    spec = build_cartpole()
    for name in SETTINGS:
        setattr(spec.option, name, getattr(option, name))
    spec.compile()
    path.write_text(spec.to_xml(), encoding="utf-8")


class Benchmark:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self._peer = options, options.peer
        self._python = make_environment(self._peer)
        self._model = folder / "cartpole.xml"
        write_model(self._model, options.integrator, options.timestep)

    def run(self) -> dict[str, Any]:
        """Check that both do the same, measure at each number of environments, and return it all."""
        load, episode_s = MachineLoad(), load_env_cfg(TASK).episode_length_s
        with ExitStack() as stack:
            still = dict.fromkeys(OFFSETS, 0.0)
            sides = self._start(stack, num_envs=8, offsets=still, episode_s=TRACED_EPISODE_S)
            versions = {side.name: side.ask("versions") for side in sides}
            differences = self._check(sides)
        rows = []
        for num_envs in self._options.num_envs:
            with ExitStack() as stack:
                sides = self._start(stack, num_envs=num_envs, offsets=OFFSETS, episode_s=episode_s)
                rows.append(self._measure(sides, num_envs))
        return {
            "asked": vars(self._options) | {"output": str(self._options.output)},
            "versions": versions,
            "largest_difference": differences,
            "rows": rows,
            "load": asdict(load.so_far()),
        }

    def _start(
        self, stack: ExitStack, *, num_envs: int, offsets: dict[str, float], episode_s: float
    ) -> list[Process]:
        options = self._options
        request = {
            "num_envs": num_envs,
            "offsets": offsets,
            "model": str(self._model),
            "episode_s": episode_s,
            "backend": BACKENDS[self._peer],
        } | {name: getattr(options, name) for name in ("integrator", "timestep", "decimation", "threads")}
        request |= {"device": options.device, "body_state": options.body_state}
        scripts = (("ours", Path(sys.executable)), (self._peer, self._python))
        return [
            stack.enter_context(started(name, python, HERE / "sides" / f"{name}_cartpole.py", request))
            for name, python in scripts
        ]

    def _check(self, sides: list[Process]) -> dict[str, float]:
        """Check facts and what comes out of the same actions; return how far the latter differ."""
        ours, theirs = (side.ask("facts") for side in sides)
        check_alike(ours, theirs, without=UNCHECKED[self._peer])
        traces = [side.ask("trace", seed=1, steps=TRACED_STEPS) for side in sides]
        found, most = trace_difference(*traces), TOLERANCE[self._peer]
        if max(found.values()) > most:
            raise PeerError(f"after the same actions the sides differ by {found}, expected at most {most}")
        return found

    def _measure(self, sides: list[Process], num_envs: int) -> dict[str, Any]:
        options = self._options
        steps = options.steps or max(20, _WINDOW // num_envs)
        ours, theirs = (side.ask("facts") for side in sides)
        check_alike(ours, theirs, without=UNCHECKED[self._peer])
        for side in sides:
            side.ask("prepare", seed=0, warmup=max(20, steps // 4), max_age=ours["episode steps"])
        found = compare(sides, num_envs=num_envs, steps=steps, pairs=options.pairs)
        return row(found, num_envs, steps)


def row(found: Compared, num_envs: int, steps: int) -> dict[str, Any]:
    """Return one number of environments as data."""
    return {
        "num_envs": num_envs,
        "steps_per_window": steps,
        "env_steps_per_s": {"ours": asdict(found.rate(0)), "peer": asdict(found.rate(1))},
        "ratio": asdict(found.ratio()),
        "cpu_ratio": asdict(found.cpu_ratio()),
        "episodes_ended": found.ended,
        "idle_cpu_s": found.idle_cpu_s,
        "seconds": found.seconds,
        "cpu_s": found.cpu_s,
    }


def in_text(report: dict[str, Any], peer: str) -> str:
    """Return the report as lines for people."""
    header = (
        "envs",
        "ours, env steps/s",
        f"{peer}, env steps/s",
        "ours over it (95 %)",
        "its CPU time over ours",
    )
    lines = ["  ".join(header)]
    for row in report["rows"]:
        rates = row["env_steps_per_s"]
        cells = (
            f"{row['num_envs']:,}",
            f"{rates['ours']['value']:,.0f}",
            f"{rates['peer']['value']:,.0f}",
            *("{value:.2f} ({low:.2f}-{high:.2f})".format(**row[name]) for name in ("ratio", "cpu_ratio")),
        )
        lines.append("  ".join(cell.rjust(len(head)) for cell, head in zip(cells, header, strict=True)))
    return "\n".join([*lines, *load_lines(report["load"])])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("peer", choices=sorted(BACKENDS))
    made.add_argument("--num-envs", type=int, nargs="+", default=[64, 512])
    made.add_argument("--pairs", type=int, default=30, help="windows of each side; at least 6")
    made.add_argument("--steps", type=int, help="steps of a window; by default 51,200 environment steps")
    made.add_argument("--threads", type=int, default=cores(), help="processors of either side")
    made.add_argument("--timestep", type=float, default=0.01, help="of the physics, s")
    made.add_argument("--decimation", type=int, default=2, help="physics substeps of a step")
    made.add_argument("--integrator", choices=INTEGRATORS, default="euler")
    made.add_argument(
        "--device", default="cpu", help="torch device of both sides; other than cpu for mjlab only"
    )
    made.add_argument(
        "--no-body-state",
        dest="body_state",
        action="store_false",
        help="spare UniLab the state of the root body, which its factory always makes it track",
    )
    made.add_argument("--output", type=Path, help="write the result as JSON")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    made = parser()
    options = made.parse_args(arguments)
    check_output(made, options.output)
    if options.pairs < 6 or min(options.num_envs) < 1 or options.threads < 1:
        made.error("expected at least 6 pairs, and positive numbers of environments and threads")
    if options.peer == "mjlab" and options.integrator == "rk4":
        made.error("mjlab has no rk4; give --integrator euler or implicitfast")
    if options.peer == "mjlab" and not options.body_state:
        made.error("--no-body-state is about UniLab's factory; leave it out")
    if options.peer == "unilab" and options.device != "cpu":
        made.error("UniLab is measured on the CPU; leave --device out")
    try:
        with tempfile.TemporaryDirectory() as folder:
            report = Benchmark(options, Path(folder)).run()
    except PeerError as error:
        print(f"{made.prog}: {error}", file=sys.stderr)
        return 1
    return published(report, in_text(report, options.peer), options.output)


if __name__ == "__main__":
    sys.exit(main())
