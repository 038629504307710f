"""What the automatic reset of rows costs within a step: torch operators, views included."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import make_env

RESET = {"velocity-flat-quadruped": 255, "cartpole-balance": 99}
"""The most operators that a reset adds to a step, terms included: as they are now, to be lowered when it is cheaper."""

CALM: dict[str, dict[str, object]] = {
    "velocity-flat-quadruped": {"events.push": None, "commands.twist.resampling_time_range": (900.0, 900.0)},
    "cartpole-balance": {},
}
"""Without what happens now and then, so that two steps differ by their resets alone."""


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


def operators_of_resets(task: str, rows: int, num_envs: int, times: int = 3) -> list[int]:
    """Returns by how many operators steps that reset so many rows exceed one that resets none.

    The first of each kind, which makes what later ones find, is left out; pushes and new commands are as well.
    """
    counts: list[list[int]] = []
    with make_env(task, num_envs=num_envs, seed=0, overrides=CALM[task]) as env:
        env.reset()
        for ended in (0, rows):
            counts.append([])
            for _ in range(1 + times):
                ages = torch.zeros(num_envs, dtype=torch.int64)
                ages[:ended] = env.max_episode_length - 1
                env.episode_length = ages
                with OperatorCount() as count:
                    state = env.step(torch.zeros(num_envs, env.num_actions))
                assert int(state.truncated.sum()) == ended
                counts[-1].append(count.total)
    (quiet,) = set(counts[0][1:])
    return [total - quiet for total in counts[1][1:]]


@pytest.mark.parametrize("task", RESET)
def test_a_reset_of_a_row_takes_no_more_operators_than_are_known_of(
    task: str, record_property: Callable[[str, object], None]
):
    counts = operators_of_resets(task, 1, 64)
    record_property("operators", counts[0])
    assert len(set(counts)) == 1
    assert counts[0] <= RESET[task]


@pytest.mark.parametrize("task", RESET)
def test_the_number_of_operators_hardly_depends_on_how_many_rows_are_reset(task: str):
    counts = [operators_of_resets(task, rows, 64, 1)[0] for rows in (1, 2, 7, 40)]
    assert max(counts) <= RESET[task]
    assert len(set(counts[1:])) == 1
