"""A replay can be taken back to a mark as long as somebody holds it, and pays for it only then."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_support import KINDS, Stream, WaitCounter, contents, equal, every_window, make_replay, same

from unilab_rl.contracts.replay import ReplayContents
from unilab_rl.replay import Replay

steps = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), max_size=12)


def play(stream, script):
    for kinds in script:
        stream.add(kinds)
        if stream.replay.can_sample(1):
            stream.replay.sample(3)


@settings(max_examples=150, deadline=None)
@given(before=steps, script=steps, later=steps, interrupts=st.booleans())
def test_qa_088_whatever_was_added_since_a_mark_is_undone(before, script, later, interrupts):
    stream = Stream(make_replay(2, 4, n_step=2))
    play(stream, before)
    kept, windows = contents(stream.replay), every_window(stream.replay) if len(stream.replay) else []
    mark = stream.replay.mark()
    play(stream, script)
    if interrupts:
        stream.interrupt()
    between = stream.replay.mark()
    play(stream, later)
    newest = stream.replay.mark()
    assert isinstance(mark, ReplayContents)
    assert equal(dict(mark.restore()), kept)
    assert equal(contents(stream.replay), kept)
    assert (every_window(stream.replay) if len(stream.replay) else []) == windows
    for gone in (between, newest):
        with pytest.raises(RuntimeError, match="taken back farther, since the mark was made"):
            gone.restore()


def test_a_replay_that_was_taken_back_goes_on_as_if_nothing_had_been():
    streams = [Stream(make_replay(2, 4, n_step=2)) for _ in range(2)]
    for stream in streams:
        play(stream, [("go", "go"), ("go", "truncated")] * 3)
    there_and_back = streams[0].replay
    mark = there_and_back.mark()
    play(Stream(there_and_back), [("go", "terminated")] * 7)
    mark.restore()
    for _ in range(9):
        recorded = []
        streams[1].replay.add_rows = lambda packed, kept=recorded: kept.append(packed)
        streams[1].add(("go", "go"))
        del streams[1].replay.add_rows
        for stream in streams:
            stream.replay.add_rows(recorded[0])
        assert same([streams[0].replay.sample(5)], [streams[1].replay.sample(5)])
    assert equal(contents(there_and_back), contents(streams[1].replay))


@pytest.mark.parametrize("operator", ["index_copy_", "add_", "copy_", "logical_or_"])
def test_a_step_that_is_interrupted_anywhere_is_undone(monkeypatch, operator):
    real = getattr(torch.Tensor, operator)
    number = 0
    while True:
        number += 1
        stream = Stream(make_replay(2, 4))
        play(stream, [("go", "go")] * 6)
        kept, mark, calls = contents(stream.replay), stream.replay.mark(), []

        def interrupted(*args, calls=calls, last=number):
            calls.append(args)
            if len(calls) == last:
                raise KeyboardInterrupt
            return real(*args)

        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, operator, interrupted)
            try:
                stream.add(("go", "go"))
            except KeyboardInterrupt:
                pass
            else:
                break
        assert equal(dict(mark.restore()), kept)
    assert number > 1


def test_there_is_no_way_back_once_a_replay_was_loaded_anew():
    stream = Stream(make_replay())
    stream.add(("go", "go"))
    mark = stream.replay.mark()
    stream.replay.load_state(contents(make_replay()))
    with pytest.raises(RuntimeError, match="Replay: loaded anew"):
        mark.restore()


def test_the_contents_of_one_replay_load_into_another_and_into_itself():
    stream = Stream(make_replay())
    play(stream, [("go", "go")] * 3)
    kept, other = contents(stream.replay), make_replay(seed=9)
    other.load_state(stream.replay.mark().restore())
    assert equal(contents(other), kept)
    other.load_state(other.mark().restore())
    assert equal(contents(other), kept)


def test_nothing_is_kept_for_a_mark_that_nobody_holds():
    stream = Stream(make_replay())
    stream.add(("go", "go"))
    mark = stream.replay.mark()
    stream.add(("go", "go"))
    (noted,) = mark._steps
    held = weakref.ref(noted[0].held)
    del noted, mark
    gc.collect()
    assert held() is None
    assert stream.replay._held_mark() is None


def test_a_mark_is_smaller_than_a_step_and_neither_it_nor_its_steps_wait_for_the_device():
    replay = Replay(8, 1000, {"obs": 20}, 4, n_step=1, gamma=0.9, device="cpu", seed=0)
    stored = replay._rows.numel() * replay._rows.itemsize
    obs, flags = {"obs": torch.zeros(8, 20)}, torch.zeros(8, dtype=torch.bool)
    with WaitCounter() as waits:
        mark = replay.mark()
        replay.add(obs, torch.zeros(8, 4), torch.zeros(8), obs, flags, flags)
    assert not waits.counts
    kept = sum(head.numel() * head.itemsize for head in mark.heads.values())
    assert kept < 8 * replay.bytes_per_transition
    (noted,) = mark._steps
    assert sum(part.held.numel() * part.held.itemsize for part in noted) < 2 * 8 * replay.bytes_per_transition
    assert stored > 100 * kept
