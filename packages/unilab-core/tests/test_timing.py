"""Seconds become whole control steps by one rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unilab_core import seconds_to_steps


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.14, 7),
        (0.28, 14),
        (0.56, 28),
        (1.12, 56),
        (2.22, 111),
        (0.58, 29),
        (0.94, 47),
        (1.14, 57),
        (0.15, 8),
    ],
)
def test_qa_117_binary_fractions_neither_add_nor_lose_a_step(seconds, expected):
    assert seconds_to_steps(seconds, 0.02) == expected


def test_what_is_no_multiple_is_rounded_up():
    assert seconds_to_steps(0.0201, 0.02) == 2


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.001, 0.02])
def test_there_is_at_least_one_step(seconds):
    assert seconds_to_steps(seconds, 0.02) == 1


@given(st.integers(1, 100_000), st.sampled_from([0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 1 / 30, 1 / 60]))
def test_a_whole_number_of_steps_comes_back_exactly(number, step_dt):
    assert seconds_to_steps(number * step_dt, step_dt) == number
