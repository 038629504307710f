"""A collector's process that is stopped or hangs is noticed and ended; one that only waits is left alone."""

import multiprocessing
import os
import re
import signal
from multiprocessing.connection import wait

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from off_policy_support import ECHO, DyingCfg, small
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_core import EnvFactory
from unilab_rl.runtime.heartbeat import HeartbeatWatch
from unilab_rl.runtime.ingress import POLL_S
from unilab_rl.runtime.reports import Failure, Inbox, Report, send
from unilab_rl.runtime.spawned import CollectorError, SpawnedCollector, _how_it_ended
from unilab_rl.tally import TallyTotals

SLOTS = 8
pytestmark = pytest.mark.timeout(120)  # a process imports torch, which takes long where many do


def make(cfg=None, *, num_steps_per_env=4, **limits):
    cfg = cfg or ScriptedEnvCfg()
    env, learner_cfg = ScriptedEnv(cfg), small(ECHO, collectors=1, num_steps_per_env=num_steps_per_env)
    factory = EnvFactory(cfg, backend="scripted", num_envs=cfg.num_envs)
    agent = ECHO.make_agent(env, learner_cfg, seed=0)
    return SpawnedCollector(ECHO, env, learner_cfg, agent, factory, seed=0, **limits)


def take_steps(source, number):
    for _ in range(number):
        source.step()


def gone(pid):
    """Whether there is no such process, not even one that nobody waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# ---------------------------------------------------------------- real processes


@pytest.mark.parametrize(
    "num_steps_per_env", [pytest.param(1, id="report awaited"), pytest.param(1000, id="step awaited")]
)
def test_a_stopped_process_is_noticed_and_ended(num_steps_per_env, left_in_shared_memory):
    source = make(num_steps_per_env=num_steps_per_env, still_s=1.0)
    try:
        source.step()
        pid = source.pid
        os.kill(pid, signal.SIGSTOP)
        # Some steps were in the ring, and one may have been on its way.
        with pytest.raises(CollectorError) as caught:
            take_steps(source, SLOTS + 2)
        assert re.match(
            rf"the collector process {pid} has not moved for 1 s after {source._reader.read} steps that reached the "
            "learner, and was ended: it was stopped",
            str(caught.value),
        )
        assert gone(pid), "by force, for a stopped process heeds nothing else"
    finally:
        source.close()
    assert left_in_shared_memory() == set()


def test_a_step_that_hangs_is_noticed_and_the_process_ended():
    source = make(DyingCfg(hang_at=3), still_s=1.0)
    try:
        source.step()
        source.step()
        pid = source.pid
        with pytest.raises(CollectorError, match=r"has not moved for 1 s after 2 steps"):
            source.step()
        assert gone(pid)
    finally:
        source.close()


def test_before_the_first_step_another_limit_holds():
    source = make(DyingCfg(hang_at=1), still_s=1e-3, begin_s=1.5)
    try:
        with pytest.raises(CollectorError, match=r"has not moved for 1.5 s after 0 steps"):
            source.step()
    finally:
        source.close()


def test_a_process_that_waits_for_a_free_slot_is_not_called_hung():
    limit = 2.0
    source = make(num_steps_per_env=1000, still_s=limit)
    try:
        source.step()
        while source._ring.blocked_s < 2 * limit:
            assert not wait([source._process.sentinel], timeout=POLL_S), "it lives"
            source._check()
        assert source._ring.written == SLOTS + 1, "it was blocked all that time"
        take_steps(source, 2 * SLOTS)
    finally:
        source.close()


# ---------------------------------------------------------------- the watch


class Clock:
    """Says what it is told to."""

    now = 100.0

    def __call__(self):
        return self.now


def test_the_watch_adds_up_time_without_a_beat_and_forgets_it_at_the_next():
    clock = Clock()
    watch = HeartbeatWatch(0.5, clock)
    seen = []
    for now, beats in [(100.25, 7), (100.5, 7), (101.0, 7), (101.25, 8), (101.5, 8)]:
        clock.now = now
        seen.append(watch.look(beats))
    assert seen == [0.0, 0.25, 0.75, 0.0, 0.25]


def test_time_in_which_nobody_waited_or_looked_is_not_held_against_the_other():
    clock = Clock()
    watch = HeartbeatWatch(0.5, clock)
    watch.look(7)
    clock.now += 1000.0  # both were stopped
    assert watch.look(7) == 0.5
    clock.now += 1000.0  # an update took long
    watch.begin()
    assert watch.look(7) == 0.0
    clock.now += 0.25
    assert watch.look(7) == 0.25


# ---------------------------------------------------------------- the pipe


class Pieces:
    """A pipe's writing end that keeps what it is given."""

    def __init__(self):
        self.kept = []

    def send_bytes(self, piece):
        self.kept.append(piece)


@given(st.integers(0, 20_000))
def test_a_message_arrives_whole_whatever_its_length_and_the_process_beats_for_each_piece(length):
    pieces, beats = Pieces(), []
    message = Failure("E" * length, "nowhere")
    send(pieces, message, lambda: beats.append(len(pieces.kept)))
    assert beats == list(range(len(pieces.kept)))
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with receiving, sending:
        inbox = Inbox(receiving)
        for piece in pieces.kept[:-1]:
            sending.send_bytes(piece)
            assert inbox.take() is None, "a half is not waited for"
        sending.send_bytes(pieces.kept[-1])
        assert inbox.take() == message


def test_no_write_is_longer_than_what_a_pipe_takes_at_once(monkeypatch):
    written = []
    receiving, sending = multiprocessing.Pipe(duplex=False)
    report = Report(3, TallyTotals(), {"generator": torch.arange(4000, dtype=torch.int64)})
    with receiving, sending:
        write = type(sending)._send
        monkeypatch.setattr(
            type(sending), "_send", lambda self, data: (written.append(len(data)), write(self, data))
        )
        send(sending, report, lambda: None)
        got = Inbox(receiving).take()
    assert len(written) > 7
    assert max(written) <= 4096
    assert torch.equal(got.state["generator"], report.state["generator"])


def test_two_messages_are_taken_one_by_one_and_then_the_end_is_told():
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with receiving:
        inbox = Inbox(receiving)
        for name in ("first", "second"):
            send(sending, Failure(name, ""), lambda: None)
        sending.close()
        assert inbox.take() == Failure("first", "")
        assert inbox.take() == Failure("second", "")
        with pytest.raises(EOFError):
            inbox.take()


# ---------------------------------------------------------------- how it ended


@pytest.mark.parametrize(
    ("exitcode", "steps", "text"),
    [
        (
            1,
            0,
            "ended with exit code 1 and without a word after 0 steps that reached the learner; a script that starts "
            "training needs `if __name__ == '__main__':` around it",
        ),
        (1, 5, "ended with exit code 1 and without a word after 5 steps that reached the learner"),
        (3, 0, "ended with exit code 3 and without a word after 0 steps that reached the learner"),
        (
            -signal.SIGKILL,
            2,
            "was ended by SIGKILL, as the system does where memory runs out, after 2 steps that reached the learner",
        ),
        (-signal.SIGSEGV, 2, "was ended by SIGSEGV after 2 steps that reached the learner"),
        (None, 2, "closed its pipe and hangs after 2 steps that reached the learner"),
    ],
)
def test_the_message_is_a_sentence_with_its_hint_at_the_end(exitcode, steps, text):
    assert _how_it_ended(exitcode, steps) == text
