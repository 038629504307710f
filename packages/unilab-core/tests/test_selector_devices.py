"""Rows and masks are made on the device that was asked for, whatever device torch makes new tensors on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from unilab_core.reset_selectors import (
    ResetMaskBuffer,
    reset_env_ids_mask,
    resolve_reset_env_ids,
    resolve_reset_mask,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def elsewhere() -> Iterator[None]:
    """Tensors that are given no device are made where they hold no values."""
    with torch.device("meta"):
        yield


@pytest.mark.parametrize("selector", [None, slice(0, 4)])
def test_all_rows_are_numbered_and_marked_on_the_device_asked_for(selector: slice | None) -> None:
    ids = resolve_reset_env_ids(selector, num_envs=4, device=CPU, owner="x")
    mask = resolve_reset_mask(selector, num_envs=4, device=CPU, owner="x")
    assert ids.device == mask.device == CPU
    assert ids.tolist() == [0, 1, 2, 3]
    assert mask.tolist() == [True] * 4


def test_given_rows_are_marked_on_the_device_asked_for() -> None:
    rows = torch.tensor([2], device=CPU)
    buffer = ResetMaskBuffer(3, CPU)
    for mask in (reset_env_ids_mask(rows, num_envs=3, device=CPU), buffer.from_ids(rows)):
        assert mask.device == CPU
        assert mask.tolist() == [False, False, True]


def test_rows_are_moved_to_the_device_asked_for() -> None:
    nowhere = torch.device("meta")
    none = resolve_reset_env_ids(
        torch.zeros(0, dtype=torch.int32, device=CPU), num_envs=3, device=nowhere, owner="x"
    )
    assert none.device == nowhere
    assert none.dtype == torch.int64


def test_a_mask_says_who_asked_for_rows_that_do_not_exist() -> None:
    rows = torch.tensor([3], device=CPU)
    with pytest.raises(
        ValueError, match="^CartpoleEnv.reset: env_ids holds 3; expected 0 <= id < num_envs = 3$"
    ):
        resolve_reset_mask(rows, num_envs=3, device=CPU, owner="CartpoleEnv.reset")
