"""PPO end to end: environment steps per second of training with UniLab's networks, ours and UniLab's own Go2 task.

python benchmarks/ppo.py                     both, in turns, at 1,024 environments
python benchmarks/ppo.py --without-peer      ours alone

Ours is `velocity-flat-quadruped`, once with its own learner but UniLab's networks of 512, 256 and 128, and once with
UniLab's five passes over the data and no mirror images as well. UniLab trains its Go2 task with its own settings. The
tasks are not the same, so the figures stand beside each other and are not divided.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from pairing import ask_once, quiet_environment
from peer_envs import HERE, PeerError, make_environment
from reporting import check_output, cores, load_lines, published

from unilab_core.benching.load import MachineLoad

TASK = "velocity-flat-quadruped"
NETWORKS = ("learner.actor_hidden_dims=[512,256,128]", "learner.critic_hidden_dims=[512,256,128]")
ITS_PASSES = ("learner.num_learning_epochs=5", "learner.symmetry=null")
_TIMES = re.compile(r"Collection time:\s*([\d.]+)\s*s.*?Learning time:\s*([\d.]+)\s*s", re.DOTALL)
_STEPS_PER_ENV = 24


def run(command: Sequence[str], folder: Path, threads: int) -> str:
    """Run a training in a folder and return what it printed.

    Raises:
        PeerError: It failed.
    """
    environment = quiet_environment(threads) | {"PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if ran.returncode != 0:
        print(ran.stdout[-4000:], file=sys.stderr)
        raise PeerError(f"{' '.join(command[:4])} ended with {ran.returncode}: it says why above")
    return ran.stdout


def ours(options: argparse.Namespace, folder: Path, overrides: Sequence[str]) -> list[tuple[float, float]]:
    """Train ours and return the seconds of collecting and of learning, iteration by iteration."""
    unilab = str(Path(sys.executable).parent / "unilab")
    sets = [part for override in overrides for part in ("--set", override)]
    budget = ("--num-envs", str(options.num_envs), "--iterations", str(options.iterations))
    run(
        [unilab, "train", TASK, *budget, "--eval-interval", "0", *sets, "--runs", str(folder)],
        folder,
        options.threads,
    )
    (log,) = folder.glob(f"{TASK}/*/metrics.jsonl")
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [(record["collect_s"], record["learn_s"]) for record in records]


def peer(options: argparse.Namespace, folder: Path) -> list[tuple[float, float]]:
    """Train UniLab's Go2 task and return the same of it."""
    python = make_environment("unilab")
    scene = ask_once("UniLab", python, HERE / "sides" / "unilab_go2.py", {"folder": str(folder)})
    train = [str(python.parent / "train"), "--algo", "ppo", "--task", "go2_joystick_flat", "--sim", "mujoco"]
    settings = {
        "algo.num_envs": options.num_envs,
        "algo.num_steps_per_env": _STEPS_PER_ENV,
        "algo.max_iterations": options.iterations,
        "training.no_play": "true",
        "training.device": "cpu",
        "env.scene.model_file": scene,
    }
    printed = run([*train, *(f"{name}={value}" for name, value in settings.items())], folder, options.threads)
    return iteration_times(printed)


def iteration_times(printed: str) -> list[tuple[float, float]]:
    """Return the seconds of collecting and of learning that rsl-rl prints for each iteration."""
    return [(float(collect), float(learn)) for collect, learn in _TIMES.findall(printed)]


def summary(options: argparse.Namespace, rounds: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Return what training made of its iterations after the first ones."""
    env_steps = options.num_envs * _STEPS_PER_ENV
    kept = [times for done in rounds for times in done[options.skipped :]]
    if not kept:
        raise PeerError(f"no iteration is left after the first {options.skipped}; give more --iterations")
    rates = [env_steps / (collect + learn) for collect, learn in kept]
    return {
        "env_steps_per_s": median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "collect_s": median(collect for collect, _ in kept),
        "learn_s": median(learn for _, learn in kept),
        "iterations": len(kept),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that was measured; every round trains each of them anew."""
    trainings: dict[str, Callable[[Path], list[tuple[float, float]]]] = {
        "ours, UniLab's networks": lambda folder: ours(options, folder, NETWORKS),
        "ours, UniLab's networks and passes": lambda folder: ours(options, folder, NETWORKS + ITS_PASSES),
    }
    if options.peer:
        make_environment("unilab")
        trainings["UniLab's Go2 task"] = lambda folder: peer(options, folder)
    load = MachineLoad()
    done: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in trainings}
    for _ in range(options.rounds):
        for name, train in trainings.items():
            with tempfile.TemporaryDirectory() as folder:
                done[name].append(train(Path(folder)))
    rows = {name: summary(options, rounds) for name, rounds in done.items()}
    return {
        "num_envs": options.num_envs,
        "threads": options.threads,
        "rows": rows,
        "load": asdict(load.so_far()),
    }


def in_text(report: dict[str, Any]) -> str:
    """Return the report as lines for people."""
    lines = [f"{report['num_envs']:,} envs{'':<28}env steps/s  lowest-highest  collect, s  learn, s"]
    for name, row in report["rows"].items():
        spread = f"{row['lowest']:,.0f}-{row['highest']:,.0f}"
        lines.append(
            f"{name:<38}{row['env_steps_per_s']:>11,.0f}  {spread:>14}  {row['collect_s']:>10.2f}  "
            f"{row['learn_s']:>8.2f}"
        )
    return "\n".join([*lines, *load_lines(report["load"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--num-envs", type=int, default=1024)
    made.add_argument("--iterations", type=int, default=8, help="of each training")
    made.add_argument("--skipped", type=int, default=2, help="first iterations that are not counted")
    made.add_argument("--rounds", type=int, default=3, help="how often each is trained, in turns")
    made.add_argument("--threads", type=int, default=cores(), help="of the learner")
    made.add_argument("--without-peer", dest="peer", action="store_false", help="train ours alone")
    made.add_argument("--output", type=Path, help="write the result as JSON")
    options = made.parse_args(arguments)
    check_output(made, options.output)
    if min(options.num_envs, options.rounds, options.threads) < 1 or options.iterations <= options.skipped:
        made.error("expected positive numbers, and more iterations than are skipped")
    try:
        report = measure(options)
    except PeerError as error:
        print(f"{made.prog}: {error}", file=sys.stderr)
        return 1
    return published(report, in_text(report), options.output)


if __name__ == "__main__":
    sys.exit(main())
