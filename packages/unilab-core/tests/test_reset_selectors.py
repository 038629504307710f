"""Row selectors: what they accept, what they refuse, and a plain model of what they mean."""

from __future__ import annotations

import array

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unilab_core.reset_selectors import (
    ResetMaskBuffer,
    reset_env_ids_mask,
    resolve_reset_env_ids,
    resolve_reset_mask,
)


def resolve(selector, num_envs=4):
    return resolve_reset_env_ids(selector, num_envs=num_envs, device="cpu", owner="CartpoleEnv.reset")


def test_none_selects_every_row():
    assert resolve(None).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("piece", [slice(None), slice(1, 3), slice(0, None, 2), slice(-1, None), slice(2, 2)])
def test_a_slice_selects_what_it_selects_of_a_range(piece):
    assert resolve(piece).tolist() == list(range(4))[piece]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integer_ids_of_any_width_become_int64_in_the_order_given(dtype):
    ids = resolve(torch.tensor([3, 0, 2], dtype=dtype))
    assert ids.dtype == torch.int64
    assert ids.tolist() == [3, 0, 2]


def test_qa_072_an_empty_selection_is_allowed_and_selects_nothing():
    assert resolve(torch.zeros(0, dtype=torch.int64)).tolist() == []


@pytest.mark.parametrize(
    ("selector", "error", "message"),
    [
        (
            torch.tensor([True, False, True, False]),
            TypeError,
            r"env_ids is a bool mask; pass row ids: mask\.nonzero\(\)\.flatten\(\)",
        ),
        (torch.tensor([0.0]), TypeError, "env_ids is torch.float32; expected an integer tensor"),
        (
            [0, 1],
            TypeError,
            r"env_ids is a list; expected a 1-D integer tensor or None, for example torch\.tensor",
        ),
        ((0,), TypeError, "env_ids is a tuple"),
        (array.array("i", [0]), TypeError, "env_ids is a array"),
        (2, TypeError, "env_ids is a int"),
        (True, TypeError, "env_ids is a bool"),
        ("all", TypeError, "env_ids is a str"),
        (torch.tensor(1), ValueError, r"env_ids has shape \(\); expected one dimension"),
        (torch.tensor([[0], [1]]), ValueError, r"env_ids has shape \(2, 1\); expected one dimension"),
        (torch.tensor([0, -1]), ValueError, "env_ids holds -1; expected 0 <= id < num_envs = 4"),
        (torch.tensor([0, 4]), ValueError, "env_ids holds 4; expected 0 <= id < num_envs = 4"),
        (torch.tensor([2, 0, 2]), ValueError, "env_ids holds 2 more than once; expected distinct ids"),
    ],
)
def test_what_selects_no_rows_is_refused_by_kind_or_value(selector, error, message):
    with pytest.raises(error, match=f"^CartpoleEnv.reset: {message}"):
        resolve(selector)


@given(st.integers(1, 6), st.lists(st.integers(-2, 7), max_size=7))
def test_ids_are_accepted_exactly_when_a_plain_model_accepts_them(num_envs, ids):
    valid = all(0 <= i < num_envs for i in ids) and len(set(ids)) == len(ids)
    selector = torch.tensor(ids, dtype=torch.int64)
    if not valid:
        with pytest.raises(ValueError, match="env_ids holds"):
            resolve(selector, num_envs)
        return
    assert resolve(selector, num_envs).tolist() == ids
    mask = resolve_reset_mask(selector, num_envs=num_envs, device="cpu", owner="x")
    assert mask.dtype == torch.bool
    assert mask.tolist() == [i in ids for i in range(num_envs)]


@given(st.integers(1, 6), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_a_reused_mask_shows_the_last_ids_only(num_envs, first, second):
    buffer = ResetMaskBuffer(num_envs, "cpu")
    addresses = set()
    for ids in (first, second):
        chosen = sorted(i for i in ids if i < num_envs)
        mask = buffer.from_ids(torch.tensor(chosen, dtype=torch.int64))
        addresses.add(mask.data_ptr())
        assert mask.nonzero().flatten().tolist() == chosen
    assert len(addresses) == 1


def test_resolved_ids_become_a_mask():
    assert reset_env_ids_mask(torch.tensor([2, 0]), num_envs=3, device="cpu").tolist() == [True, False, True]


def test_a_mask_of_no_ids_is_all_false():
    assert resolve_reset_mask(
        torch.zeros(0, dtype=torch.int32), num_envs=2, device="cpu", owner="x"
    ).tolist() == [
        False,
        False,
    ]
