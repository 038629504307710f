"""Terminations: which flag a term raises, when the time limit fires, and what a term said in this step."""

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, calls, flag, ids, zeros

from unilab_core import UnknownNameError
from unilab_managers import ManagerBasedRlEnv, TerminationTermCfg, mdp
from unisim import SimCfg

TIME_OUT = TerminationTermCfg(func=mdp.time_out)


def flags(*rows: int, column: int = 2, num_envs: int = 3) -> list[list[float]]:
    """Returns sensor rows that raise one column's flag in the rows given."""
    return [[1.0 if (row in rows and i == column) else 0.0 for i in range(3)] for row in range(num_envs)]


class CutShort:
    """A class term that says of itself that it truncates."""

    is_time_out = True

    def __init__(self, cfg: TerminationTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        calls.append("terminations")
        return flag(env)


def last_step(make_env: MakeEnv, steps: int, **options: Any) -> tuple[list[bool], list[bool]]:
    env = make_env(1, episode_length_s=0.1, **options)
    for _ in range(steps):
        state = env.step(zeros(env))
    return state.terminated.tolist(), state.truncated.tolist()


def test_qa_003_a_time_out_truncates_without_anyone_setting_a_flag(make_env: MakeEnv) -> None:
    assert last_step(make_env, 4, terminations={"end": TIME_OUT}) == ([False], [False])
    assert last_step(make_env, 5, terminations={"end": TIME_OUT}) == ([False], [True])


@pytest.mark.parametrize(
    ("length_s", "steps"),
    [
        (0.14, 7),
        (0.28, 14),
        (0.56, 28),
        (1.12, 56),
        (2.22, 111),
        (0.58, 29),
        (0.94, 47),
        (1.14, 57),
        (0.15, 8),
    ],
)
def test_qa_117_the_time_limit_fires_after_exactly_its_number_of_steps(
    make_env: MakeEnv, length_s: float, steps: int
) -> None:
    env = make_env(1, episode_length_s=length_s, terminations={"end": TIME_OUT})
    assert env.max_episode_length == steps
    cut = [bool(env.step(zeros(env)).truncated) for _ in range(2 * steps)]
    assert [i + 1 for i, value in enumerate(cut) if value] == [steps, 2 * steps]


def test_a_config_may_say_that_the_time_limit_terminates(make_env: MakeEnv) -> None:
    term = TerminationTermCfg(func=mdp.time_out, time_out=False)
    assert last_step(make_env, 5, terminations={"end": term}) == ([True], [False])


def test_with_a_finite_horizon_time_outs_terminate(make_env: MakeEnv) -> None:
    assert last_step(make_env, 5, terminations={"end": TIME_OUT}, is_finite_horizon=True) == ([True], [False])


@pytest.mark.parametrize(
    ("term", "truncates"),
    [
        (TerminationTermCfg(func=flag), False),
        (TerminationTermCfg(func=flag, time_out=True), True),
        (TerminationTermCfg(func=CutShort), True),
        (TerminationTermCfg(func=CutShort, time_out=False), False),
    ],
)
def test_the_config_decides_over_what_a_term_says_of_itself(
    make_env: MakeEnv, term: TerminationTermCfg, truncates: bool
) -> None:
    feed = Feed()
    env = make_env(feed=feed, terminations={"end": term})
    feed.probe(flags(1))
    state = env.step(zeros(env))
    ended, other = (state.truncated, state.terminated) if truncates else (state.terminated, state.truncated)
    assert ended.tolist() == [False, True, False]
    assert other.tolist() == [False, False, False]


def test_both_flags_may_be_raised_and_several_terms_add_up(make_env: MakeEnv) -> None:
    feed = Feed()
    terms = {
        "fell": TerminationTermCfg(func=flag, params={"index": 0}),
        "left": TerminationTermCfg(func=flag, params={"index": 1}),
        "cut": TerminationTermCfg(func=flag, params={"index": 2}, time_out=True),
    }
    env = make_env(feed=feed, terminations=terms)
    feed.probe([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    state = env.step(zeros(env))
    assert state.terminated.tolist() == [True, True, False]
    assert state.truncated.tolist() == [True, False, True]


def test_qa_112_a_term_answers_for_this_step(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(feed=feed, terminations={"fell": TerminationTermCfg(func=CutShort)})
    calls.clear()
    answers = []
    for step in range(1, 5):
        feed.probe(flags(1) if step == 3 else flags())
        env.step(zeros(env))
        answers.append(env.termination_manager.get_term("fell").tolist())
    assert answers == [[False] * 3, [False] * 3, [False, True, False], [False] * 3]
    assert len(calls) == 4  # one evaluation a step


def test_an_unknown_term_is_named_with_the_nearest(make_env: MakeEnv) -> None:
    env = make_env(terminations={"time_out": TIME_OUT})
    with pytest.raises(
        UnknownNameError, match="terminations: unknown term 'timeout'; did you mean 'time_out'"
    ):
        env.termination_manager.get_term("timeout")


def test_the_flags_of_a_transition_stay_set_after_the_automatic_reset(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(feed=feed, terminations={"fell": TerminationTermCfg(func=flag)})
    feed.probe(flags(1))
    env.step(zeros(env))
    assert env.episode_length.tolist() == [1, 0, 1]
    assert env.state.terminated.tolist() == [False, True, False]
    env.reset(ids(1))
    assert env.state.terminated.tolist() == [False, False, False]


def test_the_time_limit_counts_the_steps_of_each_row(make_env: MakeEnv) -> None:
    env = make_env(
        2, sim=SimCfg(timestep=0.01), decimation=2, episode_length_s=0.1, terminations={"end": TIME_OUT}
    )
    env.step(zeros(env))
    env.step(zeros(env))
    env.reset(ids(1))
    cut = [env.step(zeros(env)).truncated.tolist() for _ in range(5)]
    assert cut == [[False, False], [False, False], [True, False], [False, False], [False, True]]


def fell_before(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns which rows the term `fell` ended in the step before: a view of the manager's own."""
    return env.termination_manager.get_term("fell")


def test_a_term_may_return_what_another_decided_in_the_step_before(make_env: MakeEnv) -> None:
    feed = Feed()
    terms = {"fell": TerminationTermCfg(func=flag), "late": TerminationTermCfg(func=fell_before)}
    env = make_env(feed=feed, terminations=terms)
    ended = []
    for rows in ((1,), (), (0,), ()):
        feed.probe(flags(*rows))
        ended.append(env.step(zeros(env)).terminated.tolist())
    assert ended == [[False, True, False], [False, True, False], [True, False, False], [True, False, False]]
