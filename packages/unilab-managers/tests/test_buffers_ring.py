"""FrameRing: the last frames of every row, against a plain list per row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_support import ids
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_managers.buffers import FrameRing


def ring_of(*frames: list[float], length: int = 3) -> FrameRing:
    """Returns a ring of one column, started with the first frame, the others pushed."""
    ring = FrameRing(len(frames[0]), length, 1, "cpu")
    ring.fill(torch.arange(len(frames[0])), torch.tensor(frames[0]).unsqueeze(1))
    for frame in frames[1:]:
        ring.push(torch.tensor(frame).unsqueeze(1))
    return ring


def shown(ring: FrameRing) -> list[list[float]]:
    return ring.frames().squeeze(2).tolist()


def test_frames_stand_from_the_oldest_to_the_newest() -> None:
    assert shown(ring_of([1.0, 10.0])) == [[1.0, 1.0, 1.0], [10.0, 10.0, 10.0]]
    assert shown(ring_of([1.0, 10.0], [2.0, 20.0])) == [[1.0, 1.0, 2.0], [10.0, 10.0, 20.0]]
    five = ring_of([1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, 50.0])
    assert shown(five) == [[3.0, 4.0, 5.0], [30.0, 40.0, 50.0]]
    assert five.oldest().flatten().tolist() == [3.0, 30.0]


def test_each_row_is_read_at_its_own_lag_and_no_farther_than_its_oldest_frame() -> None:
    ring = ring_of([1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0])
    for lags, expected in (([0, 2], [4.0, 20.0]), ([1, 0], [3.0, 40.0]), ([7, 3], [2.0, 20.0])):
        assert ring.at(torch.tensor(lags)).flatten().tolist() == expected


def test_a_row_that_begins_anew_shows_nothing_older_whatever_its_lag() -> None:
    ring = ring_of([1.0, 10.0], [2.0, 20.0], [3.0, 30.0])
    ring.fill(ids(1), torch.tensor([[100.0]]))
    assert shown(ring) == [[1.0, 2.0, 3.0], [100.0, 100.0, 100.0]]
    ring.push(torch.tensor([[4.0], [101.0]]))
    assert ring.at(torch.tensor([2, 2])).flatten().tolist() == [2.0, 100.0]
    assert shown(ring) == [[2.0, 3.0, 4.0], [100.0, 100.0, 101.0]]


def test_a_ring_of_one_holds_the_newest_frame_only() -> None:
    ring = ring_of([1.0], [2.0], length=1)
    assert shown(ring) == [[2.0]]
    assert ring.at(torch.tensor([3])).tolist() == ring.oldest().tolist() == [[2.0]]


def test_filling_no_rows_changes_nothing() -> None:
    ring = ring_of([1.0, 10.0], [2.0, 20.0])
    ring.fill(ids(), torch.zeros(0, 1))
    assert shown(ring) == [[1.0, 1.0, 2.0], [10.0, 10.0, 20.0]]


def test_what_was_pushed_is_copied_and_what_at_returns_is_fresh() -> None:
    ring, frame = ring_of([1.0], length=2), torch.tensor([[2.0]])
    ring.push(frame)
    served = ring.at(torch.tensor([0]))
    frame.fill_(9.0)
    served.fill_(9.0)
    assert shown(ring) == [[1.0, 2.0]]


def test_a_ring_says_how_long_and_how_wide_it_is() -> None:
    ring = FrameRing(2, 3, 4, "cpu")
    assert (ring.length, ring.dim) == (3, 4)


@pytest.mark.parametrize(
    ("name", "sizes"), [("num_envs", (0, 1, 1)), ("length", (1, 0, 1)), ("dim", (1, 1, 0))]
)
def test_a_ring_of_no_size_is_refused(name: str, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=f"FrameRing: {name} is 0, expected at least 1"):
        FrameRing(*sizes, "cpu")


class Operators(TorchDispatchMode):
    """Counts operators, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_a_push_and_a_look_cost_few_operators_and_no_memory_is_added() -> None:
    ring, frame, lags = FrameRing(4, 5, 3, "cpu"), torch.ones(4, 3), torch.tensor([0, 1, 2, 3])
    held = sum(value.numel() for value in vars(ring).values() if isinstance(value, torch.Tensor))
    assert held == 2 * (4 * 5 * 3) + 4  # every frame twice, and the number of each row
    storage = {k: v.data_ptr() for k, v in vars(ring).items() if isinstance(v, torch.Tensor)}
    for _ in range(12):
        counts = []
        for call in (lambda: ring.push(frame), ring.frames, ring.oldest, lambda: ring.at(lags)):
            with Operators() as counted:
                call()
            counts.append(len(counted.names))
        assert counts == [2, 1, 1, 3]
    assert {k: v.data_ptr() for k, v in vars(ring).items() if isinstance(v, torch.Tensor)} == storage


N, DIM = 3, 2
numbers = st.integers(-9, 9).map(float)
frames = st.lists(st.lists(numbers, min_size=DIM, max_size=DIM), min_size=N, max_size=N)
subsets = st.lists(st.integers(0, N - 1), unique=True)
commands = st.lists(
    st.one_of(
        frames.map(lambda f: ("push", f, [])),
        st.tuples(st.just("fill"), frames, subsets),
        st.lists(st.integers(0, 7), min_size=N, max_size=N).map(lambda lags: ("look", lags, [])),
    ),
    max_size=25,
)


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(length=st.integers(1, 5), start=frames, commands=commands)
def test_any_sequence_of_pushes_and_fills_is_what_a_list_per_row_holds(length, start, commands) -> None:
    ring = FrameRing(N, length, DIM, "cpu")
    ring.fill(torch.arange(N), torch.tensor(start))
    episodes = [[row] for row in start]
    for kind, argument, rows in commands:
        if kind == "push":
            ring.push(torch.tensor(argument))
            for episode, row in zip(episodes, argument, strict=True):
                episode.append(row)
        elif kind == "fill":
            ring.fill(ids(*rows), torch.tensor(argument)[rows].reshape(len(rows), DIM))
            for row in rows:
                episodes[row] = [argument[row]]
        else:
            found = ring.at(torch.tensor(argument)).tolist()
            for episode, lag, frame in zip(episodes, argument, found, strict=True):
                assert frame == episode[max(0, len(episode) - 1 - min(lag, length - 1))]
        expected = [([e[0]] * length + e)[-length:] for e in episodes]
        assert ring.frames().tolist() == expected
        assert ring.oldest().tolist() == [window[0] for window in expected]
