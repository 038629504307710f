"""What resets cost, as a line in the number of rows."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps

from unilab_core.benching.resets import REPEATS, measure_resets, reset_sizes, summarise


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (4, [1, 4]),
        (17, [1, 4]),
        (64, [1, 4, 16]),
        (100, [1, 4, 16, 25]),
        (4096, [1, 4, 16, 64, 256, 1024]),
    ],
)
def test_sizes_grow_by_four_up_to_a_quarter_of_the_rows(rows, sizes):
    assert reset_sizes(rows) == sizes


def test_a_line_is_drawn_by_relative_distances_and_its_intercept_is_compared_with_a_step():
    exact = summarise({1: 12.0, 4: 18.0, 16: 42.0}, step_us=1000.0)
    assert exact.line is not None
    assert (exact.line.intercept, exact.line.slope) == (pytest.approx(10.0), pytest.approx(2.0))
    assert exact.worst_deviation == pytest.approx(0.0, abs=1e-12)
    assert exact.intercept_share == pytest.approx(0.01)


def test_the_largest_distance_from_the_line_is_told():
    found = summarise({1: 1.0, 2: 1.0, 3: 2.0}, step_us=10.0)
    assert found.line is not None
    # weights 1, 1, 1/4: sum w = 2.25, x mean = 3.75 / 2.25 = 5 / 3, y mean = 2.5 / 2.25 = 10 / 9
    # spread = 4/9 + 1/9 + 4/9 = 1, slope = (-2/3)(-1/9) + (1/3)(-1/9) + (4/3)(8/9)/4 = 1/3
    assert found.line.slope == pytest.approx(1 / 3)
    assert found.line.intercept == pytest.approx(10 / 9 - 5 / 9)
    assert found.worst_deviation == pytest.approx(2 / (14 / 9) - 1)


def test_the_distance_from_a_line_below_zero_counts_too():
    found = summarise({1: 10.0, 2: 1.0, 4: 10.0}, step_us=10.0)
    assert found.line is not None
    below = found.line.at(1)
    assert below < 0.0
    assert found.worst_deviation == pytest.approx((10.0 - below) / -below)  # the others are less than 2


def test_one_size_has_no_line():
    assert summarise({1: 5.0}, step_us=10.0).line is None


def test_rows_are_reset_of_every_size_and_the_first_round_is_not_counted(monkeypatch):
    env = ScriptedEnv(8)
    env.reset()
    steps(env, 3)
    sizes, reset = [], type(env).reset

    def watched(self, env_ids=None, **options):
        assert env_ids.tolist() == sorted(set(env_ids.tolist()))
        sizes.append(env_ids.numel())
        return reset(self, env_ids, **options)

    monkeypatch.setattr(ScriptedEnv, "reset", watched)
    found = measure_resets(env, 100.0, torch.Generator().manual_seed(0))
    assert sizes == [1, 4] * (REPEATS + 1)
    assert list(found.us) == [1, 4]
    assert all(us > 0.0 for us in found.us.values())
