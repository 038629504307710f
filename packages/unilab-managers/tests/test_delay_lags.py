"""DelayLags and DelayBuffer: which lag a row has and when it changes, against a plain model per row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_support import ids

from unilab_core import EnvRng
from unilab_managers.buffers import DelayBuffer, DelayLags

ALL = torch.arange(5)


def lags_of(low: int, high: int, *, num_envs: int = 5, seed: int = 3, **options: Any) -> DelayLags:
    lags = DelayLags(num_envs, low, high, rng=EnvRng(seed, "cpu"), **options)
    lags.reset(torch.arange(num_envs))
    return lags


def history_of(lags: DelayLags, steps: int) -> list[list[int]]:
    """Returns the lags now and after each of some steps."""
    found = [lags.values.tolist()]
    for _ in range(steps):
        lags.advance()
        found.append(lags.values.tolist())
    return found


def changes(history: list[list[int]], row: int) -> list[int]:
    """Returns the steps at which a row's lag changed."""
    return [i for i in range(1, len(history)) if history[i][row] != history[i - 1][row]]


def test_every_lag_of_the_range_is_served_and_no_other() -> None:
    found = {lag for row in history_of(lags_of(1, 4), 60) for lag in row}
    assert found == {1, 2, 3, 4}


def test_a_range_of_one_lag_is_known_without_a_draw() -> None:
    rng = EnvRng(0, "cpu")
    before = rng.get_state()
    lags = DelayLags(2, 3, 3, rng=rng, hold_prob=0.5, update_period=2)
    lags.reset(ids(0, 1))
    lags.advance()
    assert lags.is_fixed
    assert lags.values.tolist() == [3, 3]
    assert torch.equal(rng.get_state(), before)


def test_nothing_is_drawn_before_the_first_reset_and_every_lag_is_legal_by_then() -> None:
    rng = EnvRng(0, "cpu")
    before = rng.get_state()
    assert DelayLags(2, 2, 9, rng=rng).values.tolist() == [2, 2]
    assert torch.equal(rng.get_state(), before)


def test_a_reset_draws_lags_of_its_rows_only() -> None:
    lags = lags_of(0, 10**6)
    before = lags.values.tolist()
    lags.reset(ids(1, 4))
    after = lags.values.tolist()
    assert [i for i in range(5) if before[i] != after[i]] == [1, 4]


def test_a_lag_held_with_certainty_lasts_for_the_episode_and_draws_nothing() -> None:
    lags = lags_of(0, 10**6, hold_prob=1.0)
    history = history_of(lags, 20)
    assert history == [history[0]] * 21
    assert len(set(history[0])) == 5


def test_half_of_the_lags_are_held_with_probability_one_half() -> None:
    lags = lags_of(0, 10**6, num_envs=1000, hold_prob=0.5)
    before = lags.values.clone()
    lags.advance()
    # 1000 coins: 500 with a deviation of 16; four deviations either way.
    assert 436 <= int((lags.values == before).sum()) <= 564


def test_a_new_lag_is_due_after_whole_periods_of_a_rows_own_episode() -> None:
    lags = lags_of(0, 10**6, update_period=3, per_env_phase=False)
    lags.advance()
    lags.reset(ids(2))
    history = history_of(lags, 9)
    assert changes(history, 0) == [2, 5, 8]
    assert changes(history, 2) == [3, 6, 9]


def test_phases_stagger_the_rows_over_the_period() -> None:
    lags = lags_of(0, 10**6, num_envs=40, update_period=4)
    history = history_of(lags, 8)
    first = [changes(history, row) for row in range(40)]
    assert all(steps[1] - steps[0] == 4 and steps[0] in (1, 2, 3, 4) for steps in first)
    assert {steps[0] for steps in first} == {1, 2, 3, 4}


def test_rows_that_share_a_lag_have_the_same_at_any_time() -> None:
    lags = lags_of(0, 10**6, per_env=False, hold_prob=0.3, update_period=2)
    history = [lags.values.tolist()]
    for step in range(12):
        if step == 5:
            lags.reset(ids(0, 3))  # resets of some rows leave the shared lag alone
            assert lags.values.tolist() == history[-1]
        lags.advance()
        history.append(lags.values.tolist())
    assert all(len(set(row)) == 1 for row in history)
    assert {step % 2 for step in changes(history, 0)} == {0}
    assert len(changes(history, 0)) >= 3
    lags.reset(ALL)
    assert lags.values.tolist() != history[-1]
    assert len(set(lags.values.tolist())) == 1


