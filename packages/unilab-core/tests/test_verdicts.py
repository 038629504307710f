"""One verdict tells what is not finite and which flags are set, whatever is beside it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unilab_core.verdict import Verdicts

_LARGEST = torch.finfo(torch.float32).max
_FINITE = (0.0, -0.0, 1.0, _LARGEST, -_LARGEST, 1e-45, -1e-45)
_NOT_FINITE = (float("nan"), float("inf"), float("-inf"))


@pytest.mark.parametrize("wrong", _NOT_FINITE)
@pytest.mark.parametrize("width", [1, 3, 48])
def test_one_value_that_is_not_finite_is_found_wherever_it_stands(wrong: float, width: int) -> None:
    verdicts = Verdicts(torch.device("cpu"))
    for place in range(0, 5 * width, max(width // 3, 1)):
        values = torch.full((5, width), _LARGEST)
        values.view(-1)[place] = wrong
        found, _ = verdicts.take({"fine": torch.full((5, width), -_LARGEST), "wrong": values})
        assert found == {"fine": True, "wrong": False}


@given(
    rows=st.lists(
        st.lists(st.sampled_from((*_FINITE, *_NOT_FINITE)), min_size=3, max_size=3), min_size=1, max_size=9
    )
)
def test_it_agrees_with_isfinite(rows: list[list[float]]) -> None:
    values = torch.tensor(rows)
    found, _ = Verdicts(torch.device("cpu")).take({"values": values, "strided": values[:, 1]})
    assert found == {
        "values": bool(values.isfinite().all()),
        "strided": bool(values[:, 1].isfinite().all()),
    }


def test_opposite_infinities_do_not_make_up_for_each_other() -> None:
    values = torch.tensor([float("inf"), float("-inf")])
    assert Verdicts(torch.device("cpu")).take({"values": values})[0] == {"values": False}


def test_flags_are_read_beside_the_values_and_what_is_empty_is_finite() -> None:
    verdicts = Verdicts(torch.device("cpu"))
    flags = [
        torch.tensor([False, True]),
        torch.tensor(False),
        torch.tensor([False, False]),
        torch.tensor(True),
    ]
    found, read = verdicts.take({"none": torch.zeros(2, 0), "some": torch.ones(2, 2)}, flags)
    assert found == {"none": True, "some": True}
    assert read == [True, False, False, True]
