"""A payload with every part, its validation as an environment makes it, and a watch over who checks payloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

import unisim.reset
from unisim import ResetPayload
from unisim.contract import Declared
from unisim.reset import validate_payload
from unisim.testing import make_layout

MASS = ("body_mass",)
LAYOUT = make_layout(free_root=True)
DECLARED = Declared(MASS)
POSE = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.1, 0.2]


def full(device: torch.device | str = "cpu") -> ResetPayload:
    """Rows 0 and 2 of four, with every part."""
    return ResetPayload(
        torch.tensor([0, 2]).to(device),
        torch.tensor([POSE, POSE]).to(device),
        torch.zeros(2, 8).to(device),
        torch.zeros(2, 1).to(device),
        {"body_mass": torch.tensor([[0.0, 1.5], [0.0, 2.0]]).to(device)},
    )


def validate(
    payload: ResetPayload, layout: Any = LAYOUT, num_envs: int = 4, declared: tuple[str, ...] = MASS
) -> ResetPayload:
    """The payload, after what an environment does before it commits it."""
    validate_payload(payload, layout, num_envs=num_envs, owner="Env.reset", declared=declared)
    return payload


@contextmanager
def watched_checks() -> Iterator[list[str]]:
    """The owners on whose behalf the values of payloads are checked while the block lasts, in order."""
    owners: list[str] = []
    whole = unisim.reset._check_values

    def check(payload: Any, layout: Any, owner: str, declared: Any) -> None:
        owners.append(owner)
        whole(payload, layout, owner, declared)

    with mock.patch.object(unisim.reset, "_check_values", check):
        yield owners
