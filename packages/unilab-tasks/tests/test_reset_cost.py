"""What the automatic reset of rows costs within a step: torch operators, views included."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import TorchEnv, make_env

RESET = {"velocity-flat-quadruped": 254, "cartpole-balance": 96}
"""The most operators of a reset, terms included: as they are now, to be lowered when it gets cheaper."""


class OperatorCount(TorchDispatchMode):
    """Counts the operators of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


def operators_of_resets(
    task: str, rows: int, num_envs: int, monkeypatch: pytest.MonkeyPatch, times: int = 3
) -> list[int]:
    """Returns the operators of each of some automatic resets of so many rows, after one that makes what later find."""
    counts: list[int] = []
    finish = TorchEnv._finish_episodes

    def counted(env: TorchEnv, *args: Any) -> None:
        with OperatorCount() as count:
            finish(env, *args)
        counts.append(count.total)

    monkeypatch.setattr(TorchEnv, "_finish_episodes", counted)
    with make_env(task, num_envs=num_envs, seed=0) as env:
        env.reset()
        for _ in range(1 + times):
            ages = torch.zeros(num_envs, dtype=torch.int64)
            ages[:rows] = env.max_episode_length - 1
            env.episode_length = ages
            assert int(env.step(torch.zeros(num_envs, env.num_actions)).truncated.sum()) == rows
    assert len(counts) == 1 + times
    return counts[1:]


@pytest.mark.parametrize("task", RESET)
def test_a_reset_of_a_row_takes_no_more_operators_than_are_known_of(
    task: str, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
):
    counts = operators_of_resets(task, 1, 64, monkeypatch)
    record_property("operators", counts[0])
    assert len(set(counts)) == 1
    assert counts[0] <= RESET[task]


@pytest.mark.parametrize("task", RESET)
def test_the_number_of_operators_hardly_depends_on_how_many_rows_are_reset(
    task: str, monkeypatch: pytest.MonkeyPatch
):
    counts = [operators_of_resets(task, rows, 64, monkeypatch, 1)[0] for rows in (1, 2, 7, 40)]
    assert max(counts) <= RESET[task]
    assert len(set(counts[1:])) == 1
