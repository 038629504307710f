"""Lags of few rows, of few bits, and what a delay costs that never changes."""

from __future__ import annotations

import pytest
import torch
from event_support import operators
from manager_support import ids

from unilab_core import EnvRng
from unilab_managers.buffers import DelayBuffer, DelayLags


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_lags_of_some_rows_may_be_integers_of_any_width(dtype: torch.dtype) -> None:
    lags = DelayLags(3, 0, 4, rng=EnvRng(0, "cpu"))
    lags.set(torch.tensor([4, 2], dtype=dtype), ids(2, 0))
    assert lags.values.tolist() == [2, 0, 4]
    assert lags.values.dtype == torch.int64


def test_a_single_row_may_share_its_lag_with_nobody() -> None:
    lags = DelayLags(1, 0, 4, rng=EnvRng(0, "cpu"), per_env=False)
    lags.set(torch.tensor([3]))
    assert lags.values.tolist() == [3]


def test_the_step_of_a_lag_that_is_redrawn_every_time_is_a_draw_and_a_copy() -> None:
    lags = DelayLags(3, 0, 4, rng=EnvRng(0, "cpu"))
    lags.reset(torch.arange(3))
    with operators() as names:
        lags.advance()
    assert names == ["randint", "copy_"]


def test_a_lag_that_never_changes_is_served_by_one_view() -> None:
    buffer = DelayBuffer(DelayLags(2, 2, 2, rng=EnvRng(0, "cpu")), 1)
    rows = torch.arange(2)
    buffer.reset(rows)
    buffer.fill(rows, torch.tensor([[1.0], [2.0]]))
    for step in range(3):
        buffer.push(torch.tensor([[10.0], [20.0]]) * (step + 1))
    with operators() as names:
        served = buffer.read()
    assert names == ["select"]
    assert served.tolist() == [[10.0], [20.0]]
