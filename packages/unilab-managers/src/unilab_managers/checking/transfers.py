"""What a step moves between backend and tensors, against its own ledger, and which terms make it wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from unilab_core.description import PacketDescription
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import Place
from unilab_managers.checking.under_test import TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.waiting import WaitWatch
from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["check_transfers"]

_CHECK = "transfers"
_STEPS = 20
_PACKETS = ("control", "read", "reset", "selected_read", "write", "host")


def check_transfers(task: TaskUnderTest) -> list[Finding]:
    """Counts the packets of quiet steps and of steps with resets and writes, and who waits for the device."""
    with task.env(task.hurried) as env:
        found = list(dict.fromkeys(_counted(task, env)))
    return found + list(_waiting(task))


def _counted(task: TaskUnderTest, env: ManagerBasedRlEnv) -> Iterator[Finding]:
    ledger = env.describe().ledger
    act = draw_actions(env, "random", task.seed)
    with stopping("reset"):
        env.reset()
    before = _packets(env)
    for step in range(1, _STEPS + 1):
        with stopping(f"step {step}"):
            state = env.step(act())
        now = _packets(env)
        moved, before = {kind: now[kind] - before[kind] for kind in _PACKETS}, now
        when = ["step"]
        when += ["reset"] if bool((state.terminated | state.truncated).any()) else []
        when += ["write"] if moved["write"] else []
        wanted = _wanted(ledger, when)
        # A host term that an event asks for runs when the event does.
        unlike = [
            kind
            for kind in _PACKETS
            if moved[kind] != wanted[kind] and not (kind == "host" and len(when) > 1)
        ]
        for kind in unlike:
            said = f"moved {moved[kind]} {kind} packets, its ledger says {wanted[kind]}"
            what = f"a step with {' and '.join(when)} {said}"
            yield Finding(
                _CHECK, "", "", what, "let terms read through the scene, and write through entity data"
            )


def _packets(env: ManagerBasedRlEnv) -> dict[str, int]:
    return {kind: getattr(env.transfer_stats, kind).transfers for kind in _PACKETS}


def _wanted(ledger: tuple[PacketDescription, ...], when: list[str]) -> dict[str, int]:
    counts = Counter({kind: 0 for kind in _PACKETS})
    for packet in ledger:
        if packet.kind in counts and packet.when in when:
            counts[packet.kind] += packet.transfers
    return dict(counts)


def _waiting(task: TaskUnderTest) -> Iterator[Finding]:
    """Finds terms that wait for the device in steps in which no row ends, which cost a GPU more than they compute."""
    watch = WaitWatch()
    waits: dict[Place, str] = {}
    with watch.watching(), task.env() as env, watch.watching_actions(env):
        with stopping("reset"):
            env.reset()
        for step in range(1, 4):
            watch.waits.clear()
            with stopping(f"step {step}"):
                state = env.step(torch.zeros(env.num_envs, env.num_actions, device=env.device))
            if not bool((state.terminated | state.truncated).any()):
                waits |= {place: ", ".join(dict.fromkeys(found)) for place, found in watch.waits.items()}
    for place, operators in waits.items():
        what = f"it makes every step wait for the device ({operators})"
        fix = "use masks: torch.where, masked_fill, sums; leave numbers in tensors"
        yield Finding(_CHECK, *place, what, fix)
