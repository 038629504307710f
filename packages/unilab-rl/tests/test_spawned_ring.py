"""A ring of steps hands them over in order, whole, and holds back whoever is too fast."""

import multiprocessing
import threading

import pytest
import torch

from unilab_rl.runtime.ingress import RingReader, RingWriter, TransitionRing

SLOTS, ROWS, WIDTH = 3, 2, 5


@pytest.fixture
def ring():
    return TransitionRing.of(multiprocessing.get_context("spawn"), SLOTS, ROWS, WIDTH)


def step(number):
    return torch.full((ROWS, WIDTH), float(number))


def never():
    return False


def nobody_left():
    raise ConnectionError("nobody fills it")


def test_steps_come_in_order_with_the_version_that_acted(ring):
    writer, reader = RingWriter(ring), RingReader(ring)
    for number in range(10):  # three times around
        assert writer.put(step(number), 100 + number, never)
        packed, version = reader.get(nobody_left)
        assert torch.equal(packed, step(number))
        assert version == 100 + number
    assert (ring.written, reader.read, reader.occupancy) == (10, 10, 0)


def test_what_was_read_is_a_copy(ring):
    writer, reader = RingWriter(ring), RingReader(ring)
    writer.put(step(0), 0, never)
    packed, _ = reader.get(nobody_left)
    for number in range(1, 1 + SLOTS):
        writer.put(step(number), 0, never)
    assert torch.equal(packed, step(0))
    assert reader.occupancy == SLOTS


def test_a_full_ring_holds_the_writer_back_until_a_slot_is_read(ring):
    writer, reader = RingWriter(ring), RingReader(ring)
    results = []

    def write():
        results.extend(writer.put(step(number), number, never) for number in range(SLOTS + 1))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert ring.written == SLOTS
    assert torch.equal(reader.get(nobody_left)[0], step(0))
    thread.join(10)
    assert not thread.is_alive()
    assert results == [True] * (SLOTS + 1)
    assert [reader.get(nobody_left)[1] for _ in range(SLOTS)] == [1, 2, 3]
    assert ring.blocked_s > 0.2
    assert ring.beats > SLOTS + 1, "one for each step, and more while it waited"


def test_a_writer_that_waits_gives_up_when_it_is_stopped(ring):
    writer = RingWriter(ring)
    stop = threading.Event()
    for number in range(SLOTS):
        assert writer.put(step(number), 0, stop.is_set)
    results = []
    thread = threading.Thread(target=lambda: results.append(writer.put(step(9), 0, stop.is_set)))
    thread.start()
    stop.set()
    thread.join(10)
    assert results == [False]
    assert ring.written == SLOTS


def test_a_reader_that_waits_looks_whether_somebody_is_there(ring):
    reader = RingReader(ring)
    with pytest.raises(ConnectionError, match="nobody fills it"):
        reader.get(nobody_left)
    assert reader.read == 0
