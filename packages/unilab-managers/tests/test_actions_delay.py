"""Delayed actions: as late as each row drew at its reset, and nothing of an earlier episode ever arrives."""

import pytest
import torch
from action_support import driven_layout, same, step
from manager_support import Feed, MakeEnv, flag, ids

from unilab_core import NonFiniteError, ResetRejectedError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, TerminationTermCfg, mdp

Position, Effort = mdp.JointPositionActionCfg, mdp.JointEffortActionCfg
END = {"end": TerminationTermCfg(func=flag)}


def impulse(env: ManagerBasedRlEnv, steps: int) -> torch.Tensor:
    """Returns the first control of (steps, N) steps of which only the first has an action, 1."""
    rows = []
    for number in range(steps):
        env.step(torch.full((env.num_envs, env.num_actions), 1.0 if number == 0 else 0.0))
        rows.append(env.state_column("ctrl")[:, 0].clone())
    return torch.stack(rows)


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_an_action_arrives_as_many_steps_late_as_said(make_env: MakeEnv, lag: int) -> None:
    cfg = Effort(delay_min_lag=lag, delay_max_lag=lag)
    env = make_env(1, layout=driven_layout("a"), actions={"term": cfg})
    got = [step(env, [float(number)])[0][0] for number in range(1, 7)]
    assert got == [float(max(0, number - lag)) for number in range(1, 7)]


def test_the_action_itself_is_not_delayed(make_env: MakeEnv) -> None:
    env = make_env(1, layout=driven_layout("a"), actions={"term": Effort(delay_min_lag=2, delay_max_lag=2)})
    step(env, [1.0])
    step(env, [2.0])
    assert env.action_manager.action.tolist() == [[2.0]]
    assert env.action_manager.prev_action.tolist() == [[1.0]]


def test_scale_offset_and_clip_come_after_the_delay(make_env: MakeEnv) -> None:
    cfg = Position(scale=2.0, clip=(-1.0, 1.5), delay_min_lag=1, delay_max_lag=1)
    env = make_env(1, layout=driven_layout("a", default=(0.5,)), actions={"term": cfg})
    assert step(env, [0.25]) == [[0.5]]  # an action of 0: the default position
    assert step(env, [9.0]) == [[1.0]]
    assert step(env, [0.0]) == [[1.5]]


@pytest.mark.parametrize("default", [0.0, 0.25])
def test_qa_044_a_reset_drops_what_was_on_its_way_in_its_rows_only(make_env: MakeEnv, default: float) -> None:
    feed = Feed()
    cfg = Position(delay_min_lag=2, delay_max_lag=2)
    env = make_env(
        2, feed=feed, layout=driven_layout("a", default=(default,)), actions={"term": cfg}, terminations=END
    )
    applied = [step(env, [1.0], [1.0]) for _ in range(4)]
    feed.probe([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    env.step(torch.ones(2, 1))  # step 5, at whose end row 1 is reset
    assert env.episode_length.tolist() == [5, 0]
    feed.probe([[0.0, 0.0, 0.0]] * 2)
    applied += [step(env, [0.0], [0.0]) for _ in range(3)]
    late = default + 1.0
    assert [row[0] for row, _ in applied] == [default, default, late, late, late, late, default]
    assert [row[0] for _, row in applied] == [default, default, late, late, default, default, default]


def test_every_row_draws_its_own_lag_and_keeps_it_for_the_episode(make_env: MakeEnv) -> None:
    env = make_env(64, layout=driven_layout("a"), actions={"term": Effort(delay_min_lag=1, delay_max_lag=3)})
    first, second = impulse(env, 6), impulse(env, 6)
    assert torch.equal(first, second)
    assert first.sum(dim=0).tolist() == [1.0] * 64
    lags = first.argmax(dim=0)
    assert sorted(set(lags.tolist())) == [1, 2, 3]


def test_lags_may_include_none_at_all(make_env: MakeEnv) -> None:
    env = make_env(64, layout=driven_layout("a"), actions={"term": Effort(delay_max_lag=2)})
    lags = impulse(env, 4).argmax(dim=0)
    assert sorted(set(lags.tolist())) == [0, 1, 2]


def test_qa_044_lags_are_drawn_anew_for_the_rows_of_a_reset_only(make_env: MakeEnv) -> None:
    env = make_env(64, layout=driven_layout("a"), actions={"term": Effort(delay_max_lag=9)})
    before = impulse(env, 11).argmax(dim=0)
    rows = torch.arange(0, 64, 2)
    env.reset(rows)
    after = impulse(env, 11).argmax(dim=0)
    assert torch.equal(after[1::2], before[1::2])
    assert not torch.equal(after[::2], before[::2])


def test_two_terms_have_delays_of_their_own(make_env: MakeEnv) -> None:
    terms = {
        "late": Effort(joint_names=("b",), delay_min_lag=1, delay_max_lag=1),
        "later": Effort(joint_names=("a",), delay_min_lag=2, delay_max_lag=2),
    }
    env = make_env(1, layout=driven_layout("a", "b"), actions=terms)
    got = [step(env, [float(n), 10.0 * n])[0] for n in (1, 2, 3)]
    assert got == [[0.0, 0.0], [0.0, 1.0], [10.0, 2.0]]


def test_the_seed_decides_the_lags(make_env: MakeEnv) -> None:
    def lags(seed: int) -> list[int]:
        cfg = Effort(delay_max_lag=5)
        env = make_env(32, layout=driven_layout("a"), actions={"term": cfg}, seed=seed)
        found: list[int] = impulse(env, 6).argmax(dim=0).tolist()
        return found

    assert lags(3) == lags(3)
    assert lags(3) != lags(4)


def test_a_refused_action_is_not_sent(make_env: MakeEnv) -> None:
    env = make_env(2, layout=driven_layout("a"), actions={"term": Effort(delay_min_lag=1, delay_max_lag=2)})
    step(env, [1.0], [2.0])
    before = env.state_dict()
    with pytest.raises(NonFiniteError):
        step(env, [float("nan")], [0.0])
    assert same(env.state_dict(), before)


def failing(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if env.step_counter == 3:
        raise ArithmeticError("no")


def test_a_rejected_reset_keeps_what_is_on_its_way_and_its_lags(make_env: MakeEnv) -> None:
    def made() -> ManagerBasedRlEnv:
        env = make_env(
            8,
            layout=driven_layout("a"),
            actions={"term": Effort(delay_max_lag=4)},
            events={"failing": EventTermCfg(func=failing, mode="reset")},
            seed=5,
        )
        for number in range(3):
            env.step(torch.full((8, 1), float(number + 1)))
        return env

    env, twin = made(), made()
    with pytest.raises(ResetRejectedError):
        env.reset(ids(1, 6))
    assert same(env.state_dict(), twin.state_dict())
    for _ in range(4):
        assert step(env, *[[0.5]] * 8) == step(twin, *[[0.5]] * 8)


def test_a_state_continues_what_is_on_its_way(make_env: MakeEnv) -> None:
    def made(seed: int) -> ManagerBasedRlEnv:
        return make_env(8, layout=driven_layout("a"), actions={"term": Effort(delay_max_lag=4)}, seed=seed)

    env, other = made(1), made(2)
    for number in range(5):
        env.step(torch.full((8, 1), float(number)))
    other.load_state_dict(env.state_dict())
    for _ in range(5):
        assert step(env, *[[9.0]] * 8) == step(other, *[[9.0]] * 8)
