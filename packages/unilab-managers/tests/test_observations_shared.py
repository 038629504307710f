"""Groups that show the same terms: a function is called once for all of them, as long as it computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, group, ids, probe, zeros

from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, UniformNoiseCfg

CALLS: list[float] = []
NOISE = UniformNoiseCfg(n_min=-0.5, n_max=0.5)


def counted(env: ManagerBasedRlEnv, factor: float = 1.0) -> torch.Tensor:
    """Notes that it is called."""
    CALLS.append(factor)
    return probe(env) * factor


def drawing(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Draws by itself, one column."""
    return env.rng.uniform(0.0, 1.0, (env.num_envs, 1))


class Counted:
    """A class term, whose every instance may remember something of its own."""

    def __init__(self, cfg: ObservationTermCfg, env: ManagerBasedRlEnv) -> None:
        """Remembers nothing."""

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        """Notes that it is called."""
        CALLS.append(0.0)
        return probe(env)


def made(make_env: MakeEnv, actor: ObservationTermCfg, critic: ObservationTermCfg) -> ManagerBasedRlEnv:
    feed = Feed()
    env = make_env(
        3, feed=feed, observations={"obs": group(probe=actor), "critic": group(probe=critic, other=critic)}
    )
    feed.probe([[0.9, -0.25, 3.0], [0.0, 0.5, -4.0], [-0.9, 2.0, 1.0]])
    env.step(zeros(env))
    CALLS.clear()
    return env


def test_a_function_is_called_once_in_a_step_and_once_in_a_reset(make_env: MakeEnv):
    term = ObservationTermCfg(func=counted)
    env = made(make_env, term.model_copy(update={"noise": NOISE}), term)
    env.step(zeros(env))
    assert CALLS == [1.0]
    assert torch.equal(env.state.obs["critic"], probe(env).repeat(1, 2))
    assert not torch.equal(env.state.obs["obs"], probe(env))  # noise is each group's own
    env.reset(ids(1))
    assert CALLS == [1.0, 1.0]
    assert torch.equal(env.state.obs["critic"][1], probe(env)[1].repeat(2))


def test_other_parameters_are_another_call(make_env: MakeEnv):
    env = made(
        make_env,
        ObservationTermCfg(func=counted),
        ObservationTermCfg(func=counted, params={"factor": 2.0}),
    )
    env.step(zeros(env))
    assert CALLS == [1.0, 2.0]
    assert torch.equal(env.state.obs["critic"], probe(env).repeat(1, 2) * 2.0)


def test_parameters_that_a_curriculum_has_changed_are_another_call(make_env: MakeEnv):
    term = ObservationTermCfg(func=counted)
    env = made(make_env, term, term)
    env.observation_manager.set_params("critic/probe", factor=4.0)
    env.step(zeros(env))
    assert CALLS == [1.0, 4.0]
    assert torch.equal(env.state.obs["obs"], probe(env))
    assert torch.equal(env.state.obs["critic"], torch.cat([probe(env) * 4.0, probe(env)], dim=1))


def test_class_terms_are_called_each(make_env: MakeEnv):
    term = ObservationTermCfg(func=Counted)
    env = made(make_env, term, term)
    env.step(zeros(env))
    assert len(CALLS) == 3


def test_what_draws_by_itself_draws_for_each(make_env: MakeEnv):
    term = ObservationTermCfg(func=drawing)
    env = made(make_env, term, term)
    env.step(zeros(env))
    columns = torch.cat([env.state.obs["obs"], env.state.obs["critic"]], dim=1)
    assert len(set(columns[0].tolist())) == 3


def ordered(env: ManagerBasedRlEnv, items: dict[str, float]) -> torch.Tensor:
    """One column for each item, in their order."""
    return torch.tensor([list(items.values())]).repeat(env.num_envs, 1)


def kind_of(env: ManagerBasedRlEnv, mode: float) -> torch.Tensor:
    """1 for True, 2 for a float, 3 for an int."""
    kind = 1.0 if mode is True else 2.0 if isinstance(mode, float) else 3.0
    return torch.full((env.num_envs, 1), kind)


@pytest.mark.parametrize(
    ("func", "actor", "critic", "shown"),
    [
        (ordered, {"items": {"a": 1.0, "b": 2.0}}, {"items": {"b": 2.0, "a": 1.0}}, [2.0, 1.0]),
        (kind_of, {"mode": 1}, {"mode": True}, [1.0]),
        (kind_of, {"mode": 1}, {"mode": 1.0}, [2.0]),
    ],
)
def test_parameters_that_are_equal_and_not_the_same_are_another_call(
    make_env: MakeEnv, func: Any, actor: Any, critic: Any, shown: list[float]
):
    env = made(
        make_env, ObservationTermCfg(func=func, params=actor), ObservationTermCfg(func=func, params=critic)
    )
    env.step(zeros(env))
    assert env.state.obs["critic"][0].tolist() == shown * 2


def drawn_later(env: ManagerBasedRlEnv, amount: float = 0.0) -> torch.Tensor:
    """Draws as soon as there is an amount."""
    zero = torch.zeros(env.num_envs, 1)
    return zero if amount == 0.0 else amount * env.rng.uniform(0.0, 1.0, (env.num_envs, 1))


def test_a_function_that_begins_to_draw_draws_for_each_term(make_env: MakeEnv):
    term = ObservationTermCfg(func=drawn_later)
    env = made(make_env, term, term)
    for name in ("obs/probe", "critic/probe", "critic/other"):
        env.observation_manager.set_params(name, amount=1.0)
    env.step(zeros(env))
    shown = torch.cat([env.state.obs["obs"], env.state.obs["critic"]], dim=1)[0].tolist()
    assert len(set(shown)) == 3
