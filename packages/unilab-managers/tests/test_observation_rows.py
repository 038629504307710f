"""Rows that begin: what two groups show is looked up once, and is the same as in a step."""

from __future__ import annotations

import torch
from manager_support import MakeEnv, group

from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg

SHARED, DRAWN = torch.zeros(3, 1), torch.zeros(3, 1)


def fills(env: ManagerBasedRlEnv, value: float) -> torch.Tensor:
    """A term that always returns the same tensor, rewritten."""
    return SHARED.fill_(value)


def draws(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Another one, whose numbers are drawn."""
    return DRAWN.copy_(env.rng.uniform(0.0, 1.0, (3, 1)))


def filling(value: float) -> ObservationTermCfg:
    return ObservationTermCfg(func=fills, params={"value": value})


def shown(env: ManagerBasedRlEnv) -> tuple[list[float], list[float]]:
    """Returns what each group shows in a step and in a reset, the first column of the first row."""
    stepped = env.step(torch.zeros(3, env.num_actions)).obs
    in_a_step = [float(rows[0, 0]) for rows in stepped.values()]
    begun, _ = env.reset()
    return in_a_step, [float(rows[0, 0]) for rows in begun.values()]


def test_terms_of_two_groups_that_write_into_one_tensor_each_show_their_own(make_env: MakeEnv) -> None:
    env = make_env(3, observations={"obs": group(a=filling(1.0)), "critic": group(b=filling(2.0))})
    env.reset()
    assert shown(env) == ([1.0, 2.0], [1.0, 2.0])


def test_a_twin_that_was_given_other_parameters_shows_what_these_give(make_env: MakeEnv) -> None:
    env = make_env(3, observations={"obs": group(a=filling(1.0)), "critic": group(b=filling(1.0))})
    env.reset()
    assert shown(env) == ([1.0, 1.0], [1.0, 1.0])
    env.observation_manager.set_params("critic/b", value=5.0)
    assert shown(env) == ([1.0, 5.0], [1.0, 5.0])


def test_twins_that_draw_each_show_a_draw_of_their_own(make_env: MakeEnv) -> None:
    drawing = ObservationTermCfg(func=draws)
    env = make_env(3, observations={"obs": group(a=drawing), "critic": group(b=drawing)})
    env.reset()
    for first, second in shown(env):
        assert first != second
