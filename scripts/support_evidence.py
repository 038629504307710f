"""Records what is known to work: each backend through the conformance suite, each task on each backend.

Run through `nox -s evidence`. Evidence becomes package data of unisim and unilab-tasks, and the page docs/support.md.

    record                  run the suite and the tasks here, on the CPU
    record --device cuda --backend mujoco_warp --out FOLDER
                            the same on a device, into a folder
    take FOLDER             take what was recorded on another machine
    refresh                 take over docs/results/ and make the page again
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from _support import BACKENDS, PAGE, TASKS, Place, Record, Support, file_name, text_of

ROOT = Path(__file__).resolve().parent.parent
SUITE = "packages/unisim/tests/test_conformance.py"
NUM_ENVS, STEPS, SEED = 8, 50, 0
OWN = ("unisim", "unilab-core", "unilab-managers", "unilab-tasks")


def run_suite(folder: Path, device: str) -> None:
    """Runs the conformance suite of every backend that can be made here; its evidence goes to a folder."""
    environment = {
        **os.environ,
        "UNISIM_CONFORMANCE_EVIDENCE": str(folder),
        "UNISIM_WARP_DEVICE": device,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(
            f"the conformance suite fails ({done.returncode}); a backend that fails is not recorded"
        )


def suite_records(folder: Path) -> dict[Place, Record]:
    """Returns what the suite left in a folder, by backend and device; of several classes the worse outcome."""
    from unisim.evidence import BackendEvidence

    found: dict[Place, BackendEvidence] = {}
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text())
        if not content["name"]:  # a fake, which nobody can choose
            continue
        evidence = BackendEvidence.parse(file.name, content)
        place = evidence.backend, evidence.device
        found[place] = found[place].merged(file.name, evidence) if place in found else evidence
    return {place: evidence.content() for place, evidence in found.items()}


def try_task(task: str, place: Place) -> dict[str, str]:
    """Builds, steps and resets a task; returns that it runs, or why the backend refuses it.

    Whatever else goes wrong is a defect, and raised.
    """
    import torch

    from unilab_core import CapabilityError, make_env

    backend, device = place
    try:
        env = make_env(task, backend=backend, device=device, num_envs=NUM_ENVS, seed=SEED)
    except CapabilityError as error:
        return {"outcome": "not supported", "reason": str(error)}
    with env:
        env.reset()
        low, high = (bound.clamp(-1.0, 1.0) for bound in env.action_bounds)
        generator = torch.Generator().manual_seed(SEED)
        for _ in range(STEPS):
            drawn = torch.rand(NUM_ENVS, env.num_actions, generator=generator).to(env.device)
            state = env.step(low + (high - low) * drawn)
            finite = [
                state.reward.isfinite().all(),
                *(group.isfinite().all() for group in state.obs.values()),
            ]
            if not all(finite):
                raise SystemExit(f"{task} on {backend}, {device}: a reward or observation is not finite")
        env.reset(torch.arange(0, NUM_ENVS, 2, device=env.device))
    return {"outcome": "runs"}


def task_record(place: Place, engine_versions: dict[str, str]) -> Record:
    """Returns the evidence of every task of unilab-tasks on a backend and device."""
    from unilab_core import list_tasks

    tasks = [task.name for task in list_tasks() if task.env_cfg.startswith("unilab_tasks.")]
    backend, device = place
    return {
        "schema": 1,
        "backend": backend,
        "device": device,
        "num_envs": NUM_ENVS,
        "steps": STEPS,
        "versions": {**engine_versions, **{name: version(name) for name in OWN}},
        "tasks": {task: try_task(task, place) for task in tasks},
        "trained": Support(ROOT).trained(place),
    }


def record(backends: Sequence[str], device: str, out: Path | None) -> None:
    """Runs everything and writes the evidence, into the packages or below a folder."""
    with tempfile.TemporaryDirectory() as name:
        run_suite(Path(name), device)
        suites = suite_records(Path(name))
    for backend in backends:
        place = backend, device
        if place not in suites:
            raise SystemExit(f"no conformance suite of {backend} ran on {device}; there are {sorted(suites)}")
        base = out or ROOT
        tasks = task_record(place, suites[place]["versions"])
        for folder, content in ((BACKENDS, suites[place]), (TASKS, tasks)):
            write(base / folder / file_name(place), content)
        for task, found in tasks["tasks"].items():
            print(f"{task} on {backend}, {device}: {found['outcome']} {found.get('reason', '')}".rstrip())


def write(path: Path, content: Record) -> None:
    """Writes one file of evidence."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(content))


def take(folder: Path) -> None:
    """Takes over what `record --out` wrote on another machine."""
    found = [(kind, file) for kind in (BACKENDS, TASKS) for file in sorted((folder / kind).glob("*.json"))]
    if not found:
        raise SystemExit(f"{folder} holds no evidence; give the folder that `record --out` wrote")
    for kind, file in found:
        write(ROOT / kind / file.name, json.loads(file.read_text()))
        print(f"took {kind / file.name}")


def refresh() -> None:
    """Takes over what learning runs show, and makes the page."""
    support = Support(ROOT)
    for place, content in support.tasks.items():
        write(ROOT / TASKS / file_name(place), {**content, "trained": support.trained(place)})
    (ROOT / PAGE).write_text(Support(ROOT).page())


def main(args: Sequence[str] | None = None) -> int:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--backend", action="append", help="a backend; by default all that are installed")
    recording.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    recording.add_argument("--out", type=Path, help="a folder to write to instead of the packages")
    taking = commands.add_parser("take")
    taking.add_argument("folder", type=Path)
    commands.add_parser("refresh")
    chosen: Any = parser.parse_args(args)
    if chosen.command == "record":
        installed = sorted(entry.name for entry in entry_points(group="unisim.backends"))
        record(chosen.backend or installed, chosen.device, chosen.out)
        if chosen.out is not None:
            return 0
    elif chosen.command == "take":
        take(chosen.folder)
    refresh()
    problems = list(Support(ROOT).errors())
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
