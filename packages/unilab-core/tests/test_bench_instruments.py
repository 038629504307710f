"""Instruments measure what they are put on, and leave nothing behind."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps

from unilab_core.benching import instruments
from unilab_core.benching.instruments import PhaseClock, recorded, replaced, timed, waiter
from unilab_core.benching.parts import Phase
from unisim.bare import RowsCall, StepCall


class Machine:
    """Adds to a clock what its work takes."""

    def __init__(self) -> None:
        self.now = 0

    def inner(self, cost: int) -> int:
        self.now += cost
        return cost

    def outer(self, cost: int) -> int:
        self.now += 10
        self.inner(cost)
        self.inner(cost)
        return self.now

    def fails(self) -> None:
        self.now += 4
        raise KeyError("no")


def doubled(method):
    return lambda owner, cost: 2 * method(owner, cost)


def doubled_and_failing(method):
    def fails(owner, cost):
        assert owner.inner(cost) == 4 * cost
        method(owner)

    return fails


# ---------------------------------------------------------------- other methods for a while


def test_one_object_has_other_methods_for_a_while():
    changed, other = Machine(), Machine()
    with replaced(changed, {"inner": doubled}):
        assert (changed.inner(3), other.inner(3)) == (6, 3)
        assert isinstance(changed, Machine)
        assert type(changed).__name__ == "Machine"
        assert vars(changed) == {"now": 3}
    assert type(changed) is Machine
    assert changed.inner(3) == 3


def test_methods_come_back_after_a_failure_and_in_the_order_in_which_they_went():
    changed = Machine()
    with replaced(changed, {"inner": doubled}):
        with pytest.raises(KeyError), replaced(changed, {"inner": doubled, "fails": doubled_and_failing}):
            changed.fails(1)
        assert changed.inner(1) == 2
    assert type(changed) is Machine


def test_a_method_that_is_not_there_is_an_error_and_changes_nothing():
    changed = Machine()
    with pytest.raises(AttributeError, match="no attribute 'begone'"), replaced(changed, {"begone": doubled}):
        pass
    assert type(changed) is Machine


# ---------------------------------------------------------------- what a backend is told


def test_calls_are_recorded_as_copies_and_carried_out():
    env, calls = ScriptedEnv(2, truncate={2: [1]}), []
    env.reset()
    kind = type(env.backend)
    with recorded(env.backend, calls):
        env.step(torch.tensor([[1.0], [2.0]]))
        env.step(torch.tensor([[3.0], [4.0]]))
    assert type(env.backend) is kind
    assert [type(call) for call in calls] == [StepCall, StepCall, RowsCall]
    assert [call.ctrl.tolist() for call in calls[:2]] == [[[1.0], [2.0]], [[3.0], [4.0]]]
    assert [call.nsteps for call in calls[:2]] == [2, 2]
    assert (calls[2].kind, calls[2].mask.tolist()) == ("reset", [False, True])
    assert calls[2].payload.env_ids.tolist() == [1]
    assert int(env.step_counter) == 2
    steps(env, 1)
    assert len(calls) == 3


# ---------------------------------------------------------------- times


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(instruments.time, "perf_counter_ns", lambda: made.now)
    return made


def test_every_moment_counts_once(machine):
    clock = PhaseClock(lambda: None)
    with timed([Phase("outer", machine, ("outer",)), Phase("inner", machine, ("inner",))], clock):
        assert machine.outer(3) == 16
        machine.inner(5)
    assert clock.ns == {"outer": 10, "inner": 11}
    assert clock.calls == {"outer": 1, "inner": 3}
    assert type(machine) is Machine


def test_phases_of_one_name_are_summed_whoever_has_them(machine):
    clock, other = PhaseClock(lambda: None), Machine()
    with timed([Phase("work", machine, ("inner", "outer")), Phase("work", other, ("inner",))], clock):
        machine.outer(3)
        other.inner(9)  # which does not move the clock
    assert clock.ns == {"work": 16}
    assert clock.calls == {"work": 4}


def test_a_scope_tells_its_phases_apart(machine):
    clock = PhaseClock(lambda: None)
    phases = [Phase("reset", machine, ("outer",), scope=True), Phase("commit", machine, ("inner",))]
    with timed(phases, clock):
        machine.inner(1)
        machine.outer(2)
        machine.inner(1)
    assert clock.ns == {"reset": 10, "reset.commit": 4, "commit": 2}


def test_the_time_of_what_fails_counts_and_the_scope_ends(machine):
    clock = PhaseClock(lambda: None)
    with timed([Phase("all", machine, ("fails",), scope=True), Phase("inner", machine, ("inner",))], clock):
        with pytest.raises(KeyError):
            machine.fails()
        machine.inner(1)
    assert clock.ns == {"all": 4, "inner": 1}


def test_the_device_is_waited_for_on_both_sides_of_a_phase(machine):
    waits = []

    def wait() -> None:
        waits.append(machine.now)
        machine.now += 100

    clock = PhaseClock(wait)
    with timed([Phase("inner", machine, ("inner",))], clock):
        machine.inner(7)
    assert waits == [0, 107]
    assert clock.ns == {"inner": 107}


def test_the_cpu_is_not_waited_for():
    assert waiter(torch.device("cpu"))() is None
