"""A collector in a process of its own, as the learner sees it: a source of transitions that may die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

import torch

from unilab_core import CapabilityError, ConfigError, EnvFactory, TorchEnvCfg
from unilab_rl.runtime.collector_process import (
    CollectorMaker,
    CollectorTask,
    run_collector,
)
from unilab_rl.runtime.heartbeat import HeartbeatWatch
from unilab_rl.runtime.ingress import POLL_S, RingReader, TransitionRing
from unilab_rl.runtime.reports import Failure, Inbox, Report
from unilab_rl.runtime.sending import check_can_be_sent
from unilab_rl.runtime.shared_memory import shared_zeros
from unilab_rl.runtime.weights import SharedWeights, WeightPublisher
from unilab_rl.state_parts import copy_to_cpu
from unilab_rl.tally import TallyTotals

if TYPE_CHECKING:
    from unilab_rl.algorithms.agent import OffPolicyAgent
    from unilab_rl.algorithms.config import OffPolicyCfg
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["BEGIN_S", "STILL_S", "CollectorError", "SpawnedCollector"]

_SLOTS = 8
"""Steps that the collector may be ahead: enough to bridge an update, and few, so that a recent policy acts."""

STILL_S = 60.0
"""Seconds without a heartbeat after which a collector counts as hung: far more than a step or a reset of all rows."""

BEGIN_S = 300.0
"""As `STILL_S`, before the first step: a scene is built and a backend may compile meanwhile, and nothing beats."""

_CPU = torch.device("cpu")
_FIRST_JOIN_S, _SECOND_JOIN_S = 5.0, 2.0


class CollectorError(ChildProcessError):
    """The process of a collector failed died or hung; the message holds its traceback, or how it ended."""


class SpawnedCollector:
    """The `Collector` of another process. It is started by the first step, and ended by `close`.

    The learner's own environment is never stepped; it says what the other one is like, and keeps count of its steps.
    """

    def __init__(
        self,
        algorithm: CollectorMaker,
        env: EnvProtocol,
        cfg: OffPolicyCfg,
        agent: OffPolicyAgent,
        factory: EnvFactory | None,
        *,
        seed: int,
        still_s: float = STILL_S,
        begin_s: float = BEGIN_S,
    ) -> None:
        """Checks what can be checked before a process is started.

        Args:
            algorithm: Builds agent and collector over there.
            env: The learner's own environment.
            cfg: The learner's config.
            agent: The learner's agent; what its explorer depends on is published.
            factory: Builds the environment over there.
            seed: As that of the agent.
            still_s: Seconds of waiting without a heartbeat of the process after which it counts as hung.
            begin_s: As `still_s`, before its first step.

        Raises:
            ConfigError: There is no factory, or something that would have to be sent can't be; names it.
            CapabilityError: The environment lives on a device, or there is not enough shared memory.
        """
        if factory is None:
            raise ConfigError(
                f"{algorithm.name}: collectors={cfg.collectors} needs a factory that builds another environment, and "
                "got none; set learner.collectors=0"
            )
        if env.describe().capabilities.get("execution") == "device_resident":
            raise CapabilityError(
                f"{algorithm.name}: collectors={cfg.collectors}, but the environment lives on {env.device} and is "
                "collected in the learner's process; set learner.collectors=0"
            )
        self._algorithm, self._env, self._cfg, self._seed = algorithm, env, cfg, seed
        self._threads = max(1, _num_cpus() - torch.get_num_threads())
        self._factory = _over_there(factory, env, self._threads)
        check_can_be_sent("a collector of its own", {"env": self._factory, "learner": cfg})
        # A generator's state fits the generators of its kind of device only, and over there it is the CPU.
        alike = (
            agent if agent.device.type == "cpu" else algorithm.make_agent(env, cfg, seed=seed, device=_CPU)
        )
        self._twin = algorithm.make_collector(env, cfg, alike, seed=seed)
        self._state = self._twin.state()
        module = agent.explorer(env.num_envs).module
        self._context = multiprocessing.get_context("spawn")
        self._weights = SharedWeights.of(module)
        self._publisher = WeightPublisher(module, self._weights)
        width = self._twin.layout.packed_width
        self._ring = TransitionRing.of(self._context, _SLOTS, env.num_envs, width)
        self._reader = RingReader(self._ring)
        self._stop = shared_zeros((1,), torch.int64)
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._inbox: Inbox | None = None
        self._still_s, self._begin_s = still_s, begin_s
        self._watch = HeartbeatWatch(2 * POLL_S)
        self._closed = False
        self._totals = TallyTotals()
        self._num_reports = self._occupancy = self._lag = 0
        self._seen = _Seen()

    @property
    def pid(self) -> int | None:
        """The process's id; `None` before the first step and after the end."""
        return None if self._process is None else self._process.pid

    def step(self) -> torch.Tensor:
        """Waits for the next step and returns it, (N, packed_width) on the learner's device.

        Raises:
            CollectorError: The process failed, died, or has not moved for too long.
        """
        if self._closed:
            raise RuntimeError("SpawnedCollector.step: it is closed")
        if self._process is None:
            self._start()
        self._watch.begin()
        self._receive_reports((self._reader.read + 1) // self._cfg.num_steps_per_env)
        packed, version = self._reader.get(self._check)
        self._occupancy += self._reader.occupancy
        self._lag += self._publisher.version - version
        return packed.to(self._env.device)

    def publish(self) -> None:
        """Publishes the weights of what acts."""
        self._publisher.publish()

    def take_totals(self) -> TallyTotals:
        """Returns the sums of logs and finished episodes since the last call."""
        totals, self._totals = self._totals, TallyTotals()
        return totals

    def take_metrics(self) -> dict[str, float]:
        """Returns how both sides waited for each other since the last call, and how old the weights were that acted.

        `Collector/ring_occupancy` is the mean number of steps that waited in the ring, `Collector/weights_lag` that of
        versions between the weights that acted and the newest; `Collector/blocked_s` and `Collector/learner_wait_s` are
        the seconds that the collector waited for a free slot, and the learner for a filled one.
        """
        now = _Seen(self._reader.read, self._ring.blocked_s, self._reader.waited_s)
        steps = max(1, now.read - self._seen.read)
        metrics = {
            "Collector/ring_occupancy": self._occupancy / steps,
            "Collector/weights_lag": self._lag / steps,
            "Collector/blocked_s": now.blocked_s - self._seen.blocked_s,
            "Collector/learner_wait_s": now.waited_s - self._seen.waited_s,
        }
        self._seen, self._occupancy, self._lag = now, 0, 0
        return metrics

    def state(self) -> dict[str, Any]:
        """Returns what the collector reported last, or began with."""
        return copy_to_cpu(self._state)  # type: ignore[no-any-return]

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Begins with what `state` returned, instead of from nothing.

        Raises:
            ValueError: It doesn't fit; nothing was changed.
            RuntimeError: The process is running already.
        """
        if self._process is not None:
            raise RuntimeError(
                "SpawnedCollector.load_state: the process runs already; load before the first step"
            )
        self._twin.load_state(state)
        self._state = self._twin.state()

    def episodes_restart(self) -> None:
        """Lets the collector begin with noise that was redrawn for new episodes.

        Raises:
            RuntimeError: The process is running already.
        """
        if self._process is not None:
            raise RuntimeError("SpawnedCollector.episodes_restart: the process runs already")
        self._twin.episodes_restart()
        self._state = self._twin.state()

    def close(self) -> None:
        """Ends the process, if need be by force, and frees the shared memory; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        process, pipe = self._process, self._pipe
        self._stop.fill_(1)
        try:
            if pipe is not None:
                pipe.close()  # it may be in the middle of a report that nobody reads
            if process is not None:
                _end(process)
        finally:
            self._reader.close()
            del self._ring, self._reader, self._weights, self._publisher
            self._process = self._pipe = self._inbox = None

    def _start(self) -> None:
        self._publisher.publish()
        receiving, sending = self._context.Pipe(duplex=False)
        task = CollectorTask(
            algorithm=self._algorithm,
            factory=self._factory,
            cfg=self._cfg,
            seed=self._seed,
            state=self._state,
            training_state=dict(self._env.export_training_state()),
            threads=self._threads,
            weights=self._weights,
            ring=self._ring,
            stop=self._stop,
            pipe=sending,
        )
        process = self._context.Process(target=run_collector, args=(task,), name="collector", daemon=True)
        self._process, self._pipe, self._inbox = process, receiving, Inbox(receiving)
        self._begun = self._env.export_training_state()["step_counter"]
        # Ctrl-C reaches every process of a terminal. The parent alone decides what follows, so it is blocked over there
        # from the first moment on; one that comes meanwhile is delivered to the parent afterwards.
        with _blocked(signal.SIGINT):
            process.start()
        sending.close()  # so that the end of the process is the end of the pipe

    def _receive_reports(self, needed: int) -> None:
        """Waits until `needed` reports have come: each is sent before the step that ends its iteration.

        One may have come already, while a step was waited for.
        """
        assert self._process is not None
        assert self._pipe is not None
        while self._num_reports < needed:
            wait([self._pipe, self._process.sentinel], timeout=POLL_S)
            self._check()

    def _check(self) -> None:
        """Takes in one message where there is one; never waits for it.

        Raises:
            CollectorError: The process is not there any more, has failed, or has not moved for too long.
        """
        assert self._process is not None
        assert self._inbox is not None
        # Asked first: what a process said before its end has arrived by then.
        ended = bool(wait([self._process.sentinel], timeout=0))
        try:
            message = self._inbox.take()
        except (EOFError, OSError):
            message, ended = None, True
        if isinstance(message, Report):
            self._num_reports += 1
            self._totals += message.totals
            self._state = message.state
            counter = self._begun + message.steps
            self._env.import_training_state({"version": 1, "step_counter": counter})
        elif isinstance(message, Failure):
            raise CollectorError(f"the collector process failed: {message.error}\n{message.traceback}")
        elif ended:
            self._process.join(_FIRST_JOIN_S)
            raise CollectorError(
                f"the collector process {_how_it_ended(self._process.exitcode, self._reader.read)}"
            )
        else:
            self._check_moves()

    def _check_moves(self) -> None:
        """Ends a process that has not moved for too long, by force, and raises CollectorError."""
        assert self._process is not None
        limit = self._still_s if self._ring.written else self._begin_s
        if self._watch.look(self._ring.beats) < limit:
            return
        pid = self._process.pid
        self._process.kill()  # a stopped process heeds nothing else
        self._process.join(_SECOND_JOIN_S)
        raise CollectorError(
            f"the collector process {pid} has not moved for {limit:g} s after {self._reader.read} steps that reached "
            "the learner, and was ended: it was stopped, or a step of its environment hangs"
        )


@dataclass(frozen=True)
class _Seen:
    """What metrics were counted up to."""

    read: int = 0
    blocked_s: float = 0.0
    waited_s: float = 0.0


def _over_there(factory: EnvFactory, env: EnvProtocol, threads: int) -> EnvFactory:
    """Returns the factory of the same environment on the CPU, with `threads` of physics where all cores were meant."""
    cfg = env.cfg
    if isinstance(cfg, TorchEnvCfg) and cfg.sim.num_threads == 0:
        cfg = cfg.with_({"sim.num_threads": threads})
    return replace(factory, task=cfg, device="cpu", num_envs=env.num_envs, overrides=())


def _num_cpus() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end(process: SpawnProcess) -> None:
    """Waits for a process that was asked to stop; asks louder where it doesn't."""
    if process.pid is None:  # it was never started
        return
    process.join(_FIRST_JOIN_S)
    if process.is_alive():
        process.terminate()
        process.join(_SECOND_JOIN_S)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def _how_it_ended(exitcode: int | None, steps: int) -> str:
    """Returns the rest of a sentence about a process from which `steps` steps have come."""
    after = f"after {steps} steps that reached the learner"
    if exitcode is None:
        return f"closed its pipe and hangs {after}"
    if exitcode >= 0:
        # What an unguarded script does over there fails before anything could be sent.
        hint = (
            "; a script that starts training needs `if __name__ == '__main__':` around it"
            if exitcode == 1 and steps == 0
            else ""
        )
        return f"ended with exit code {exitcode} and without a word {after}{hint}"
    name = signal.Signals(-exitcode).name
    hint = ", as the system does where memory runs out," if -exitcode == signal.SIGKILL else ""
    return f"was ended by {name}{hint} {after}"


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Holds back a signal of this thread; a process that is started inside never gets it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
