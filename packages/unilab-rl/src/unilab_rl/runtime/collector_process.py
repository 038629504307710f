"""What runs in the process of a collector: the same `Collector`, between a ring of steps and published weights."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

import torch

from unilab_core import EnvFactory
from unilab_rl.runtime.ingress import RingWriter, TransitionRing
from unilab_rl.runtime.reports import Failure, Report, send
from unilab_rl.runtime.weights import SharedWeights, WeightReader

if TYPE_CHECKING:
    from unilab_rl.algorithms.agent import OffPolicyAgent
    from unilab_rl.algorithms.config import OffPolicyCfg
    from unilab_rl.contracts.env import EnvProtocol
    from unilab_rl.runtime.collector import Collector

__all__ = ["CollectorMaker", "CollectorTask", "run_collector"]

_GRACE_S = 5.0
"""Seconds that a collector has to end by itself when the learner's process is gone."""


class CollectorMaker(Protocol):
    """What an algorithm offers to the process of a collector; it can be sent there."""

    @property
    def name(self) -> str:
        """The algorithm's."""
        ...

    def make_agent(
        self, env: EnvProtocol, cfg: OffPolicyCfg, *, seed: int, device: torch.device | None = None
    ) -> OffPolicyAgent:
        """Builds the agent for `env`, on `device` (`None`: that of `env`)."""
        ...

    def make_collector(
        self, env: EnvProtocol, cfg: OffPolicyCfg, agent: OffPolicyAgent, *, seed: int
    ) -> Collector:
        """Builds what steps `env` with the explorer of `agent`."""
        ...


@dataclass(frozen=True)
class CollectorTask:
    """Everything that the process is told; plain data, handles of shared memory, and one end of a pipe."""

    algorithm: CollectorMaker
    factory: EnvFactory
    cfg: OffPolicyCfg
    seed: int
    state: dict[str, Any]
    """What the collector begins with, as `Collector.state` returned it."""

    training_state: dict[str, int]
    """What the environment's curricula begin with."""

    threads: int
    """Threads of torch."""

    weights: SharedWeights
    ring: TransitionRing
    stop: torch.Tensor
    """(1,) int64: not 0 when the process shall end."""

    pipe: Connection
    """Where reports and a failure go."""


def run_collector(task: CollectorTask) -> None:
    """Collects until it is told to stop; an exception is sent to the learner with its traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner's process decides what a Ctrl-C means
    torch.set_num_threads(task.threads)
    threading.Thread(target=_end_with_parent, args=(task.stop,), daemon=True).start()
    writer = RingWriter(task.ring)
    try:
        _collect(task, writer)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the learner is told
        failure = Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
        with contextlib.suppress(BrokenPipeError):  # then nobody is left to be told
            send(task.pipe, failure, writer.beat)
        sys.exit(1)


def _collect(task: CollectorTask, writer: RingWriter) -> None:
    def stopped() -> bool:
        return bool(task.stop[0])

    with closing(task.factory()) as env:
        env.import_training_state(task.training_state)  # before the first reset, which follows curricula
        env.reset()
        agent = task.algorithm.make_agent(env, task.cfg, seed=task.seed)
        collector = task.algorithm.make_collector(env, task.cfg, agent, seed=task.seed)
        collector.load_state(task.state)
        weights = WeightReader(collector.explorer.module, task.weights)
        steps = 0
        while not stopped():
            weights.refresh()
            packed = collector.step()
            steps += 1
            if steps % task.cfg.num_steps_per_env == 0:
                report = Report(steps, collector.take_totals(), collector.state())
                send(task.pipe, report, writer.beat)
            if not writer.put(packed, weights.version, stopped):
                return


def _end_with_parent(stop: torch.Tensor) -> None:
    """Ends this process when the learner's is gone: by itself where it looks at `stop`, else by force."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    stop.fill_(1)
    threading.Event().wait(_GRACE_S)
    os._exit(1)