def test_a_shared_lag_that_is_held_with_certainty_is_drawn_when_all_rows_begin() -> None:
    lags = lags_of(0, 10**6, per_env=False, hold_prob=1.0)
    first = lags.values.tolist()
    assert first != [0] * 5
    assert history_of(lags, 4) == [first] * 5


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, 2), {}, "min_lag is 3, max_lag 2; expected 0 <= min_lag <= max_lag"),
        ((-1, 2), {}, "min_lag is -1, max_lag 2"),
        ((0, 2), {"hold_prob": -0.1}, "hold_prob is -0.1, expected 0 <= hold_prob <= 1"),
        ((0, 2), {"hold_prob": 1.1}, "hold_prob is 1.1"),
        ((0, 2), {"hold_prob": float("nan")}, "hold_prob is nan"),
        ((0, 2), {"update_period": -1}, "update_period is -1, expected at least 0"),
    ],
)
def test_a_wrong_delay_is_refused(arguments: tuple[int, int], options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DelayLags(2, *arguments, rng=EnvRng(0, "cpu"), **options)


# ---------------------------------------------------------------- setting lags


def filled() -> DelayBuffer:
    """Five rows with lags 0 to 4, row r shown 10 r + step at steps 0 to 6."""
    buffer = DelayBuffer(DelayLags(5, 0, 4, rng=EnvRng(1, "cpu"), hold_prob=1.0), 1)
    buffer.reset(ALL)
    buffer.lags.set(torch.arange(5))
    buffer.fill(ALL, frame(0))
    for step in range(1, 7):
        buffer.push(frame(step))
    return buffer


def frame(step: int) -> torch.Tensor:
    return torch.tensor([[10.0 * row + step] for row in range(5)])


WRONG_LAGS = [
    (torch.tensor([5]), ValueError, "lags holds 5, expected 0 <= lag <= 4"),
    (torch.tensor([-1]), ValueError, "lags holds -1, expected 0 <= lag <= 4"),
    (torch.tensor([float("nan")]), TypeError, "lags is torch.float32, expected a tensor of integers"),
    (torch.tensor([True]), TypeError, "lags is torch.bool"),
    ([3], TypeError, "lags is list"),
    (torch.tensor([3, 3]), ValueError, r"lags has shape \(2,\), expected \(1,\)"),
    (torch.tensor([[3]]), ValueError, r"lags has shape \(1, 1\), expected \(1,\)"),
]


@pytest.mark.parametrize(("given_lags", "error", "message"), WRONG_LAGS)
def test_qa_018_a_lag_that_is_refused_was_not_written(given_lags: Any, error: Any, message: str) -> None:
    buffer, twin = filled(), filled()
    with pytest.raises(error, match=f"DelayLags.set: {message}"):
        buffer.lags.set(given_lags, ids(2))
    assert buffer.lags.values.tolist() == [0, 1, 2, 3, 4]
    assert (buffer.lags.min_lag, buffer.lags.max_lag) == (0, 4)
    assert buffer.read().flatten().tolist() == [6.0, 15.0, 24.0, 33.0, 42.0]
    for step in (7, 8):
        buffer.push(frame(step))
        twin.push(frame(step))
        assert torch.equal(buffer.read(), twin.read())


def test_qa_018_one_wrong_lag_among_right_ones_writes_none() -> None:
    buffer = filled()
    with pytest.raises(ValueError, match="lags holds 5"):
        buffer.lags.set(torch.tensor([4, 3, 5, 1, 0]))
    assert buffer.lags.values.tolist() == [0, 1, 2, 3, 4]


def test_lags_below_the_smallest_and_different_ones_for_rows_that_share_one_are_refused() -> None:
    lags = lags_of(2, 4)
    with pytest.raises(ValueError, match="lags holds 1, expected 2 <= lag <= 4"):
        lags.set(torch.tensor([1]), ids(0))
    shared = lags_of(0, 4, per_env=False)
    before = shared.values.tolist()
    with pytest.raises(ValueError, match=r"rows share one lag, got \[1, 2, 2, 2, 2\]"):
        shared.set(torch.tensor([1, 2, 2, 2, 2]))
    assert shared.values.tolist() == before
    shared.set(torch.full((5,), 3, dtype=torch.int32))
    assert shared.values.tolist() == [3] * 5


def test_a_lag_that_was_set_is_used_from_now_on() -> None:
    buffer = filled()
    buffer.lags.set(torch.tensor([4, 0]), ids(0, 4))
    assert buffer.lags.values.tolist() == [4, 1, 2, 3, 0]
    assert buffer.read().flatten().tolist() == [2.0, 15.0, 24.0, 33.0, 46.0]


def test_reading_a_delayed_frame_again_changes_nothing() -> None:
    buffer = DelayBuffer(lags_of(0, 4), 1)
    buffer.fill(ALL, frame(0))
    buffer.push(frame(1))
    assert torch.equal(buffer.read(), buffer.read())


# ---------------------------------------------------------------- any sequence

N = 3


@dataclass
class Row:
    """One row as the documentation tells it."""

    lag: int
    period: int
    until_due: int = 0
    seen: list[float] = field(default_factory=list)

    def is_due(self) -> bool:
        self.until_due -= 1
        if self.until_due > 0:
            return False
        self.until_due = self.period
        return True


subsets = st.lists(st.integers(0, N - 1), unique=True, min_size=1).map(sorted)
commands = st.lists(st.one_of(st.just(None), subsets), max_size=25)
delays = st.fixed_dictionaries(
    {
        "per_env": st.booleans(),
        "hold_prob": st.sampled_from([0.0, 0.5, 1.0]),
        "update_period": st.integers(0, 3),
        "per_env_phase": st.booleans(),
    }
)


class Model:
    """Draws from a twin of the generator, in the order that is documented: lags, then phases or coins."""

    def __init__(self, low: int, high: int, options: dict[str, Any], rng: EnvRng) -> None:
        self.low, self.high, self.rng = low, high, rng
        self.per_env, self.hold = options["per_env"], options["hold_prob"]
        self.staggered = options["per_env_phase"]
        self.period = max(1, options["update_period"])
        self.rows = [Row(low, self.period) for _ in range(N)]

    def draw(self, count: int) -> list[int]:
        return self.rng.integers(self.low, self.high + 1, count).tolist()

    def reset(self, rows: list[int]) -> None:
        if self.low == self.high or not (self.per_env or len(rows) == N):
            return
        lags = self.draw(len(rows)) if self.per_env else self.draw(1) * N
        phases = [0] * len(rows)
        if self.per_env and self.staggered and self.period > 1:
            # A phase is a point of time within the period; the first lag is due when time gets there.
            now = self.time % self.period
            phases = [(p - now) % self.period for p in self.rng.integers(0, self.period, len(rows)).tolist()]
        for row, lag, phase in zip(rows, lags, phases, strict=True):
            self.rows[row].lag, self.rows[row].until_due = lag, phase or self.period
        if not self.per_env:
            self.time = 0

    time = 0

    def advance(self) -> None:
        if self.low == self.high or self.hold == 1.0:
            return
        self.time += 1
        due = [row.is_due() for row in self.rows]
        if not self.per_env and not due[0]:
            return
        count = N if self.per_env else 1
        drawn = self.draw(count)
        coins = self.rng.uniform(0.0, 1.0, count).tolist() if self.hold else [1.0] * count
        for i, row in enumerate(self.rows):
            at = i if self.per_env else 0
            if due[i] and coins[at] >= self.hold:
                row.lag = drawn[at]


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(low=st.integers(0, 3), width=st.integers(0, 3), options=delays, commands=commands)
def test_any_sequence_of_steps_and_resets_is_what_a_list_per_row_serves(
    low, width, options, commands
) -> None:
    high = low + width
    model = Model(low, high, options, EnvRng(11, "cpu"))
    buffer = DelayBuffer(DelayLags(N, low, high, rng=EnvRng(11, "cpu"), **options), 1)
    value = 0.0
    for command in [list(range(N)), *commands]:
        value += 1.0
        if command is None:
            buffer.push(torch.tensor([[value + 100.0 * row] for row in range(N)]))
            model.advance()
            for i, row in enumerate(model.rows):
                row.seen.append(value + 100.0 * i)
        else:
            buffer.reset(ids(*command))
            buffer.fill(ids(*command), torch.tensor([[value + 100.0 * row] for row in command]))
            model.reset(command)
            for row in command:
                model.rows[row].seen = [value + 100.0 * row]
        assert buffer.lags.values.tolist() == [row.lag for row in model.rows]
        served = [row.seen[max(0, len(row.seen) - 1 - row.lag)] for row in model.rows]
        assert buffer.read().flatten().tolist() == served
        assert all(low <= row.lag <= high for row in model.rows)
