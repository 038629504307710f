"""What is not finite is refused, what is finite is not, however large: against the verdict of each single number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unisim import NonFiniteError, ResetPayload, ResetRejectedError
from unisim.reset import all_finite, validate_payload
from unisim.testing import FakeBackend, make_layout

LARGEST = torch.finfo(torch.float32).max
NUMBERS = st.one_of(
    st.floats(width=32), st.sampled_from([LARGEST, -LARGEST, math.inf, -math.inf, math.nan, 0.0])
)


@given(values=st.lists(NUMBERS, max_size=40))
def test_all_values_are_finite_where_each_is(values):
    assert all_finite(torch.tensor(values, dtype=torch.float32)) is all(map(math.isfinite, values))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [1, 17, 6144, 50_000])
def test_one_value_of_many_is_found_in_the_first_and_in_the_last_place(value, size):
    for place in (0, size // 2, -1):
        values = torch.zeros(size)
        values[place] = value
        assert not all_finite(values)


def test_infinities_that_cancel_are_refused():
    payload = ResetPayload(torch.tensor([1]), qvel=torch.tensor([[math.inf, -math.inf]]))
    with pytest.raises(ResetRejectedError, match="qvel of row 1, column 0 is inf"):
        validate_payload(payload, make_layout(), num_envs=3, owner="test")
    with pytest.raises(NonFiniteError, match=r"control of rows \[0, 2\] is not finite"):
        FakeBackend(make_layout(), 3).step_tensor(torch.tensor([[math.inf], [0.0], [-math.inf]]))


def test_numbers_whose_sum_overflows_are_taken():
    qvel = torch.full((1, 2), LARGEST)
    payload = ResetPayload(torch.tensor([1]), qvel=qvel)
    validate_payload(payload, make_layout(), num_envs=3, owner="test")
    backend = FakeBackend(make_layout(), 3)
    backend.write_rows(torch.tensor([False, True, False]), payload)
    backend.step_tensor(torch.full((3, 1), LARGEST))
    assert backend.get_state_views(("ctrl",))["ctrl"].tolist() == [[LARGEST]] * 3
