"""Trackers: shared, advanced once a step, reset by rows, undone and saved like any other state."""

from typing import Any

import pytest
import torch
from manager_support import MakeEnv, group, ids, ones, zeros

from unilab_core import ConfigError, ResetRejectedError
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    MetricsTermCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    Tracker,
)


class Count(Tracker):
    """Counts steps per row, by `by`."""

    def __init__(self, env: ManagerBasedRlEnv, by: float) -> None:
        self.by = by
        self.steps = torch.zeros(env.num_envs)

    def advance(self) -> None:
        self.steps += self.by

    def reset(self, env_ids: torch.Tensor) -> None:
        self.steps[env_ids] = -100.0


class Doubled(Tracker):
    """Twice what `Count` has counted by the same step."""

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self.count = env.trackers.share(Count, 1.0)
        self.value = torch.zeros(env.num_envs)

    def advance(self) -> None:
        torch.mul(self.count.steps, 2.0, out=self.value)

    def reset(self, env_ids: torch.Tensor) -> None:
        self.value[env_ids] = 2.0 * self.count.steps[env_ids]


class Steps:
    """A term for any manager: what `Count` has counted, as (N,), or (N, 1) if `column`."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.count = env.trackers.share(Count, cfg.params["by"])

    def __call__(self, env: ManagerBasedRlEnv, by: float, column: bool = False) -> torch.Tensor:
        return self.count.steps[:, None].clone() if column else self.count.steps


class StepsDoubled:
    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.doubled = env.trackers.share(Doubled)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return self.doubled.value


class AtFour(Steps):
    def __call__(self, env: ManagerBasedRlEnv, by: float, column: bool = False) -> torch.Tensor:
        return self.count.steps == -96.0


def reject(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if env.step_counter > 2:
        raise ArithmeticError("no")


def counting(make_env: MakeEnv, **cfg: Any) -> ManagerBasedRlEnv:
    fields: dict[str, Any] = {
        "observations": {
            "obs": group(count=ObservationTermCfg(func=Steps, params={"by": 1.0, "column": True}))
        },
        "rewards": {"count": RewardTermCfg(func=Steps, weight=1.0, params={"by": 1.0})},
        "metrics": {"count": MetricsTermCfg(func=Steps, params={"by": 1.0}, reduce="last")},
        "scale_rewards_by_dt": False,
    }
    return make_env(**(fields | cfg))


def test_all_who_ask_alike_share_one_that_advances_once_a_step(make_env: MakeEnv) -> None:
    env = counting(make_env)
    assert (
        env.observations()["obs"].tolist() == [[-100.0]] * 3
    )  # reset rows were reset once, and nothing advanced
    for step in (1.0, 2.0, 3.0):
        state = env.step(zeros(env))
        assert state.reward.tolist() == [-100.0 + step] * 3
        assert state.obs["obs"].tolist() == [[-100.0 + step]] * 3


def test_other_arguments_make_another_one(make_env: MakeEnv) -> None:
    other = {"other": RewardTermCfg(func=Steps, weight=1.0, params={"by": 0.5})}
    env = counting(make_env, rewards=other)
    state = env.step(zeros(env))
    assert state.reward.tolist() == [-99.5] * 3
    assert state.obs["obs"].tolist() == [[-99.0]] * 3
    assert len(tracker_keys(env)) == 2


def test_the_order_of_terms_means_nothing_to_a_state(make_env: MakeEnv) -> None:
    terms = {
        "one": RewardTermCfg(func=Steps, weight=1.0, params={"by": 1.0}),
        "half": RewardTermCfg(func=Steps, weight=1.0, params={"by": 0.5}),
    }
    env = make_env(rewards=terms, scale_rewards_by_dt=False)
    turned = make_env(rewards=dict(reversed(terms.items())), scale_rewards_by_dt=False)
    for _ in range(3):
        env.step(zeros(env))
    counts = [tracker_keys(each) for each in (env, turned)]
    assert len(counts[0]) == 2
    assert set(counts[0]) == set(counts[1])


def tracker_keys(env: ManagerBasedRlEnv) -> dict[str, torch.Tensor]:
    """The counts of `Count` trackers in an environment's state, by key."""
    values = env.state_dict()["values"]
    return {
        key: values[key] for key in values if key.startswith("trackers.Count.") and key.endswith(".steps")
    }


