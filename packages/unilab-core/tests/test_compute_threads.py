"""A step computes on as many Torch threads as its rows are worth, and gives the others back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from core_support import ScriptedEnv, zeros

from unilab_core import NonFiniteError
from unilab_core.compute_threads import ROWS_PER_THREAD, ComputeThreads


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("rows", "device", "inside"),
    [
        (1, "cpu", 1),
        (2 * ROWS_PER_THREAD - 1, "cpu", 1),
        (2 * ROWS_PER_THREAD, "cpu", 2),
        (9 * ROWS_PER_THREAD, "cpu", 3),
        (1, "cuda", 3),
    ],
)
def test_threads_follow_the_rows_and_never_rise(rows: int, device: str, inside: int) -> None:
    with ComputeThreads(rows, torch.device(device)):
        assert torch.get_num_threads() == inside
    assert torch.get_num_threads() == 3


def test_they_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="in between"), ComputeThreads(1, torch.device("cpu")):
        raise ValueError("in between")
    assert torch.get_num_threads() == 3


def test_a_block_inside_a_block_gives_back_what_the_outer_one_found() -> None:
    threads = ComputeThreads(1, torch.device("cpu"))
    with threads:
        with pytest.raises(ValueError, match="in between"), threads:
            raise ValueError("in between")
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_a_step_and_a_reset_compute_on_one_thread_and_physics_and_policies_have_theirs() -> None:
    with ScriptedEnv() as env:
        seen: dict[str, int] = {}
        plain = env._observe

        def observe(ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
            seen["step" if ids is None else "reset"] = torch.get_num_threads()
            return plain(ids)

        env._observe = observe  # type: ignore[method-assign]
        env.reset()
        env.step(zeros(env))
        assert seen == {"reset": 1, "step": 1}
        assert torch.get_num_threads() == 3
        with pytest.raises(NonFiniteError, match="actions"):
            env.step(torch.full_like(zeros(env), torch.nan))
        assert torch.get_num_threads() == 3
