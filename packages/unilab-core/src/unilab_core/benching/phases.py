"""Where the time of a step goes: the phases of any environment, and those that other layers know of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unilab_core.benching.instruments import PhaseClock, timed, waiter
from unilab_core.benching.parts import BenchPart, Phase
from unilab_core.env import TorchEnv

__all__ = ["REST", "RESET", "PhaseCost", "core_phases", "measure_phases"]

RESET = "reset"
"""Phase of automatic resets; what runs inside is `"reset.<phase>"`."""
REST = "the step itself"
"""What no phase covers."""

_HOOKS = {
    "actions": ("_control", "_begin_step", "_follow"),
    "terminations": ("_terminations",),
    "rewards": ("_rewards",),
    "events and commands": ("_advance",),
    "metrics": ("_measure",),
    "observations": ("_observe",),
    "recorders": ("_after_step",),
    "timers": ("_timers", "_timers_judged"),
    "verdict": ("_judge_before_physics", "_judge"),
    "writes": ("_advance_and_flush",),
}
"""Methods of an environment by phase; what managers do inside counts as theirs."""


@dataclass(frozen=True)
class PhaseCost:
    """What one phase costs in the mean over steps.

    Attributes:
        us: Time per step, µs, without that of phases that it calls.
        share: Of the whole step, 0 to 1.
        calls: Calls per step.
    """

    us: float
    share: float
    calls: float


def core_phases(env: TorchEnv) -> list[Phase]:
    """Returns the phases that every environment has, in the order of a step."""
    io, backend = env._io, env._backend
    packed = ("pack_rows",) if hasattr(backend, "pack_rows") else ()
    return [
        *(Phase(name, env, methods) for name, methods in _HOOKS.items()),
        Phase("control and packets", io, ("step", "substep", "apply_reset")),
        Phase("backend step", backend, ("step_tensor",)),
        Phase("read and pack", io, ("read",)),
        Phase("read and pack", backend, packed),
        Phase("verdict", backend, ("bad_rows",)),
        Phase("writes", io, ("write_rows",)),
        Phase("writes", backend, ("write_rows",)),
        Phase("commit", backend, ("apply_reset",)),
        Phase(RESET, env, ("_finish_episodes",), scope=True),
    ]


def measure_phases(
    env: TorchEnv, actions: Sequence[torch.Tensor], parts: Sequence[BenchPart]
) -> dict[str, PhaseCost]:
    """Steps once with each of `actions`, (N, A), and returns the cost of each phase by name, dearest first.

    The clock itself costs about a microsecond per call, which the phases show and the ratio to the engine does not.
    """
    wait = waiter(env.device)
    clock = PhaseClock(wait)
    phases = [*core_phases(env), *(phase for part in parts for phase in part.phases(env))]
    with torch.inference_mode(), timed(phases, clock):
        wait()
        began = time.perf_counter_ns()
        for action in actions:
            env.step(action)
        wait()
        whole = time.perf_counter_ns() - began
    spent = clock.ns | {REST: whole - clock.ns.total()}
    calls = clock.calls | {REST: len(actions)}
    steps = len(actions)
    return {
        name: PhaseCost(ns / steps / 1e3, ns / whole, calls[name] / steps)
        for name, ns in sorted(spent.items(), key=lambda item: -item[1])
    }
