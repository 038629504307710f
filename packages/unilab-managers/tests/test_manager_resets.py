"""Every manager's own `reset`: ids, slices and None; masks and everything else are refused."""

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, NotedTerm, calls, group, ids, probe, zeros

from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, RewardTermCfg
from unilab_managers.managers import ManagerBase

MANAGERS = ["action", "observation", "reward", "termination", "event"]


class NotedProbe(NotedTerm):
    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:  # type: ignore[override]
        return probe(env)


def of(env: ManagerBasedRlEnv, name: str) -> ManagerBase:
    manager = getattr(env, f"{name}_manager")
    assert isinstance(manager, ManagerBase)
    return manager


SELECTORS = [
    (None, [0, 1, 2, 3]),
    (slice(None), [0, 1, 2, 3]),
    (slice(1, 3), [1, 2]),
    (slice(None, None, 2), [0, 2]),
    (ids(3, 1), [3, 1]),
    (torch.tensor([2], dtype=torch.int32), [2]),
    (ids(), []),
]


@pytest.mark.parametrize(("selector", "rows"), SELECTORS, ids=[str(selector) for selector, _ in SELECTORS])
def test_ids_slices_and_none_select_rows(make_env: MakeEnv, selector: Any, rows: list[int]) -> None:
    terms = {"noted": RewardTermCfg(func=NotedTerm, weight=1.0, params={"value": 1.0})}
    env = make_env(4, rewards=terms, observations={"obs": group(noted=ObservationTermCfg(func=NotedProbe))})
    env.step(torch.ones(4, 2))
    calls.clear()
    for name in MANAGERS:
        of(env, name).reset(selector)
    assert calls == [("reset", rows)] * 2  # the observation and the reward
    expected = torch.ones(4, 2)
    expected[rows] = 0.0
    assert torch.equal(env.action_manager.action, expected)


@pytest.mark.parametrize("name", MANAGERS)
@pytest.mark.parametrize(
    ("selector", "error", "message"),
    [
        (torch.tensor([True, False, True]), TypeError, "is a bool mask; pass row ids: mask.nonzero"),
        (torch.tensor([0.0]), TypeError, "torch.float32; expected an integer tensor"),
        ([0], TypeError, "env_ids is a list"),
        (0, TypeError, "env_ids is a int"),
        (ids(3), ValueError, "holds 3; expected 0 <= id < num_envs = 3"),
        (ids(-1), ValueError, "holds -1"),
        (ids(1, 1), ValueError, "holds 1 more than once"),
        (ids(0)[None], ValueError, "expected one dimension"),
    ],
)
def test_everything_else_is_refused_by_name_and_changes_nothing(
    make_env: MakeEnv, name: str, selector: Any, error: type[Exception], message: str
) -> None:
    env = make_env()
    env.step(torch.ones(3, 2))
    manager = of(env, name)
    with pytest.raises(error, match=rf"{manager.owner}.reset: .*{message}"):
        manager.reset(selector)
    assert env.action_manager.action.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("name", MANAGERS)
def test_a_mask_by_its_old_keyword_is_refused(make_env: MakeEnv, name: str) -> None:
    env = make_env()
    with pytest.raises(TypeError, match="reset_mask"):
        of(env, name).reset(reset_mask=torch.ones(3).bool())  # type: ignore[call-arg]


def test_a_class_term_of_any_manager_is_reset_with_its_rows_only(make_env: MakeEnv) -> None:
    terms = {"noted": RewardTermCfg(func=NotedTerm, weight=1.0, params={"value": 0.5})}
    env = make_env(3, feed=Feed(), rewards=terms)
    calls.clear()
    env.step(zeros(env))
    env.reset(ids(2, 0))
    assert calls == [("call", 0.5), ("reset", [0, 2])]
    assert env.step(zeros(env)).reward.tolist() == pytest.approx([0.01] * 3)
