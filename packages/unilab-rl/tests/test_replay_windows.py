"""Whatever happened to a stream, its windows are those of the raw history, and each can be drawn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_support import KINDS, Stream, every_window, make_replay, windows

EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def scripts(draw):
    num_envs, n_step = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    capacity = draw(st.integers(n_step + 1, 9))
    step = st.tuples(*[st.sampled_from(KINDS)] * num_envs)
    events = draw(st.lists(st.one_of(step, step, step, step, st.just("interrupt")), min_size=1, max_size=30))
    return num_envs, capacity, n_step, draw(st.booleans()), events


def play(num_envs, capacity, n_step, constant, events):
    stream = Stream(make_replay(num_envs, capacity, n_step=n_step), constant=constant)
    for event in events:
        if event == "interrupt":
            stream.interrupt()
        else:
            stream.add(event)
        yield stream


@EXAMPLES
@given(scripts())
def test_after_every_step_the_windows_are_those_of_the_history_each_once(script):
    for stream in play(*script):
        replay, history = stream.replay, stream.history
        held = history.held()
        assert len(replay) == replay.num_transitions == len(held)
        assert int(replay.refused) == stream.refused
        if held:
            # gamma = 0.5 and small whole rewards: sums are exact in float32.
            assert every_window(replay) == [history.window(*at, replay.n_step, 0.5) for at in held]


@EXAMPLES
@given(scripts(), st.integers(0, 2**31))
def test_what_the_generator_draws_are_windows_of_the_history(script, seed):
    *_, stream = play(*script)
    stream.replay._generator.manual_seed(seed)
    history = stream.history
    held = history.held()
    if held:
        valid = {history.window(*at, stream.replay.n_step, 0.5) for at in held}
        assert set(windows(stream.replay, stream.replay.sample(64))) <= valid


def test_qa_093_windows_stop_at_ends_and_at_the_head_with_the_steps_really_taken():
    stream = Stream(make_replay(1, 10, n_step=3))
    for kind in ("go", "go", "truncated", "go", "terminated", "go", "go"):
        stream.add([kind])
    found = [(window.time, window.num_steps, window.terminated) for window in every_window(stream.replay)]
    assert found == [
        (0, 3, False),
        (1, 2, False),
        (2, 1, False),
        (3, 2, True),
        (4, 1, True),
        (5, 2, False),
        (6, 1, False),
    ]


def test_qa_093_after_eleven_pushes_eight_are_held_and_no_window_spans_the_pointer():
    stream = Stream(make_replay(1, 8, n_step=3))
    for _ in range(11):
        stream.add(["go"])
    found = [(window.time, window.num_steps) for window in every_window(stream.replay)]
    assert found == [(3, 3), (4, 3), (5, 3), (6, 3), (7, 3), (8, 3), (9, 2), (10, 1)]


def test_qa_093_the_worked_numbers_of_a_window_that_ends_in_a_time_out_or_a_true_end():
    for kind, target in (("truncated", 11.791), ("terminated", 1.99)):
        replay = make_replay(1, 8, n_step=3, gamma=0.99)
        for end in ("go", kind, "go"):
            replay.add(
                observation(0.0),
                torch.zeros(1, 2),
                torch.ones(1),
                observation(10.0 if end == kind else 0.0),
                torch.tensor([end == "terminated"]),
                torch.tensor([end == "truncated"]),
            )
        batch = replay.sample(64)
        starts = (batch.discounts - 0.9801).abs() < 1e-6
        value = batch.next_obs["obs"][:, 0]
        targets = batch.rewards + batch.discounts * ~batch.terminated * value
        assert starts.any()
        torch.testing.assert_close(batch.rewards[starts], torch.full_like(batch.rewards[starts], 1.99))
        torch.testing.assert_close(targets[starts], torch.full_like(targets[starts], target))


def observation(value):
    return {"obs": torch.tensor([[value, value + 0.25]]), "critic": torch.tensor([[-value]])}


def test_qa_095_one_step_episodes_are_told_apart_by_how_they_ended():
    stream = Stream(make_replay(3, 4))
    stream.add(["truncated", "terminated", "both"])
    assert [window.terminated for window in every_window(stream.replay)] == [False, True, True]


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_qa_099_all_lengths_work_before_and_after_the_ring_is_full(n_step):
    stream = Stream(make_replay(1, 4, n_step=n_step))
    for step in range(9):
        stream.add(["truncated" if step in (3, 7) else "go"])
        history = stream.history
        assert every_window(stream.replay) == [history.window(*at, n_step, 0.5) for at in history.held()]


def test_a_refused_row_cuts_windows_though_the_observation_seems_to_go_on():
    stream = Stream(make_replay(1, 8, n_step=3), constant=True)
    for kind in ("go", "refused", "go", "nonfinite", "go", "go"):
        stream.add([kind])
    assert [(window.time, window.num_steps) for window in every_window(stream.replay)] == [
        (0, 1),
        (2, 1),
        (4, 2),
        (5, 1),
    ]
    assert int(stream.replay.refused) == 2


@pytest.mark.parametrize("place", ["obs", "critic", "actions", "rewards", "next obs", "next critic"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_anywhere_refuses_its_row_alone(place, value):
    stream = Stream(make_replay(3, 4))
    zeros = {"obs": torch.zeros(3, 2), "critic": torch.zeros(3, 1)}
    parts = {name: tensor.clone() for name, tensor in zeros.items()}
    parts |= {f"next {name}": tensor.clone() for name, tensor in zeros.items()}
    parts |= {"actions": torch.arange(6.0).reshape(3, 2), "rewards": torch.zeros(3)}
    parts[place][1, ...] = value
    none = torch.zeros(3, dtype=torch.bool)
    replay = stream.replay
    replay.add(
        {name: parts[name] for name in zeros},
        parts["actions"],
        parts["rewards"],
        {name: parts[f"next {name}"] for name in zeros},
        none,
        none,
    )
    assert len(replay) == 2
    assert int(replay.refused) == 1
    assert set(replay.sample(50).actions[:, 0].tolist()) == {0.0, 4.0}


def test_positive_and_negative_zero_are_two_observations():
    replay = make_replay(1, 8, n_step=2)
    none = torch.zeros(1, dtype=torch.bool)

    def add(obs, next_obs):
        replay.add(observation(obs), torch.zeros(1, 2), torch.ones(1), observation(next_obs), none, none)

    add(1.0, -0.0)
    add(0.0, 2.0)
    assert replay.sample(20).discounts.eq(0.5).all()
    values = replay.sample(50).next_obs["obs"][:, 0]
    assert values[values == 0.0].signbit().all()


def test_every_window_is_equally_likely():
    stream = Stream(make_replay(3, 12, n_step=2))
    for step in range(20):
        stream.add(["terminated" if step % 3 == 0 else "go", "refused" if step > 4 else "go", "go"])
    held = stream.history.held()
    counts = dict.fromkeys(held, 0)
    draws = 400 * len(held)
    for window in windows(stream.replay, stream.replay.sample(draws)):
        counts[window.env, window.time] += 1
    assert len({env for env, _ in held}) == 3
    # Chi-square with k degrees of freedom: mean k, standard deviation sqrt(2 k); the seed is fixed.
    statistic = sum((count - 400) ** 2 / 400 for count in counts.values())
    freedom = len(held) - 1
    assert abs(statistic - freedom) < 4 * (2 * freedom) ** 0.5
