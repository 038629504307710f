"""Timers and bad rows travel in the one verdict that a step reads after its observations."""

from __future__ import annotations

import logging

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros
from twins import assert_twins
from waiting import CountedBackend, waits

from unilab_core import ConfigError
from unisim.testing import FakeBackend, Fault, make_layout

N = 3


class TimedEnv(ScriptedEnv):
    """A timer per row of 2, 3, 4 steps, and one for all rows of 3 steps; work is done only where one may be due."""

    def _build(self) -> None:
        super()._build()
        self.period = torch.arange(self.num_envs) + 2
        self.left = self.period.clone()
        self.global_left = torch.tensor(3)
        self.may_fire = {"rows": True, "all": True}
        self.worked, self.fired = 0, torch.zeros(self.num_envs, dtype=torch.int64)

    def _advance(self) -> None:
        super()._advance()
        self.left -= 1
        self.global_left -= 1
        if self.may_fire["rows"]:
            self.worked += 1
            due = self.left <= 0
            self.fired += due
            self.left = torch.where(due, self.period, self.left)
        if self.may_fire["all"]:
            self.global_left = torch.where(self.global_left <= 0, torch.tensor(3), self.global_left)

    def _timers(self) -> dict[str, torch.Tensor]:
        return {"rows": self.left <= 1, "all": self.global_left <= 1}

    def _timers_judged(self, due) -> None:
        self.calls.append(("_timers_judged", None))
        self.may_fire.update(due)


def judged(env, number):
    answers = []
    for _ in range(number):
        env.step(zeros(env))
        answers.append((env.may_fire["rows"], env.may_fire["all"]))
    return answers


def test_a_step_says_of_each_timer_whether_it_fires_in_the_next_step():
    with TimedEnv(N) as env:
        env.reset()
        # Periods 2, 3, 4: rows fire in steps 2, 4, 6 / 3, 6 / 4, 8; the common one in 3, 6.
        assert judged(env, 8) == [
            (True, False),
            (True, True),
            (True, False),
            (False, False),
            (True, True),
            (False, False),
            (True, False),
            (True, True),
        ]


def test_where_no_timer_is_due_its_owner_can_do_nothing_and_misses_nothing():
    with TimedEnv(N) as env:
        env.reset()
        steps(env, 12)
        assert env.fired.tolist() == [6, 4, 3]
        # May fire in step 1, which no verdict came before; then only in the steps in which a row is due.
        assert env.worked == 1 + len({2, 4, 6, 8, 10, 12} | {3, 6, 9, 12} | {4, 8, 12})


def test_before_the_first_verdict_a_timer_may_fire():
    with TimedEnv(N) as env:
        assert env.may_fire == {"rows": True, "all": True}  # the trial runs left no answer behind
        env.reset()
        assert env.may_fire == {"rows": True, "all": True}


def test_timers_cost_no_further_read_of_the_device():
    with TimedEnv(N, backend=CountedBackend(make_layout(), N)) as env:
        env.reset()
        steps(env, 1)
        actions = zeros(env)
        before = env.transfer_stats.verdict
        assert waits(lambda: env.step(actions)) == {"tolist": 2}
        after = env.transfer_stats.verdict
        assert after.transfers - before.transfers == 2
        # actions, control; reward, observations, bad rows, any done, two timers
        assert after.bytes - before.bytes == 2 + 6


def test_timers_are_judged_after_the_observations_and_before_any_reset():
    with TimedEnv(N, terminate={1: [1]}) as env:
        env.reset()
        env.calls.clear()
        steps(env, 1)
        order = [name for name, _ in env.calls]
        assert order.index("_observe") < order.index("_timers_judged") < order.index("_after_step")
        assert order.index("_after_step") < order.index("_on_episodes_end")


def test_answers_come_back_with_the_timers_that_they_are_about():
    with TimedEnv(N) as env, TimedEnv(N) as other:
        for each in (env, other):
            each.reset()
        steps(env, 4)
        steps(other, 1)
        other.load_state_dict(env.state_dict())
        assert other.may_fire == env.may_fire == {"rows": False, "all": False}
        steps(env, 7)
        steps(other, 7)
        assert_twins(env, other)


@pytest.mark.parametrize(
    ("timers", "message"),
    [
        (
            [torch.zeros(N, dtype=torch.bool)],
            "timers: TypeError: Wrong._timers returned list, expected a dict",
        ),
        ({"push": True}, "timers: TypeError: Wrong._timers: timer 'push' is bool, expected torch.bool"),
        (
            {"push": torch.zeros(N)},
            "timers: TypeError: .* timer 'push' is torch.float32, expected torch.bool",
        ),
        (
            {"push": torch.zeros(N, 1, dtype=torch.bool)},
            r"timers: ValueError: .* timer 'push' is \(3, 1\) on cpu, expected \(3,\) or \(\) on cpu",
        ),
        (
            {"push": torch.zeros(N, dtype=torch.bool, device="meta")},
            "timers: ValueError: .* timer 'push' is .* on meta",
        ),
    ],
)
def test_qa_102_what_timers_are_is_checked_at_construction(timers, message):
    with pytest.raises(ConfigError, match=message):
        type("Wrong", (ScriptedEnv,), {"_timers": lambda self: timers})(N)


def test_a_timer_that_turns_wrong_later_faults_the_step():
    env = TimedEnv(N)
    env.reset()
    env.left = env.left.float()
    env._timers = lambda: {"rows": env.left}
    with pytest.raises(TypeError, match="TimedEnv._timers: timer 'rows' is torch.float32"):
        env.step(zeros(env))
    assert env.faulted
    env.close()


# ---------------------------------------------------------------- bad rows


def bad_env(row=1):
    backend = FakeBackend(make_layout(), N, faults=(Fault("nan", at=2, row=row),))
    env = ScriptedEnv(N, backend=backend)
    env.reset()
    # What is observed stays finite: the engine's word alone ends the row.
    env.inject["_observe"] = lambda ids: {"obs": torch.zeros(N if ids is None else ids.numel(), 3)}
    return env


def test_rows_that_the_engine_calls_bad_end_and_are_named(caplog):
    with bad_env() as env:
        state = env.step(zeros(env))
        assert "bad_rows" not in state.info["log"]
        with caplog.at_level(logging.WARNING, logger="unilab_core.env"):
            state = env.step(zeros(env))
        assert state.terminated.tolist() == [False, True, False]
        assert state.info["log"]["bad_rows"].item() == 1
        assert [r.getMessage() for r in caplog.records] == [
            "ScriptedEnv.step: the engine calls rows [1] bad; they terminate"
        ]
        assert "bad_rows" not in env.step(zeros(env)).info["log"]


def test_rows_that_end_for_another_reason_are_not_called_bad(caplog):
    with ScriptedEnv(N, terminate={1: [0]}, truncate={1: [2]}) as env:
        env.reset()
        assert "bad_rows" not in env.step(zeros(env)).info["log"]
        assert env.transfer_stats.host.transfers == 0
    assert caplog.records == []


def test_a_step_with_bad_rows_reads_no_third_verdict_and_counts_their_flags():
    with bad_env() as env:
        steps(env, 1)
        before = env.transfer_stats
        steps(env, 1)
        after = env.transfer_stats
        assert after.verdict.transfers - before.verdict.transfers == 2
        assert (after.host.transfers - before.host.transfers, after.host.bytes - before.host.bytes) == (1, N)
        steps(env, 1)
        assert env.transfer_stats.host == after.host
