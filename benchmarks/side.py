"""One side of a comparison: an environment in a process of its own, which steps when it is told to.

A script in `sides/` makes the environment and gives it to `serve`. It is run by the interpreter of whoever made the
environment, so this file and those scripts import nothing but torch and what they measure; Python 3.10 reads them.
Requests and replies are JSON, one a line. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import torch

_DRAWN = 64
"""Different actions; a window goes round them."""


class Side(Protocol):
    """What a script makes; N environments, A actions, O observation columns."""

    num_envs: int
    num_actions: int
    device: torch.device

    def reset(self) -> torch.Tensor:
        """Restart all rows and return the observation, (N, O)."""

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Step once and return observation (N, O), reward (N,) and which episodes ended (N,) bool."""

    def set_ages(self, steps: torch.Tensor) -> None:
        """Set how many steps each running episode has behind it, (N,) int64."""

    def facts(self) -> dict[str, Any]:
        """What must be alike on both sides, in words and numbers."""


class Served:
    """Answers the requests of one process."""

    def __init__(self, side: Side, packages: tuple[str, ...]) -> None:
        self._side, self._packages = side, packages
        self._actions: list[torch.Tensor] = []
        self._idle_since: float | None = None

    def facts(self) -> dict[str, Any]:
        """Return what the side says of itself."""
        return self._side.facts()

    def versions(self) -> dict[str, str]:
        """Return the versions of what is measured and of what it stands on."""
        found = {"python": sys.version.split()[0]}
        for name in ("torch", "numpy", *self._packages):
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "none"
        return found

    def prepare(self, seed: int, warmup: int, max_age: int) -> dict[str, Any]:
        """Reset, give the episodes random ages, draw the actions and step until everything is allocated."""
        generator = torch.Generator().manual_seed(seed)
        side = self._side
        side.reset()
        side.set_ages(torch.randint(max_age, (side.num_envs,), generator=generator).to(side.device))
        self._actions = [self._drawn(generator) for _ in range(_DRAWN)]
        self.window(warmup)
        return {}

    def window(self, steps: int) -> dict[str, Any]:
        """Step with random actions; return seconds of the clock and of all threads, and how many episodes ended."""
        side, actions = self._side, self._actions
        idle = 0.0 if self._idle_since is None else time.process_time() - self._idle_since
        ended = torch.zeros((), dtype=torch.int64, device=side.device)
        with torch.inference_mode():
            self._wait()
            worked, began = time.process_time(), time.perf_counter()
            for i in range(steps):
                _, _, done = side.step(actions[i % _DRAWN])
                ended += done.sum()
            self._wait()
            seconds, worked = time.perf_counter() - began, time.process_time() - worked
        reply = {"seconds": seconds, "cpu_s": worked, "ended": int(ended), "idle_cpu_s": idle}
        self._idle_since = time.process_time()
        return reply

    def trace(self, seed: int, steps: int) -> dict[str, Any]:
        """Reset and step once through drawn actions; return what came out, and where episodes ended."""
        generator = torch.Generator().manual_seed(seed)
        side = self._side
        found: dict[str, Any] = {"observations": [side.reset().tolist()], "rewards": [], "ended": []}
        with torch.inference_mode():
            for i in range(steps):
                observation, reward, done = side.step(self._drawn(generator))
                found["observations"].append(observation.tolist())
                found["rewards"].append(reward.tolist())
                found["ended"] += [[i, row] for row in done.nonzero().flatten().tolist()]
        return found

    def _drawn(self, generator: torch.Generator) -> torch.Tensor:
        shape = (self._side.num_envs, self._side.num_actions)
        return (torch.rand(shape, generator=generator) * 2.0 - 1.0).to(self._side.device)

    def _wait(self) -> None:
        if self._side.device.type == "cuda":
            torch.cuda.synchronize(self._side.device)


def serve(build: Callable[[dict[str, Any]], Side], packages: tuple[str, ...]) -> None:
    """Make the side that the first argument describes and answer requests until there are no more.

    Args:
        build: Makes the environment; it gets what the driver sent, `threads` processors being all it may use.
        packages: Names of distributions whose versions are reported.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
    request = json.loads(sys.argv[1])
    confine(request["threads"])
    torch.set_num_threads(1)
    served = Served(build(request), packages)
    _send(replies, {"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        _send(replies, getattr(served, asked.pop("call"))(**asked))


def confine(threads: int) -> None:
    """Let this process use so many processors only: some libraries take as many threads as there are."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _send(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def model_facts(model: Any) -> dict[str, Any]:
    """Return the numbers of a compiled `mujoco.MjModel` that decide its motion and its cost.

    Bodies without mass are left out: a library may hang a model upon one.
    """
    option = model.opt
    facts: dict[str, Any] = {name: getattr(model, name) for name in ("nq", "nv", "nu", "njnt", "ngeom")}
    for name in ("timestep", "integrator", "cone", "jacobian", "solver", "iterations", "ls_iterations"):
        facts[name] = float(getattr(option, name))
    facts["tolerance"], facts["gravity"] = float(option.tolerance), option.gravity.tolist()
    for name in ("body_mass", "body_inertia", "body_ipos"):
        facts[name] = getattr(model, name)[model.body_mass > 0.0].ravel().tolist()
    fields = ("jnt_range", "jnt_solref", "dof_damping", "geom_contype", "actuator_gear", "actuator_gainprm")
    for name in (*fields, "actuator_ctrlrange"):
        facts[name] = getattr(model, name).ravel().tolist()
    return facts


def running_threads() -> int | None:
    """Return how many threads this process has; None where the system does not say."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else None
