"""The payload of a reset is checked whole, before anything is written."""

from __future__ import annotations

import math

import pytest
import torch

from unisim import ResetPayload, ResetRejectedError
from unisim.reset import validate_payload
from unisim.testing import make_layout

LAYOUT = make_layout()
FREE = make_layout(free_root=True)


def check(layout=LAYOUT, ids=(0, 2), **parts):
    tensors = {name: torch.as_tensor(values) for name, values in parts.items()}
    validate_payload(ResetPayload(torch.tensor(ids), **tensors), layout, num_envs=4, owner="Env.reset")


def test_a_valid_payload_passes():
    check(qpos=[[0.0, 1.0], [2.0, 3.0]], qvel=[[0.0, 0.0], [1.0, 1.0]], ctrl=[[0.5], [-0.5]])


def test_a_payload_of_no_rows_passes():
    validate_payload(
        ResetPayload(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2)),
        LAYOUT,
        num_envs=4,
        owner="Env.reset",
    )


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ((0, 4), r"env_ids \[0, 4\] out of range, expected 0 <= id < 4"),
        ((-1, 2), r"env_ids \[-1, 2\] out of range"),
        ((2, 0), r"env_ids \[2, 0\] are not ascending and unique"),
        ((2, 2), r"env_ids \[2, 2\] are not ascending and unique"),
        ((0.0, 1.0), r"env_ids is torch.float32 of shape \(2,\), expected 1-D int64"),
        (((0, 1),), r"env_ids is torch.int64 of shape \(1, 2\), expected 1-D int64"),
    ],
)
def test_row_ids_must_be_ascending_unique_and_in_range(ids, message):
    with pytest.raises(ResetRejectedError, match=f"^Env.reset: {message}.*; nothing was written$"):
        check(ids=ids)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"qpos": [[0.0, 1.0]]}, r"qpos is torch.float32 \(1, 2\), expected torch.float32 \(2, 2\)"),
        ({"qvel": [[0.0], [1.0]]}, r"qvel is torch.float32 \(2, 1\), expected torch.float32 \(2, 2\)"),
        ({"ctrl": [[1], [2]]}, r"ctrl is torch.int64 \(2, 1\), expected torch.float32 \(2, 1\)"),
        ({"qpos": [[0.0, 1.0], [2.0, math.nan]]}, r"qpos of row 2, column 1 is nan"),
        ({"qvel": [[math.inf, 1.0], [2.0, 0.0]]}, r"qvel of row 0, column 0 is inf"),
        ({"ctrl": [[0.0], [-math.inf]]}, r"ctrl of row 2, column 0 is -inf"),
    ],
)
def test_a_wrong_value_is_named_by_field_row_and_column(parts, message):
    with pytest.raises(ResetRejectedError, match=message):
        check(**parts)


def test_a_model_field_that_was_not_declared_is_refused():
    payload = ResetPayload(torch.tensor([0]), model={"body_mass": torch.ones(1, 2)})
    with pytest.raises(ResetRejectedError, match="model field 'body_mass' was not declared"):
        validate_payload(payload, LAYOUT, num_envs=4, owner="Env.reset")


def pose(*quaternion: float) -> list[float]:
    return [0.0, 0.0, 1.0, *quaternion, 0.0, 0.0]


def test_a_unit_quaternion_passes_also_when_rounded():
    check(FREE, ids=(1,), qpos=[pose(0.7071, 0.7071, 0.0, 0.0)])


def test_a_quaternion_that_is_not_of_unit_length_is_named_by_joint_and_row():
    with pytest.raises(ResetRejectedError, match=r"quaternion of joint 'robot/root', row 2 has norm 2"):
        check(FREE, qpos=[pose(1.0, 0.0, 0.0, 0.0), pose(2.0, 0.0, 0.0, 0.0)])


MASS = ("body_mass",)


def test_model_fields_that_were_declared_are_checked_with_the_rest():
    def commit(values, ids=(0, 2)):
        payload = ResetPayload(
            torch.tensor(ids, dtype=torch.int64), model={"body_mass": torch.as_tensor(values)}
        )
        validate_payload(payload, LAYOUT, num_envs=4, owner="Env.reset", declared=MASS)

    commit([[0.0, 1.5], [0.0, 2.0]])
    commit(torch.zeros(0, 2), ids=())
    for values, message in (
        ([[0.0, 1.5], [0.0, -2.0]], "model field 'body_mass' of row 2: a mass must be positive, kg"),
        ([[0.0, math.nan], [0.0, 1.0]], "body_mass of row 0, column 1 is nan"),
        ([[0.0], [0.0]], r"body_mass is torch.float32 \(2, 1\), expected torch.float32 \(2, 2\)"),
        (torch.ones(2, 2).double(), "body_mass is torch.float64.*"),
    ):
        with pytest.raises(ResetRejectedError, match=f"^Env.reset: {message}; nothing was written$"):
            commit(values)


def test_a_model_field_called_like_a_state_field_is_no_way_around_the_declaration():
    payload = ResetPayload(torch.tensor([0]), model={"qpos": torch.zeros(1, 2)})
    with pytest.raises(ResetRejectedError, match="model field 'qpos' was not declared"):
        validate_payload(payload, LAYOUT, num_envs=4, owner="Env.reset")