def test_one_that_looks_at_another_comes_after_it(make_env: MakeEnv) -> None:
    env = make_env(rewards={"twice": RewardTermCfg(func=StepsDoubled, weight=1.0)}, scale_rewards_by_dt=False)
    assert env.step(zeros(env)).reward.tolist() == [-198.0] * 3


def test_terminations_see_the_step_that_has_just_been_taken_and_only_rows_that_end_are_reset(
    make_env: MakeEnv,
) -> None:
    env = counting(
        make_env, terminations={"four": TerminationTermCfg(func=AtFour, params={"by": 1.0})}, autoreset=True
    )
    for _ in range(2):
        env.step(zeros(env))
    env.reset(ids(1))
    assert env.observations()["obs"].flatten().tolist() == [-98.0, -100.0, -98.0]
    env.step(zeros(env))
    state = env.step(zeros(env))
    assert state.terminated.tolist() == [True, False, True]
    assert state.final_observation is not None
    assert state.final_observation["obs"].flatten().tolist() == [-96.0, -98.0, -96.0]
    assert state.obs["obs"].flatten().tolist() == [-100.0, -98.0, -100.0]


def test_a_rejected_reset_leaves_them_as_they_were(make_env: MakeEnv) -> None:
    env = counting(make_env, events={"no": EventTermCfg(func=reject, mode="reset")})
    for _ in range(3):
        env.step(zeros(env))
    with pytest.raises(ResetRejectedError, match="events term 'no'"):
        env.reset(ids(0))
    assert env.step(zeros(env)).obs["obs"].flatten().tolist() == [-96.0] * 3


def test_their_state_is_part_of_a_checkpoint(make_env: MakeEnv) -> None:
    env, twin = counting(make_env), counting(make_env)
    for _ in range(3):
        env.step(zeros(env))
    twin.load_state_dict(env.state_dict())
    assert twin.step(zeros(twin)).reward.tolist() == [-96.0] * 3


def test_asking_for_a_new_one_after_construction_is_refused_and_for_a_made_one_is_not(
    make_env: MakeEnv,
) -> None:
    env = counting(make_env)
    assert env.trackers.share(Count, 1.0) is env.trackers.share(Count, 1.0)
    with pytest.raises(
        RuntimeError, match=r"Count\(7.0,\) is asked for after the terms were made; ask in a term"
    ):
        env.trackers.share(Count, 7.0)


def test_an_environment_without_any_has_no_state_of_them(make_env: MakeEnv) -> None:
    env = make_env(rewards={"one": RewardTermCfg(func=ones, weight=1.0)})
    assert not [path for path in env.state_dict()["values"] if path.startswith("trackers")]


class Broken(Count):
    def advance(self) -> None:
        raise ArithmeticError("broken")


class OfBroken(Steps):
    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.count = env.trackers.share(Broken, 1.0)


def test_one_that_fails_is_named(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="tracker Broken: ArithmeticError: broken"):
        make_env(rewards={"broken": RewardTermCfg(func=OfBroken, weight=1.0, params={"by": 1.0})})


class Unmade(Count):
    def __init__(self, env: ManagerBasedRlEnv, by: float) -> None:
        raise ArithmeticError("broken")


class OfUnmade(Steps):
    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.count = env.trackers.share(Unmade, 1.0)


def test_one_that_fails_within_a_term_is_named_after_it(make_env: MakeEnv) -> None:
    message = "^rewards term 'unmade': tracker Unmade: ArithmeticError: broken$"
    with pytest.raises(ConfigError, match=message):
        make_env(rewards={"unmade": RewardTermCfg(func=OfUnmade, weight=1.0, params={"by": 1.0})})
