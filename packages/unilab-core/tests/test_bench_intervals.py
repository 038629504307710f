"""Medians, their intervals and straight lines, on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unilab_core.benching.intervals import FEWEST, Line, Median, fit_line, median_of


@pytest.mark.parametrize(
    ("number", "low", "high"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (20, 6, 15), (30, 10, 21), (31, 10, 22), (100, 40, 61)],
)
def test_the_interval_lies_between_the_ranks_of_the_tables(number, low, high):
    values = [10.0 * i for i in range(number, 0, -1)]
    assert median_of(values) == Median(10.0 * (number + 1) / 2, 10.0 * low, 10.0 * high)


@pytest.mark.parametrize("number", range(FEWEST, 61))
def test_the_interval_covers_95_percent_and_no_narrower_one_does(number):
    found = median_of([float(i) for i in range(number)])
    left_out = int(found.low)
    assert found.high == number - 1 - left_out

    def coverage(rank: int) -> float:
        return 1.0 - 2.0 * sum(math.comb(number, i) for i in range(rank + 1)) / 2.0**number

    assert coverage(left_out) >= 0.95 > coverage(left_out + 1)


def test_too_few_values_are_refused():
    with pytest.raises(ValueError, match="got 5 values, expected at least 6"):
        median_of([1.0] * 5)


def test_half_the_width_of_an_interval():
    assert Median(2.0, 1.0, 5.0).half_width == 2.0


@given(
    st.floats(-1e3, 1e3),
    st.floats(-1e3, 1e3),
    st.lists(
        st.tuples(st.integers(0, 4096), st.floats(0.1, 10.0)),
        min_size=2,
        max_size=6,
        unique_by=lambda v: v[0],
    ),
)
def test_points_on_a_line_give_that_line_whatever_they_weigh(intercept, slope, points):
    x, errors = zip(*points, strict=True)
    line = fit_line(x, [intercept + slope * v for v in x], errors)
    assert line.slope == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert line.intercept == pytest.approx(intercept, rel=1e-6, abs=5e-3)


def test_values_weigh_by_the_square_of_their_error():
    # At x = 0 the mean of 0 with weight 1 and 3 with weight 1/4 is 0.6; at x = 1 there is 2 alone.
    line = fit_line([0, 0, 1], [0.0, 3.0, 2.0], errors=[1.0, 2.0, 1.0])
    assert (line.intercept, line.slope) == (pytest.approx(0.6), pytest.approx(1.4))
    assert Line(0.5, 2.0).at(3.0) == 6.5


@pytest.mark.parametrize(("x", "errors"), [([2, 2], [1.0, 1.0]), ([1, 2], [1.0, 0.0])])
def test_no_line_through_one_place_or_without_errors(x, errors):
    with pytest.raises(ValueError, match="expected two different x and errors above 0"):
        fit_line(x, [1.0, 2.0], errors)
